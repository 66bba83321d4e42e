//! The Pod of a role, before a controller gives it a name and a place.

use super::merge::{TemplateError, merge, parse_resources};
use super::names::{ADMIN_PORT, HTTP_PORT, Instance, Role, labels};
use super::{ANNOTATION_TEMPLATE_HASH, LABEL_STORE};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapProjection, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HTTPGetAction, KeyToPath, Lifecycle, LifecycleHandler, ObjectFieldSelector,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ProjectedVolumeSource, SeccompProfile, SecretKeySelector, SecretProjection, SecurityContext, SleepAction,
    Toleration, TopologySpreadConstraint, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use std::collections::BTreeMap;

/// The container that every Pod has.
pub const CONTAINER: &str = "undb";
/// The folder of the files that a role reads.
pub const FILES_DIR: &str = "/etc/undb";
/// The folder of what a role keeps.
pub const DATA_DIR: &str = "/var/lib/undb";
/// The volume of that folder.
pub const DATA_VOLUME: &str = "data";
const FILES_VOLUME: &str = "files";
const TMP_VOLUME: &str = "tmp";
const USER_ID: i64 = 65532;
/// How long a store may take to hand its leaders over and flush. Half of it is what the deletion of a
/// namespace waits before it looks again.
pub const STORE_GRACE_SECONDS: i64 = 45;
const OTHER_GRACE_SECONDS: i64 = 40;
/// Until every load balancer has noticed that a Pod ends.
const DEREGISTER_SECONDS: i64 = 3;

/// Where a role keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nowhere.
    None,
    /// In this claim.
    Claim(String),
    /// In a claim that a StatefulSet makes from its template `data`.
    Template,
}

/// What a Pod of a role is made from.
#[derive(Clone, Debug)]
pub struct RolePod<'a> {
    /// Whose it is.
    pub instance: &'a Instance,
    /// What it runs.
    pub role: Role,
    /// The resolved image.
    pub image: &'a str,
    /// The ConfigMap with `config.toml`.
    pub config_map: &'a str,
    /// The Secret with the token.
    pub token_secret: &'a str,
    /// The Secret with tls.crt, tls.key and ca.crt; `None`: plain.
    pub tls_secret: Option<&'a str>,
    /// CPU and memory, as the user wrote them.
    pub resources: Option<&'a Value>,
    /// Where it keeps data.
    pub data: Data,
    /// What the user adds.
    pub pod_template: Option<&'a Value>,
    /// `restart_hash` of the wishes.
    pub template_hash: &'a str,
    /// The Store that it belongs to, if it is one.
    pub store: Option<&'a str>,
}

impl RolePod<'_> {
    /// The Pod, the user's wishes merged in.
    pub fn template(&self) -> Result<PodTemplateSpec, TemplateError> {
        merge(self.own()?, self.pod_template)
    }

    fn own(&self) -> Result<PodTemplateSpec, TemplateError> {
        let mut labels = labels(self.instance, self.role);
        if let Some(store) = self.store {
            labels.insert(LABEL_STORE.into(), store.into());
        }
        let annotations = BTreeMap::from([
            (ANNOTATION_TEMPLATE_HASH.to_string(), self.template_hash.to_string()),
            ("kubectl.kubernetes.io/default-container".into(), CONTAINER.into()),
            ("prometheus.io/scrape".into(), "true".into()),
            ("prometheus.io/port".into(), ADMIN_PORT.to_string()),
        ]);
        let metadata =
            ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() };
        Ok(PodTemplateSpec { metadata: Some(metadata), spec: Some(self.spec()?) })
    }

    fn spec(&self) -> Result<PodSpec, TemplateError> {
        let keeps_data = self.data != Data::None;
        let grace = if self.role == Role::Store { STORE_GRACE_SECONDS } else { OTHER_GRACE_SECONDS };
        Ok(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            containers: vec![self.container()?],
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER_ID),
                run_as_group: Some(USER_ID),
                fs_group: Some(USER_ID),
                // A volume of many files is not walked again at each start.
                fs_group_change_policy: Some("OnRootMismatch".into()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".into(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            termination_grace_period_seconds: Some(grace),
            tolerations: keeps_data.then(tolerate_lost_nodes),
            topology_spread_constraints: (self.role != Role::Store).then(|| self.spread()),
            volumes: Some(self.volumes()),
            ..PodSpec::default()
        })
    }

    /// `undb run ROLE`, with its ports, probes and files.
    fn container(&self) -> Result<Container, TemplateError> {
        let draining = !matches!(self.role, Role::Store | Role::Meta);
        let sleep = LifecycleHandler {
            sleep: Some(SleepAction { seconds: DEREGISTER_SECONDS }),
            ..LifecycleHandler::default()
        };
        Ok(Container {
            name: CONTAINER.into(),
            image: Some(self.image.into()),
            args: Some(self.arguments()),
            env: Some(self.env()),
            ports: Some(self.ports()),
            startup_probe: Some(probe("/healthz", Probing { period: 2, failures: 150 })),
            readiness_probe: Some(probe("/readyz", Probing { period: 2, failures: 2 })),
            lifecycle: draining.then(|| Lifecycle { pre_stop: Some(sleep), ..Lifecycle::default() }),
            resources: self.resources.map(parse_resources).transpose()?,
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                run_as_non_root: Some(true),
                capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
                ..SecurityContext::default()
            }),
            volume_mounts: Some(self.mounts()),
            ..Container::default()
        })
    }

    fn arguments(&self) -> Vec<String> {
        let config = format!("{FILES_DIR}/config.toml");
        let admin = format!("0.0.0.0:{ADMIN_PORT}");
        let text =
            ["run", self.role.argument(), "--config", &config, "--admin", &admin, "--log-format", "json"];
        text.map(String::from).to_vec()
    }

    /// What configuration files refer to as `${NAME}`.
    fn env(&self) -> Vec<EnvVar> {
        let mut env = vec![
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_IP", "status.podIP"),
        ];
        match self.role {
            Role::Meta => {
                env.push(field("POD_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"));
            }
            Role::Store => env.push(self.token()),
            _ => {}
        }
        env
    }

    fn token(&self) -> EnvVar {
        let key = SecretKeySelector { name: self.token_secret.into(), key: "token".into(), optional: None };
        EnvVar {
            name: "UNDB_TOKEN".into(),
            value_from: Some(EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() }),
            ..EnvVar::default()
        }
    }

    fn ports(&self) -> Vec<ContainerPort> {
        let mut ports = vec![port(self.role.port_name(), self.role.port()), port("admin", ADMIN_PORT)];
        if self.role == Role::Proxy {
            ports.push(port("http", HTTP_PORT));
        }
        ports
    }

    fn mounts(&self) -> Vec<VolumeMount> {
        let mount = |name: &str, path: &str, read_only: Option<bool>| VolumeMount {
            name: name.into(),
            mount_path: path.into(),
            read_only,
            ..VolumeMount::default()
        };
        let mut mounts = vec![mount(FILES_VOLUME, FILES_DIR, Some(true)), mount(TMP_VOLUME, "/tmp", None)];
        if self.data != Data::None {
            mounts.push(mount(DATA_VOLUME, DATA_DIR, None));
        }
        mounts
    }

    fn volumes(&self) -> Vec<Volume> {
        let tmp = EmptyDirVolumeSource {
            size_limit: Some(Quantity("64Mi".into())),
            ..EmptyDirVolumeSource::default()
        };
        let mut volumes =
            vec![self.files(), Volume { name: TMP_VOLUME.into(), empty_dir: Some(tmp), ..Volume::default() }];
        if let Data::Claim(claim) = &self.data {
            let source = PersistentVolumeClaimVolumeSource { claim_name: claim.clone(), read_only: None };
            volumes.push(Volume {
                name: DATA_VOLUME.into(),
                persistent_volume_claim: Some(source),
                ..Volume::default()
            });
        }
        volumes
    }

    /// All files in one volume: renewed certificates arrive in it without a restart.
    fn files(&self) -> Volume {
        let item = |key: &str, path: &str| KeyToPath { key: key.into(), path: path.into(), mode: None };
        let secret = |name: &str, items: Vec<KeyToPath>| VolumeProjection {
            secret: Some(SecretProjection { name: name.into(), items: Some(items), optional: None }),
            ..VolumeProjection::default()
        };
        let config = ConfigMapProjection {
            name: self.config_map.into(),
            items: Some(vec![item("config.toml", "config.toml")]),
            optional: None,
        };
        let mut sources = vec![
            VolumeProjection { config_map: Some(config), ..VolumeProjection::default() },
            secret(self.token_secret, vec![item("token", "token")]),
        ];
        if let Some(tls) = self.tls_secret {
            let items = ["tls.crt", "tls.key", "ca.crt"].map(|file| item(file, &format!("tls/{file}")));
            sources.push(secret(tls, items.to_vec()));
        }
        let projected = ProjectedVolumeSource { default_mode: Some(0o440), sources: Some(sources) };
        Volume { name: FILES_VOLUME.into(), projected: Some(projected), ..Volume::default() }
    }

    /// Over machines and zones as far as there are any: it never keeps a Pod from running.
    fn spread(&self) -> Vec<TopologySpreadConstraint> {
        let selector = LabelSelector {
            match_labels: Some(super::selector(self.instance, self.role)),
            ..LabelSelector::default()
        };
        let keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];
        keys.map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.into(),
            when_unsatisfiable: "ScheduleAnyway".into(),
            label_selector: Some(selector.clone()),
            ..TopologySpreadConstraint::default()
        })
        .to_vec()
    }
}

/// Eviction by taint is a plain delete that goes round every budget, so these Pods are not subject to
/// it: what becomes of them is decided with the gate.
fn tolerate_lost_nodes() -> Vec<Toleration> {
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .map(|key| Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some("NoExecute".into()),
            ..Toleration::default()
        })
        .to_vec()
}

struct Probing {
    period: i32,
    failures: i32,
}

fn probe(path: &str, probing: Probing) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::Int(ADMIN_PORT),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(probing.period),
        timeout_seconds: Some(2),
        failure_threshold: Some(probing.failures),
        ..Probe::default()
    }
}

fn field(name: &str, path: &str) -> EnvVar {
    let source = ObjectFieldSelector { field_path: path.into(), api_version: None };
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource { field_ref: Some(source), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort { name: Some(name.into()), container_port: number, ..ContainerPort::default() }
}
