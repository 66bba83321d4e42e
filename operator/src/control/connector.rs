//! The real control plane: the SDK, with the token and certificates of the ControlPlane's Secrets.

use super::{Connector, ControlApi, Ungated};
use crate::apply;
use crate::error::{Error, Result};
use crate::workload::names;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use undb_proto::v1;
use undb_runtime::{TlsOptions, TlsPem};
use undb_sdk::{Admin, ApplyOutcome, Options, Timeouts};
use undb_spec::k8s::ControlPlane;

/// How long the control plane may think. A reconcile comes again, so waiting for long wins nothing.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects by the Secrets that the ControlPlane's controller made.
pub struct KubeConnector {
    client: Client,
    unsafe_gate_off: bool,
    // Owner: connect. By namespace and name; an entry is replaced when its Secrets change.
    known: Mutex<HashMap<(String, String), Known>>,
}

struct Known {
    fingerprint: String,
    api: Arc<dyn ControlApi>,
}

impl KubeConnector {
    /// Reads Secrets with this client. `unsafe_gate_off`: see [`Ungated`].
    pub fn new(client: Client, unsafe_gate_off: bool) -> Self {
        if unsafe_gate_off {
            tracing::warn!(
                "the availability gate is switched off by UNDB_UNSAFE_GATE=off: shards will go down"
            );
        }
        Self { client, unsafe_gate_off, known: Mutex::default() }
    }

    /// The certificates of the roles; none where the ControlPlane says that they speak plain.
    async fn tls(&self, namespace: &str, control_plane: &str) -> Result<Option<TlsPem>> {
        let objects = Api::<ControlPlane>::namespaced(self.client.clone(), namespace);
        let object = objects.get_opt(control_plane).await?;
        if object.is_some_and(|o| !o.spec.tls.enabled) {
            return Ok(None);
        }
        let name = names::tls_secret(control_plane);
        let secret = self.secret(namespace, &name).await?.ok_or_else(|| missing(name, control_plane))?;
        let bytes = |key: &str| secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.clone());
        let ca = bytes("ca.crt").ok_or_else(|| missing(names::tls_secret(control_plane), control_plane))?;
        Ok(Some(TlsPem { ca, cert: bytes("tls.crt"), key: bytes("tls.key") }))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>> {
        Ok(Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await?)
    }
}

fn missing(name: String, control_plane: &str) -> Error {
    let remedy = format!("the operator makes it with ControlPlane {control_plane}; see its status");
    Error::Missing { what: "Secret", name, remedy }
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(String::from_utf8_lossy(&bytes.0).trim().to_owned()).filter(|text| !text.is_empty())
}

#[async_trait]
impl Connector for KubeConnector {
    async fn connect(&self, namespace: &str, control_plane: &str) -> Result<Arc<dyn ControlApi>> {
        let name = names::token_secret(control_plane);
        let token =
            self.secret(namespace, &name).await?.ok_or_else(|| missing(name.clone(), control_plane))?;
        let token = text(&token, "token").ok_or_else(|| missing(name, control_plane))?;
        let tls = self.tls(namespace, control_plane).await?;
        let fingerprint = apply::hash(&(&token, tls.as_ref().map(|t| (&t.ca, &t.cert))));
        let key = (namespace.to_owned(), control_plane.to_owned());
        if let Some(known) = self.known.lock().get(&key).filter(|k| k.fingerprint == fingerprint) {
            return Ok(known.api.clone());
        }
        let endpoint = names::access_endpoint(control_plane, namespace);
        let timeouts = Timeouts { admin: CALL_TIMEOUT, ..Timeouts::default() };
        let options =
            Options::new([endpoint]).token(Some(token)).timeouts(timeouts).tls(tls.map(TlsOptions::Pem));
        let admin = AdminApi {
            admin: Admin::new(&options)?,
            namespace: namespace.into(),
            control_plane: control_plane.into(),
        };
        let mut api: Arc<dyn ControlApi> = Arc::new(admin);
        if self.unsafe_gate_off {
            api = Arc::new(Ungated(api));
        }
        self.known.lock().insert(key, Known { fingerprint, api: api.clone() });
        Ok(api)
    }
}

/// The SDK's calls under the trait; their failures say which control plane.
pub struct AdminApi {
    admin: Admin,
    namespace: String,
    control_plane: String,
}

impl AdminApi {
    fn named<T>(&self, outcome: undb_sdk::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            let error = Error::Control(error);
            if !error.is_unreachable() {
                return error;
            }
            Error::ControlPlaneUnreachable {
                namespace: self.namespace.clone(),
                control_plane: self.control_plane.clone(),
                cause: error.to_string(),
            }
        })
    }
}

#[async_trait]
impl ControlApi for AdminApi {
    async fn status(&self) -> Result<v1::StatusResponse> {
        self.named(self.admin.status().await)
    }

    async fn apply(&self, object_json: String) -> Result<ApplyOutcome> {
        self.named(self.admin.apply(object_json, false).await)
    }

    async fn get(&self, kind: &str, name: &str, table: &str) -> Result<Vec<String>> {
        self.named(self.admin.get(kind, name, table).await)
    }

    async fn delete(&self, kind: &str, name: &str, now: bool) -> Result<String> {
        self.named(self.admin.delete(kind, name, now).await)
    }

    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse> {
        self.named(self.admin.acquire_disruption(request).await)
    }

    async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        self.named(self.admin.disruption_status(request).await)
    }

    async fn release(&self, lease_id: u64, token: u64) -> Result<v1::DisruptionResponse> {
        self.named(self.admin.release_disruption(lease_id, token).await)
    }

    async fn list(&self) -> Result<Vec<v1::DisruptionLease>> {
        self.named(self.admin.list_disruptions().await)
    }

    async fn set_store(
        &self,
        store_id: u64,
        action: v1::StoreAction,
        lost: bool,
    ) -> Result<v1::SetStoreResponse> {
        self.named(self.admin.set_store(store_id, action, lost).await)
    }
}
