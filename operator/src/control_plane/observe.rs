//! Reads the Pods of a ControlPlane: who is there, in what state, and what keeps it from running.

use super::roll::{Member, MemberPod};
use super::wish::Wish;
use crate::apply::api;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::workload::{
    ANNOTATION_TEMPLATE_HASH, CONTAINER, LABEL_COMPONENT, LABEL_CONTROL_PLANE, Role, kubelet_trouble, names,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use undb_spec::k8s::ControlPlane;

/// Of metadata, cluster control and access.
pub(super) async fn pods(ctx: &Ctx, namespace: &str, parent: &ControlPlane) -> Result<Vec<Pod>> {
    let selector =
        format!("{LABEL_CONTROL_PLANE}={},{LABEL_COMPONENT} in (meta, control, access)", parent.name_any());
    Ok(api::<Pod>(ctx, namespace).list(&ListParams::default().labels(&selector)).await?.items)
}

fn member_name(wish: &Wish, ordinal: u32) -> String {
    format!("{}-{ordinal}", names::service_name(&wish.instance.name, Role::Meta))
}

/// One for each ordinal, with or without a Pod.
pub(super) fn members(wish: &Wish, pods: &[Pod]) -> Vec<Member> {
    (0..wish.members)
        .map(|ordinal| {
            let name = member_name(wish, ordinal);
            let pod = pods.iter().find(|pod| pod.name_any() == name).map(member_pod);
            Member { name, pod }
        })
        .collect()
}

fn member_pod(pod: &Pod) -> MemberPod {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let containers = status.container_statuses.unwrap_or_default();
    let own = containers.iter().find(|container| container.name == CONTAINER);
    let state = own.and_then(|container| container.state.as_ref());
    let last = own.and_then(|container| container.last_state.as_ref());
    let ended = [state, last].into_iter().flatten().find_map(|state| state.terminated.as_ref());
    let is_running = state.is_some_and(|state| state.running.is_some());
    let scheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled");
    MemberPod {
        uid: pod.uid().unwrap_or_default(),
        template_hash: pod.annotations().get(ANNOTATION_TEMPLATE_HASH).cloned().unwrap_or_default(),
        is_ready: ready,
        is_ending: pod.metadata.deletion_timestamp.is_some(),
        is_stopped: state.is_some_and(|state| state.running.is_none() && state.waiting.is_some()),
        trouble: kubelet_trouble(pod).map(|(word, _)| word),
        exit_code: ended.filter(|_| !is_running).map(|ended| ended.exit_code),
        unschedulable: scheduled
            .filter(|c| c.status == "False")
            .map(|c| c.message.clone().unwrap_or_else(|| "it has no node".into())),
    }
}

/// Of the members, by ordinal.
pub(super) fn images(wish: &Wish, pods: &[Pod]) -> Vec<Option<String>> {
    let image = |pod: &Pod| {
        let containers = &pod.spec.as_ref()?.containers;
        containers.iter().find(|container| container.name == CONTAINER)?.image.clone()
    };
    (0..wish.members)
        .map(|ordinal| pods.iter().find(|pod| pod.name_any() == member_name(wish, ordinal)).and_then(image))
        .collect()
}
