//! The webhook's certificate in this process, and the Secret and bundle that all replicas share.
//!
//! ```text
//! every 10 s: Secret --decide--> keep | renew (new CA into the webhook's caBundle FIRST, then the Secret)
//!             Secret --> the next handshake;  its ca.crt --> caBundle, if that differs
//! ```
//! Whichever replica is first makes the Secret (of two, one gets 409 and reads); renewing before the end is the
//! leader's. The API server ignores a webhook that it does not trust (`failurePolicy: Ignore`), and then the
//! closed budgets refuse: rotation can only cost kindness, not safety.

use super::certificate::{self, Data, Material, Step};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::telemetry;
use crate::workload::FIELD_MANAGER;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use undb_runtime::Shutdown;

/// The Secret with certificate, key and bundle.
pub const SECRET: &str = "undb-operator-webhook-tls";
/// The Service by which the API server calls.
pub const SERVICE: &str = "undb-operator-webhook";
const EVERY: Duration = Duration::from_secs(10);

/// What is served now. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    // Leaf lock; read by handshakes.
    served: Arc<RwLock<Served>>,
}

#[derive(Debug, Default)]
struct Served {
    key: Option<Arc<CertifiedKey>>,
    cert_pem: String,
    is_trusted: bool,
}

impl Identity {
    /// Ready once handshakes work and the API server has been told whom to trust.
    pub fn ready(&self) -> Result<(), String> {
        let served = self.served.read();
        match (&served.key, served.is_trusted) {
            (None, _) => Err(format!("Secret {SECRET} has not been read yet")),
            (Some(_), false) => Err("the caBundle of the webhook's configuration is not written yet".into()),
            (Some(_), true) => Ok(()),
        }
    }

    /// Serves this from the next handshake on.
    pub fn load(&self, material: &Material) -> Result<()> {
        if self.served.read().cert_pem == material.cert_pem {
            return Ok(());
        }
        let key = certified(material)?;
        let mut served = self.served.write();
        served.key = Some(Arc::new(key));
        served.cert_pem.clone_from(&material.cert_pem);
        tracing::info!(expires = %material.expires, "webhook certificate loaded");
        Ok(())
    }

    fn trusted(&self) {
        self.served.write().is_trusted = true;
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.served.read().key.clone()
    }
}

fn certified(material: &Material) -> Result<CertifiedKey> {
    let bad = |problem: String| Error::Certificate { name: format!("Secret {SECRET}"), problem };
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(material.cert_pem.as_bytes()).collect();
    let chain = chain.map_err(|e| bad(format!("tls.crt: {e}")))?;
    let key = PrivateKeyDer::from_pem_slice(material.key_pem.as_bytes())
        .map_err(|e| bad(format!("tls.key: {e}")))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|e| bad(e.to_string()))
}

/// Names that the API server may call by.
pub fn names(namespace: &str) -> Vec<String> {
    vec![format!("{SERVICE}.{namespace}.svc"), format!("{SERVICE}.{namespace}.svc.cluster.local")]
}

/// Keeps all of it in order until the end. `leads`: whether this replica is the leader now.
pub async fn maintain(
    ctx: Arc<Ctx>,
    identity: Identity,
    leads: impl Fn() -> bool + Send + 'static,
    shutdown: Shutdown,
) -> Result<()> {
    loop {
        let renewal = if leads() { Renewal::Ours } else { Renewal::Theirs };
        if let Err(error) = pass(&ctx, &identity, renewal, Timestamp::now()).await {
            tracing::warn!(%error, "webhook certificate not in order");
        }
        tokio::select! {
            () = shutdown.begun() => return Ok(()),
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Who renews a certificate that still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Ours,
    Theirs,
}

/// One look, and at most one new certificate.
pub(super) async fn pass(ctx: &Ctx, identity: &Identity, renewal: Renewal, now: Timestamp) -> Result<()> {
    let names = names(&ctx.settings.namespace);
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let mut found = secrets.get_opt(SECRET).await?;
    let step = certificate::decide(found.as_ref().and_then(|s| s.data.as_ref()), &names, now);
    let reason = match step {
        Step::RenewNow { reason } => Some(reason),
        Step::RenewSoon if renewal == Renewal::Ours => Some("two thirds of its life are over"),
        Step::RenewSoon | Step::Keep => None,
    };
    if let Some(reason) = reason {
        tracing::info!(reason, "a webhook certificate is made");
        found = renew(ctx, &secrets, found, &names, now).await?;
    }
    let material = found.and_then(|s| Material::read(s.data.as_ref()?)).ok_or_else(|| {
        Error::Certificate { name: format!("Secret {SECRET}"), problem: "it is not complete".into() }
    })?;
    identity.load(&material)?;
    let left = material.expires.duration_since(now);
    telemetry::certificate_left(Duration::try_from(left).unwrap_or_default());
    trust(ctx, &material.ca_pem).await?;
    identity.trusted();
    Ok(())
}

async fn renew(
    ctx: &Ctx,
    secrets: &Api<Secret>,
    before: Option<Secret>,
    names: &[String],
    now: Timestamp,
) -> Result<Option<Secret>> {
    let old = before.as_ref().and_then(|s| s.data.as_ref()).and_then(|data| data.get("ca.crt"));
    let old = old.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    let material = certificate::issue(names, old.as_deref(), now)?;
    let written = match before {
        // IMPORTANT: trusted before it is served, so that no call fails while replicas change over.
        Some(before) => {
            trust(ctx, &material.ca_pem).await?;
            let metadata = before.metadata.clone();
            let secret = Secret { metadata, ..secret(ctx, material.data()) };
            secrets.replace(SECRET, &PostParams::default(), &secret).await
        }
        None => secrets.create(&PostParams::default(), &secret(ctx, material.data())).await,
    };
    match written.map_err(Error::from) {
        Ok(secret) => Ok(Some(secret)),
        // Another replica was first: theirs counts.
        Err(error) if error.is_conflict() => Ok(secrets.get_opt(SECRET).await?),
        Err(error) => Err(error),
    }
}

fn secret(ctx: &Ctx, data: Data) -> Secret {
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "undb-operator".to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), FIELD_MANAGER.to_owned()),
    ]);
    let metadata = ObjectMeta {
        name: Some(SECRET.into()),
        namespace: Some(ctx.settings.namespace.clone()),
        labels: Some(labels),
        ..ObjectMeta::default()
    };
    Secret { metadata, data: Some(data), type_: Some("kubernetes.io/tls".into()), ..Secret::default() }
}

/// The name of our webhook's configuration.
pub fn configuration_name(namespace: &str) -> String {
    format!("undb-eviction-{namespace}")
}

/// Writes the bundle into the webhook's configuration. None installed: nobody calls us, which is fine.
async fn trust(ctx: &Ctx, ca_pem: &str) -> Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(ctx.client.clone());
    let name = configuration_name(&ctx.settings.namespace);
    let Some(found) = api.get_opt(&name).await? else {
        tracing::debug!(name, "no webhook is configured");
        return Ok(());
    };
    let bundle = k8s_openapi::ByteString(ca_pem.as_bytes().to_vec());
    let webhooks = found.webhooks.clone().unwrap_or_default();
    let mut operations = vec![serde_json::json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": found.resource_version(),
    })];
    for (at, webhook) in webhooks.iter().enumerate() {
        if webhook.client_config.ca_bundle.as_ref() != Some(&bundle) {
            let path = format!("/webhooks/{at}/clientConfig/caBundle");
            operations.push(serde_json::json!({"op": "add", "path": path, "value": bundle}));
        }
    }
    if operations.len() == 1 {
        return Ok(());
    }
    let patch = serde_json::from_value(serde_json::Value::Array(operations))
        .map_err(|e| Error::Fatal(format!("the patch of the caBundle: {e}")))?;
    api.patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    tracing::info!(name, "caBundle written");
    Ok(())
}
