//! What is due, from what there is and what time it is. Pure.

use super::authority::{Authority, Leaf};

/// Time for the files of all Pods to follow their Secret: a kubelet takes up to two minutes. Clients
/// that copied the bundle need longer, hence an hour.
pub const SPREAD_SECONDS: u64 = 3600;

/// The authorities that are trusted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    /// Signs.
    pub current: Authority,
    /// Signs soon, and since when it is trusted.
    pub next: Option<(Authority, u64)>,
    /// Has signed, its certificate, and since when it does not any more.
    pub previous: Option<(String, u64)>,
    /// The user's wish that the last rotation was for.
    pub rotated_for: String,
}

impl Authorities {
    /// All certificates, the one that signs first.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|(authority, _)| authority.cert_pem.as_str());
        let previous = self.previous.iter().map(|(pem, _)| pem.as_str());
        let all = std::iter::once(self.current.cert_pem.as_str()).chain(next).chain(previous);
        all.map(|pem| format!("{}\n", pem.trim())).collect()
    }
}

/// The next step of the authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// There is none: make the first.
    Make,
    /// Make the successor, which is trusted from now on.
    Begin,
    /// The successor signs from now on.
    Promote,
    /// Forget the predecessor.
    Forget,
}

/// What is due. `wish`: the user's text that asks for a rotation when it changes. `leaf`: the
/// certificate in use.
pub fn decide(found: Option<&Authorities>, leaf: Option<&Leaf>, wish: &str, now: u64) -> Due {
    let Some(found) = found else { return Due::Make };
    if let Some((next, since)) = &found.next {
        // A successor without its key can only be replaced.
        if next.key_pem.is_none() {
            return Due::Begin;
        }
        let has_spread = now >= since.saturating_add(SPREAD_SECONDS);
        // With an authority that has ended, waiting helps nobody.
        return if has_spread || now >= found.current.expires { Due::Promote } else { Due::Nothing };
    }
    if let Some((_, since)) = &found.previous {
        let is_used = leaf.is_none_or(|leaf| leaf.authority != found.current.id());
        let has_spread = now >= since.saturating_add(SPREAD_SECONDS);
        return if has_spread && !is_used { Due::Forget } else { Due::Nothing };
    }
    let life = found.current.expires.saturating_sub(found.current.issued);
    let is_old = now >= found.current.issued.saturating_add(life / 3 * 2);
    if found.current.key_pem.is_none() || is_old || wish != found.rotated_for {
        return Due::Begin;
    }
    Due::Nothing
}

/// Whether a certificate is to be made anew: `Some` says why.
pub fn leaf_is_due(
    leaf: Option<&Leaf>,
    current: &Authority,
    names: &[String],
    now: u64,
) -> Option<&'static str> {
    // Without its key nothing can be signed.
    current.key_pem.as_ref()?;
    let Some(leaf) = leaf else { return Some("there is none, or it cannot be read") };
    if leaf.authority != current.id() {
        return Some("another authority signs");
    }
    if leaf.names != names {
        return Some("it is for other names");
    }
    let life = leaf.expires.saturating_sub(leaf.issued);
    (now >= leaf.issued.saturating_add(life / 3 * 2)).then_some("two thirds of its life are over")
}
