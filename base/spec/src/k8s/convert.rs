//! Our small structs to those of Kubernetes.

use crate::{PodTemplate, ResourcesSpec};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

impl From<&ResourcesSpec> for ResourceRequirements {
    fn from(spec: &ResourcesSpec) -> Self {
        let amounts = |from: &BTreeMap<String, crate::Amount>| {
            let all: BTreeMap<_, _> = from.iter().map(|(k, v)| (k.clone(), Quantity(v.0.clone()))).collect();
            (!all.is_empty()).then_some(all)
        };
        Self { requests: amounts(&spec.requests), limits: amounts(&spec.limits), ..Self::default() }
    }
}

impl PodTemplate {
    /// As a partial template of Kubernetes, or what is wrong with it. A Pod's `containers` is a
    /// required field there; here it may be left out.
    pub fn partial(&self) -> Result<PodTemplateSpec, String> {
        let mut spec = self.spec.clone();
        spec.entry("containers").or_insert_with(|| serde_json::json!([]));
        let template = serde_json::json!({ "metadata": self.metadata, "spec": spec });
        serde_json::from_value(template).map_err(|e| format!("podTemplate: {e}"))
    }
}
