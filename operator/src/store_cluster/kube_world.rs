//! The hands of a pass on a real cluster.

use super::build::{self, Spread};
use super::observe::{Children, MARK, ZONE, pod_seen};
use super::wish::Wish;
use super::world::{Offline, World};
use crate::apply::{Object, api};
use crate::control::ControlApi;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::fence::{self, Fence};
use crate::workload::names;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use undb_spec::k8s::{Store, StoreCluster};

/// A fence that was just opened refuses until a controller has counted it anew, which takes moments. The
/// gate's yes is good for seconds; after these tries it is asked again.
const EVICT_TRIES: u32 = 8;
const EVICT_PAUSE: Duration = Duration::from_millis(250);

/// One StoreCluster, for one pass.
pub struct KubeWorld<'a> {
    pub ctx: &'a Ctx,
    pub namespace: &'a str,
    pub parent: &'a StoreCluster,
    pub wish: &'a Wish,
    pub children: &'a Children,
    pub control: Option<Arc<dyn ControlApi>>,
    pub config_map: &'a str,
    pub spread: Spread<'a>,
}

impl KubeWorld<'_> {
    fn store(&self, name: &str) -> Result<&Store> {
        self.children.stores.iter().find(|s| s.name_any() == name).ok_or_else(|| Error::Missing {
            what: "Store",
            name: format!("{}/{name}", self.namespace),
            remedy: "the next pass looks again".into(),
        })
    }

    /// Creates; an object that is there already is as good.
    async fn create<K: Object>(&self, object: &K) -> Result<()> {
        let params = PostParams { field_manager: Some(crate::apply::FIELD_MANAGER.into()), dry_run: false };
        match api::<K>(self.ctx, self.namespace).create(&params, object).await.map_err(Error::from) {
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    async fn delete<K: Object>(&self, name: &str, uid: Option<String>) -> Result<()> {
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match api::<K>(self.ctx, self.namespace).delete(name, &params).await.map_err(Error::from) {
            // Another one of the same name is not the one that was meant.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Changes fields of exactly this Store.
    async fn patch_store(&self, name: &str, mut body: Value) -> Result<()> {
        body["metadata"]["uid"] = json!(self.store(name)?.uid());
        let params =
            PatchParams { field_manager: Some(crate::apply::FIELD_MANAGER.into()), ..Default::default() };
        api::<Store>(self.ctx, self.namespace).patch(name, &params, &Patch::Merge(&body)).await?;
        Ok(())
    }

    async fn live_pod(&self, store: &str, pod_uid: &str) -> Result<Option<Pod>> {
        let pod = api::<Pod>(self.ctx, self.namespace).get_opt(store).await?;
        Ok(pod.filter(|p| p.uid().as_deref() == Some(pod_uid)))
    }
}

#[async_trait]
impl World for KubeWorld<'_> {
    fn control(&self) -> Option<&dyn ControlApi> {
        self.control.as_deref()
    }

    async fn create_store(&self, ordinal: u32, replaces: Option<&str>) -> Result<()> {
        let next = self.parent.status.as_ref().map_or(0, |s| s.next_ordinal).max(ordinal + 1);
        let body = json!({"metadata": {"uid": self.parent.uid()}, "status": {"nextOrdinal": next}});
        let parents = api::<StoreCluster>(self.ctx, self.namespace);
        parents.patch_status(&self.parent.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await?;
        self.create(&build::store(self.parent, self.wish, ordinal, replaces)?).await
    }

    async fn set_template(&self, store: &str) -> Result<()> {
        self.patch_store(store, json!({"spec": {"templateHash": self.wish.template_hash}})).await
    }

    async fn set_offline(&self, store: &str, wish: Offline) -> Result<()> {
        let (is_offline, mark) = match wish {
            Offline::Take => (true, json!("victim")),
            Offline::BringBack => (false, json!("cancelled")),
            Offline::Forget => (false, Value::Null),
        };
        let body = json!({"metadata": {"annotations": {MARK: mark}}, "spec": {"offline": is_offline}});
        self.patch_store(store, body).await
    }

    async fn delete_store(&self, store: &str) -> Result<()> {
        let uid = self.store(store)?.uid();
        self.delete::<Store>(store, uid).await
    }

    async fn create_claim(&self, store: &str) -> Result<()> {
        self.create(&build::claim(self.parent, self.store(store)?, self.wish)?).await
    }

    async fn delete_claim(&self, store: &str) -> Result<()> {
        let Some(claim) = self.children.claims.get(store) else { return Ok(()) };
        self.delete::<PersistentVolumeClaim>(&claim.name_any(), claim.uid()).await
    }

    async fn create_fence(&self, store: &str) -> Result<()> {
        self.create::<PodDisruptionBudget>(&build::fence(self.store(store)?, self.wish)?).await
    }

    async fn fence(&self, store: &str) -> Result<Option<Fence>> {
        fence::state(self.ctx, self.namespace, store).await
    }

    async fn open_fence(&self, store: &str, resource_version: &str) -> Result<()> {
        fence::open(self.ctx, self.namespace, store, resource_version).await
    }

    async fn close_fence(&self, store: &str) -> Result<()> {
        fence::close(self.ctx, self.namespace, store).await
    }

    async fn seal_fence(&self, store: &str, mark: &str) -> Result<()> {
        fence::seal(self.ctx, self.namespace, store, mark).await
    }

    async fn create_pod(&self, store: &str) -> Result<()> {
        self.create(&build::pod(self.store(store)?, self.wish, self.config_map, self.spread)?).await
    }

    async fn write_zone(&self, store: &str, pod_uid: &str, zone: &str) -> Result<()> {
        let body = json!({"metadata": {"uid": pod_uid, "annotations": {ZONE: zone}}});
        let pods = api::<Pod>(self.ctx, self.namespace);
        match pods.patch(store, &PatchParams::default(), &Patch::Merge(&body)).await.map_err(Error::from) {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    async fn pod_runs(&self, store: &str, pod_uid: &str) -> Result<Option<bool>> {
        let pod = self.live_pod(store, pod_uid).await?.map(|p| pod_seen(&p));
        Ok(pod.filter(|p| !p.is_terminating).map(|p| p.may_run()))
    }

    async fn evict(&self, store: &str, pod_uid: &str) -> Result<()> {
        let delete = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(pod_uid.into()), resource_version: None }),
            ..DeleteParams::default()
        };
        let params = EvictParams { delete_options: Some(delete), post_options: PostParams::default() };
        let mut tries_left = EVICT_TRIES;
        loop {
            match api::<Pod>(self.ctx, self.namespace).evict(store, &params).await.map_err(Error::from) {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_too_many_requests() && tries_left > 0 => tries_left -= 1,
                outcome => return outcome.map(|_| ()),
            }
            tokio::time::sleep(EVICT_PAUSE).await;
        }
    }

    async fn delete_pod(&self, store: &str, pod_uid: &str) -> Result<()> {
        self.delete::<Pod>(store, Some(pod_uid.into())).await
    }

    fn address(&self, store: &str) -> String {
        names::store_address(store, &self.parent.name_any(), self.namespace)
    }
}
