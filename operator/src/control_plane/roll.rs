//! Which member of metadata is restarted next, if any may be. Pure.
//!
//! One group, so counting is exact: with every member caught up, one may go. The leader goes last, and
//! nobody goes while a store is down on purpose, because the gate must be able to answer for it.

/// A member as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of its Pod.
    pub name: String,
    /// Its Pod; `None`: there is none now.
    pub pod: Option<MemberPod>,
}

/// Its Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPod {
    /// Which.
    pub uid: String,
    /// What it was made from.
    pub template_hash: String,
    /// Caught up.
    pub is_ready: bool,
    /// On its way out.
    pub is_ending: bool,
    /// True when its process is seen not to run: an image that cannot be had, a crash loop.
    pub is_stopped: bool,
    /// The word for what keeps it from running, if there is one.
    pub trouble: Option<String>,
    /// How its process ended last, if it is not running.
    pub exit_code: Option<i32>,
    /// Why it has no node: its volume may be on one that is gone.
    pub unschedulable: Option<String>,
}

/// What the control plane says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Ordinal of the leader.
    pub leader: Option<usize>,
    /// Leases of stores that are down on purpose.
    pub leases: usize,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All have the template.
    Done,
    /// This one may go, by eviction.
    Evict { name: String, uid: String },
    /// This one does not run and cannot be evicted while others do not either: deleting it harms nobody.
    Delete { name: String, uid: String },
    /// Not now.
    Wait { reason: &'static str, message: String },
}

fn wait(reason: &'static str, message: impl Into<String>) -> Step {
    Step::Wait { reason, message: message.into() }
}

/// `said`: `Err` when the control plane gave no answer.
pub fn next(members: &[Member], wanted: &str, said: &Result<Said, String>) -> Step {
    let outdated = |pod: &&MemberPod| pod.template_hash != wanted;
    let pods = || members.iter().filter_map(|member| Some((member, member.pod.as_ref()?)));
    if !pods().any(|(_, pod)| outdated(&pod)) {
        return Step::Done;
    }
    if let Some((member, _)) = pods().find(|(_, pod)| pod.is_ending) {
        return wait("WaitingForMember", format!("{} ends", member.name));
    }
    if let Some((member, pod)) = pods().find(|(_, pod)| outdated(pod) && pod.is_stopped) {
        return Step::Delete { name: member.name.clone(), uid: pod.uid.clone() };
    }
    let not_ready = members.iter().find(|member| !member.pod.as_ref().is_some_and(|pod| pod.is_ready));
    if let Some(member) = not_ready {
        // It does not serve, so taking it away leaves as many as there are.
        return match member.pod.as_ref().filter(|pod| pod.template_hash != wanted) {
            Some(pod) => Step::Evict { name: member.name.clone(), uid: pod.uid.clone() },
            None => wait("WaitingForMember", format!("{} has not caught up yet", member.name)),
        };
    }
    let said = match said {
        Ok(said) => said,
        Err(cause) => {
            return wait(
                "ControlPlaneUnreachable",
                format!(
                    "no member is restarted while nobody can tell whether stores are down on purpose: {cause}"
                ),
            );
        }
    };
    if said.leases > 0 {
        return wait(
            "WaitingForStores",
            format!("{} leases of stores that may be stopped are held", said.leases),
        );
    }
    let Some(leader) = said.leader else {
        return wait("WaitingForLeader", "metadata has no leader now");
    };
    let candidates = members.iter().enumerate().rev();
    let mut candidates =
        candidates.filter_map(|(i, member)| Some((i, member, member.pod.as_ref().filter(outdated)?)));
    let follower = candidates.clone().find(|(i, _, _)| *i != leader);
    match follower.or_else(|| candidates.next()) {
        Some((_, member, pod)) => Step::Evict { name: member.name.clone(), uid: pod.uid.clone() },
        None => Step::Done,
    }
}
