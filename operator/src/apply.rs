//! Writes: server-side apply with one field manager, owners, hashes, and a status only when it changed.

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Who owns the fields that we write.
pub const FIELD_MANAGER: &str = "undb-operator";
/// On children: the hash of what was applied, so that what has not changed is not written.
pub const APPLIED_HASH: &str = "undb.io/applied-hash";

/// Namespaced objects of a type that is known when compiling.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}
impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// The objects of a kind in a namespace, read and written without a cache.
pub fn api<K: Object>(ctx: &Ctx, namespace: &str) -> Api<K> {
    Api::namespaced(ctx.client.clone(), namespace)
}

/// Where an object is; ours all have a namespace.
pub fn namespace<K: Resource>(object: &K) -> Result<String> {
    object.meta().namespace.clone().ok_or_else(|| Error::invalid("metadata.namespace", "is missing"))
}

/// Makes the object what is given, and takes over the fields that it names.
pub async fn server_side_apply<K: Object>(ctx: &Ctx, object: &K) -> Result<K> {
    let mut body = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    body["apiVersion"] = Value::String(K::api_version(&()).into_owned());
    body["kind"] = Value::String(K::kind(&()).into_owned());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    Ok(api::<K>(ctx, &namespace(object)?).patch(&object.name_any(), &params, &patch).await?)
}

/// The same, but nothing is written when `existing` was made from the same content.
pub async fn apply_if_changed<K: Object>(ctx: &Ctx, object: K, existing: Option<&K>) -> Result<()> {
    let (object, is_new) = stamped(object, existing);
    if is_new {
        server_side_apply(ctx, &object).await?;
    }
    Ok(())
}

/// The object with the hash of its content, and whether `existing` has another one.
pub fn stamped<K: Object>(mut object: K, existing: Option<&K>) -> (K, bool) {
    let wanted = hash(&object);
    let found = existing.and_then(|e| e.annotations().get(APPLIED_HASH));
    let is_new = found != Some(&wanted);
    object.annotations_mut().insert(APPLIED_HASH.into(), wanted);
    (object, is_new)
}

/// The controlling owner: children go with it, and its controller hears of them.
pub fn owner_reference<K: Resource<DynamicType = ()>>(parent: &K) -> Result<OwnerReference> {
    parent.controller_owner_ref(&()).ok_or_else(|| {
        Error::invalid("metadata.uid", "is missing: the object was not read from the API server")
    })
}

/// 16 hexadecimal digits of a content; the order of an object's fields does not matter.
pub fn hash(content: &impl Serialize) -> String {
    // A Value keeps its fields sorted.
    let value = serde_json::to_value(content).unwrap_or(Value::Null);
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(value.to_string().as_bytes()))
}

/// Writes the status if it differs from what the object was read with. True: it was written.
pub async fn patch_status<K: Object, S: Serialize>(
    ctx: &Ctx,
    object: &K,
    current: Option<&S>,
    status: &S,
) -> Result<bool> {
    let wanted = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    let found = current.map(serde_json::to_value).transpose().map_err(kube::Error::SerdeError)?;
    if found.as_ref() == Some(&wanted) {
        return Ok(false);
    }
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        // The uid, so that an object of the same name that came later does not get it.
        "metadata": {"name": object.name_any(), "uid": object.uid()},
        "status": wanted,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api = api::<K>(ctx, &namespace(object)?);
    api.patch_status(&object.name_any(), &params, &Patch::Apply(&body)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn config_map(key: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.meta_mut().name = Some("a".into());
        object.data = Some([(key.to_owned(), "1".to_owned())].into());
        object
    }

    #[test]
    fn what_was_applied_before_is_not_applied_again() {
        let (first, is_new) = stamped(config_map("a"), None);
        assert!(is_new);
        assert!(!stamped(config_map("a"), Some(&first)).1);
        assert!(stamped(config_map("b"), Some(&first)).1);
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_of_fields() {
        assert_eq!(hash(&json!({"a": 1, "b": 2})), hash(&json!({"b": 2, "a": 1})));
        assert_ne!(hash(&json!({"a": 1})), hash(&json!({"a": 2})));
    }
}
