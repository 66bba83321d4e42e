//! What is reported. Pure; kstatus-clean: Reconciling while something is under way, Stalled when only a
//! person can go on, Ready when all that is wanted is there.

use super::roll::{Member, Step};
use super::wish::Wish;
use crate::conditions::{self, Said};
use crate::workload::{DATA_VOLUME, KUBELET_STALLING, Progress, Role, names};
use undb_spec::k8s::{ControlPlaneStatus, MemberStatus};

/// What a pass came to.
#[derive(Debug)]
pub struct Pass<'a> {
    /// Of the spec.
    pub generation: Option<i64>,
    /// What is wanted.
    pub wish: &'a Wish,
    /// The id of the cluster.
    pub cluster_id: &'a str,
    /// The members as they were seen.
    pub members: &'a [Member],
    /// Their images, by ordinal.
    pub images: Vec<Option<String>>,
    /// Ordinal of the leader, if somebody could tell.
    pub leader: Option<usize>,
    /// What is next for the members.
    pub step: &'a Step,
    /// Of cluster control.
    pub control: Progress,
    /// Of access.
    pub access: Progress,
    /// What keeps a Pod of a part from running: its name, a word, a sentence.
    pub trouble: Option<(String, String)>,
    /// Whether the operator may change anything.
    pub is_paused: bool,
    /// Now.
    pub now_ms: u64,
}

/// How a role says that what is on its disk is damaged.
const EXIT_DAMAGED: i32 = 12;

/// The status; `before`: as it was read.
pub fn status(pass: &Pass<'_>, before: &ControlPlaneStatus) -> ControlPlaneStatus {
    let instance = &pass.wish.instance;
    let is_ready = |member: &Member| member.pod.as_ref().is_some_and(|pod| pod.is_ready);
    let members = pass.members.iter().enumerate().map(|(ordinal, member)| MemberStatus {
        name: member.name.clone(),
        member_id: ordinal as u64 + 1,
        ready: is_ready(member),
        leader: pass.leader == Some(ordinal),
        image: pass.images.get(ordinal).cloned().flatten(),
    });
    let ready_members = pass.members.iter().filter(|member| is_ready(member)).count();
    let mut status = ControlPlaneStatus {
        observed_generation: pass.generation,
        image: Some(pass.wish.image.clone()),
        cluster_id: Some(pass.cluster_id.into()),
        endpoint: Some(names::access_endpoint(&instance.name, &instance.namespace)),
        client_secret: Some(names::client_secret(&instance.name)),
        ready_members: u32::try_from(ready_members).unwrap_or(u32::MAX),
        members: members.collect(),
        control_ready_replicas: pass.control.ready,
        access_ready_replicas: pass.access.ready,
        version: before.version.clone(),
        conditions: before.conditions.clone(),
    };
    if missing(pass, ready_members).is_none() && *pass.step == Step::Done && !pass.is_paused {
        status.version = Some(version_of(&pass.wish.image).to_owned());
    }
    for said in said(pass, ready_members) {
        conditions::set(&mut status.conditions, said, pass.generation, pass.now_ms);
    }
    status
}

/// The release in an image's name: its tag, else its digest.
fn version_of(image: &str) -> &str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash is that of a registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map(|(_, tag)| tag).or(digest).unwrap_or("latest")
}

/// A member that does not come back by itself, and what a person does about it.
fn degraded(pass: &Pass<'_>, ready_members: usize) -> Said {
    let broken = pass.members.iter().find_map(|member| {
        let pod = member.pod.as_ref().filter(|pod| !pod.is_ready && !pod.is_ending)?;
        let name = &member.name;
        if pod.exit_code == Some(EXIT_DAMAGED) {
            let what = format!("{name} does not start: its data on volume {DATA_VOLUME}-{name} is damaged");
            return Some(("MemberDamaged", what));
        }
        let why = pod.unschedulable.as_ref()?;
        Some((
            "MemberHasNoNode",
            format!("{name} has no node ({why}); volume {DATA_VOLUME}-{name} may be gone"),
        ))
    });
    let Some((reason, what)) = broken else {
        return Said::new("Degraded", false, "AsExpected", "");
    };
    let members = pass.wish.members;
    let message = format!(
        "{what}. {ready_members} of {members} members serve. Bring the volume back from a snapshot, or its node; an empty volume must not take its place, because the member has given votes"
    );
    Said::new("Degraded", true, reason, message)
}

fn said(pass: &Pass<'_>, ready_members: usize) -> [Said; 4] {
    let missing = missing(pass, ready_members);
    let trouble = pass.trouble.as_ref().filter(|(word, _)| KUBELET_STALLING.contains(&word.as_str()));
    let serves =
        ready_members > pass.wish.members as usize / 2 && pass.control.ready > 0 && pass.access.ready > 0;
    let is_done = missing.is_none() && *pass.step == Step::Done;
    let (reason, message) = match (&missing, pass.step) {
        _ if pass.is_paused => ("ReconcilePaused", "spec.paused is true: nothing is changed".to_string()),
        (None, Step::Done) => ("Reconciled", "all members and processes are ready".into()),
        (_, Step::Wait { reason, message }) => (*reason, message.clone()),
        (_, Step::Evict { name, .. } | Step::Delete { name, .. }) => {
            ("RollingMetadata", format!("{name} is restarted with the new template"))
        }
        (Some(what), Step::Done) => ("Progressing", what.clone()),
    };
    let stalled = match trouble {
        Some((word, sentence)) => Said::new("Stalled", true, word.clone(), sentence.clone()),
        None => Said::new("Stalled", false, "NotStalled", ""),
    };
    // One that is being restarted leaves a majority: that is no loss of service.
    let ready = if is_done || (serves && trouble.is_none() && *pass.step != Step::Done) {
        Said::new("Ready", true, if is_done { "Reconciled" } else { reason }, message.clone())
    } else {
        let (reason, message) =
            trouble.map_or((reason, message.clone()), |(word, text)| (word.as_str(), text.clone()));
        Said::new("Ready", false, reason, message)
    };
    let goes_on = !is_done && trouble.is_none() && !pass.is_paused;
    let degraded = degraded(pass, ready_members);
    [ready, Said::new("Reconciling", goes_on, reason, message), stalled, degraded]
}

/// What is not there yet, in order.
fn missing(pass: &Pass<'_>, ready_members: usize) -> Option<String> {
    let members = pass.wish.members as usize;
    if ready_members < members {
        return Some(format!("{ready_members} of {members} members of metadata are ready"));
    }
    let parts = [(Role::Control, pass.control), (Role::Access, pass.access)];
    let part = parts.into_iter().find(|(_, progress)| !progress.is_done)?;
    Some(format!("{} is not complete yet: {} ready", part.0.component(), part.1.ready))
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn the_release_is_the_tag_of_the_image() {
        assert_eq!(version_of("registry:5000/a/undb:1.2"), "1.2");
        assert_eq!(version_of("undb:1.2@sha256:ab"), "1.2");
        assert_eq!(version_of("registry:5000/undb@sha256:ab"), "sha256:ab");
        assert_eq!(version_of("registry:5000/undb"), "latest");
    }
}
