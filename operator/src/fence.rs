//! The PodDisruptionBudget of a store: closed, unless the gate says that it may stop.
//!
//! ```text
//! closed  minAvailable 1, IfHealthyBudget   nobody evicts the Pod, ready or not
//! open    minAvailable 0, AlwaysAllow       anybody may
//! ```
//! Opening is a replace with the resource version that was read *before* the gate was asked. An operator
//! that slept between the answer and the write finds that somebody closed (and so wrote) the fence in
//! the meantime, and starts over. No lease ends before its fence is closed.
//!
//! Never: written by server-side apply, which would not notice.

use crate::apply::api;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};
use std::collections::BTreeMap;

/// The label that names a Pod's store, and by which a fence finds its Pod.
pub const STORE_LABEL: &str = "undb.io/store";

/// A fence as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// To be handed to [`open`].
    pub resource_version: String,
    /// May its Pod be evicted?
    pub is_open: bool,
}

/// A closed fence, to be created with the store. Its name is the store's.
pub fn closed(metadata: ObjectMeta) -> PodDisruptionBudget {
    let spec = Some(PodDisruptionBudgetSpec::default());
    let mut fence = PodDisruptionBudget { metadata, spec, status: None };
    shape(&mut fence, Gate::Closed);
    fence
}

/// What a fence says.
pub fn read(fence: &PodDisruptionBudget) -> Fence {
    Fence { resource_version: fence.resource_version().unwrap_or_default(), is_open: !is_closed(fence) }
}

/// Reads the fence of a store from the API server; none: there is none yet.
pub async fn state(ctx: &Ctx, namespace: &str, store: &str) -> Result<Option<Fence>> {
    Ok(api::<PodDisruptionBudget>(ctx, namespace).get_opt(store).await?.as_ref().map(read))
}

/// Lets the Pod of a store be evicted. `resource_version`: what [`state`] said before the gate was asked.
/// A conflict means that the answer of the gate may be of the past: ask again.
pub async fn open(ctx: &Ctx, namespace: &str, store: &str, resource_version: &str) -> Result<()> {
    let mut fence = existing(ctx, namespace, store).await?;
    shape(&mut fence, Gate::Open);
    fence.metadata.resource_version = Some(resource_version.to_owned());
    api::<PodDisruptionBudget>(ctx, namespace).replace(store, &PostParams::default(), &fence).await?;
    Ok(())
}

/// Lets nobody evict it any more. Always allowed; a fence that is gone is made by the reconcile.
pub async fn close(ctx: &Ctx, namespace: &str, store: &str) -> Result<()> {
    close_by(ctx, namespace, store, None).await
}

/// Closes it, and writes it even if it is closed already, once a mark: whoever read it before cannot open it
/// any more.
///
/// IMPORTANT: before a lease ends, once its phase is CATCHING_UP; the mark names that moment. A lease that was
/// granted and never used leaves its fence closed and unwritten; an operator that slept since the gate's yes
/// would open it by the version that it remembers, when another store may be down.
pub async fn seal(ctx: &Ctx, namespace: &str, store: &str, mark: &str) -> Result<()> {
    close_by(ctx, namespace, store, Some(mark)).await
}

/// On a fence: the mark of its last seal.
const SEALED: &str = "undb.io/sealed";

async fn close_by(ctx: &Ctx, namespace: &str, store: &str, mark: Option<&str>) -> Result<()> {
    let mut tries_left = CLOSE_TRIES;
    loop {
        let mut fence = match existing(ctx, namespace, store).await {
            Err(Error::Missing { .. }) => return Ok(()),
            found => found?,
        };
        let sealed = fence.annotations().get(SEALED).map(String::as_str);
        if is_closed(&fence) && (mark.is_none() || mark == sealed) {
            return Ok(());
        }
        if let Some(mark) = mark {
            fence.annotations_mut().insert(SEALED.into(), mark.to_owned());
        }
        shape(&mut fence, Gate::Closed);
        let replaced =
            api::<PodDisruptionBudget>(ctx, namespace).replace(store, &PostParams::default(), &fence).await;
        match replaced.map_err(Error::from) {
            Err(error) if error.is_conflict() && tries_left > 0 => tries_left -= 1,
            outcome => return outcome.map(|_| ()),
        }
    }
}

// Its status is written by a controller whenever the Pod's readiness changes.
const CLOSE_TRIES: u32 = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
}

fn shape(fence: &mut PodDisruptionBudget, gate: Gate) {
    let selector = selector(fence);
    let spec = fence.spec.get_or_insert_default();
    spec.selector = Some(selector);
    let (min_available, policy) = match gate {
        Gate::Closed => (1, "IfHealthyBudget"),
        // An unready Pod would stay refused under any other policy.
        Gate::Open => (0, "AlwaysAllow"),
    };
    spec.min_available = Some(IntOrString::Int(min_available));
    spec.max_unavailable = None;
    spec.unhealthy_pod_eviction_policy = Some(policy.into());
}

/// Exactly as we close it; anything else may let somebody through.
fn is_closed(fence: &PodDisruptionBudget) -> bool {
    fence.spec.as_ref().is_some_and(|spec| {
        spec.min_available == Some(IntOrString::Int(1))
            && spec.max_unavailable.is_none()
            && spec.unhealthy_pod_eviction_policy.as_deref() == Some("IfHealthyBudget")
            && spec.selector.as_ref() == Some(&selector(fence))
    })
}

/// The Pod of the store that it is named after, and nothing else: a budget that selects nobody guards nobody.
fn selector(fence: &PodDisruptionBudget) -> LabelSelector {
    let store = fence.metadata.name.clone().unwrap_or_default();
    LabelSelector {
        match_labels: Some(BTreeMap::from([(STORE_LABEL.to_owned(), store)])),
        ..LabelSelector::default()
    }
}

async fn existing(ctx: &Ctx, namespace: &str, store: &str) -> Result<PodDisruptionBudget> {
    let found = api::<PodDisruptionBudget>(ctx, namespace).get_opt(store).await?;
    found.ok_or_else(|| Error::Missing {
        what: "PodDisruptionBudget",
        name: format!("{namespace}/{store}"),
        remedy: "the next pass makes it".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_fence_is_closed_and_selects_one_store() {
        let metadata = ObjectMeta { name: Some("a-0".into()), ..ObjectMeta::default() };
        let mut fence = closed(metadata);
        assert!(!read(&fence).is_open);
        let selector = fence.spec.as_ref().and_then(|s| s.selector.clone()).expect("selector");
        assert_eq!(selector.match_labels.expect("labels").get(STORE_LABEL).map(String::as_str), Some("a-0"));
        shape(&mut fence, Gate::Open);
        assert!(read(&fence).is_open);
    }

    #[test]
    fn a_fence_that_somebody_edited_counts_as_open() {
        let mut fence = closed(ObjectMeta::default());
        fence.spec.as_mut().expect("spec").unhealthy_pod_eviction_policy = Some("AlwaysAllow".into());
        assert!(read(&fence).is_open);
        let mut fence = closed(ObjectMeta { name: Some("a-0".into()), ..ObjectMeta::default() });
        fence.spec.as_mut().expect("spec").selector = Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(STORE_LABEL.to_owned(), "b".to_owned())])),
            ..LabelSelector::default()
        });
        assert!(read(&fence).is_open, "it guards another Pod");
    }
}
