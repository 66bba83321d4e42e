//! The envelope that every object has: apiVersion, kind, metadata, spec, and a status on the way out.

use crate::check;
use crate::{SpecError, StoreCluster, Table, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The one version of the API so far.
pub const API_VERSION: &str = "undb.io/v1alpha1";

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest<S> {
    /// `undb.io/v1alpha1`.
    pub api_version: String,
    /// `StoreCluster` or `Table`.
    pub kind: String,
    /// What it is called.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: S,
    /// What is: filled in by the servers, ignored when applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// The name, and what tools attach to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// 1 to 63 of a-z, 0-9 and `-`, beginning and ending with a letter or digit.
    pub name: String,
    /// For people and tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For people and tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Kubernetes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Kubernetes only, as are the rest: present in what `kubectl get -o yaml` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizers: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_references: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<Value>,
}

impl<S> Manifest<S> {
    /// An object with this name and nothing else around its spec.
    pub fn new(kind: &str, name: &str, spec: S) -> Self {
        Self {
            api_version: API_VERSION.into(),
            kind: kind.into(),
            metadata: Metadata { name: name.into(), ..Metadata::default() },
            spec,
            status: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

/// An object of any kind. In JSON it is the object itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(
    clippy::large_enum_variant,
    reason = "objects are few and short-lived; a box would be in every match"
)]
pub enum Object {
    /// A class of stores.
    StoreCluster(StoreCluster),
    /// A table.
    Table(Table),
}

/// An object that keeps the rules, and what its writer should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The object.
    pub object: Object,
    /// One line each, with the field's path.
    pub warnings: Vec<String>,
    /// Where it begins in its file.
    pub line: usize,
}

impl Object {
    /// `StoreCluster` or `Table`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::StoreCluster(_) => StoreCluster::KIND,
            Self::Table(_) => Table::KIND,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::StoreCluster(object) => object.name(),
            Self::Table(object) => object.name(),
        }
    }

    /// Its rules that do not hold; none: it is fine.
    pub fn violations(&self) -> Vec<Violation> {
        check::violations(self)
    }

    /// What its writer should know: fields without effect, features that are not there yet.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// As one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("string keys and finite numbers only")
    }

    /// As YAML.
    pub fn to_yaml(&self) -> Result<String, SpecError> {
        serde_yaml::to_string(self).map_err(|e| SpecError::plain(&e.to_string()))
    }
}
