//! Certificates of a ControlPlane: one authority, one certificate for all its roles, a token.
//!
//! ```text
//! authority (Secret NAME-ca)      current -- at 2/3 of its life, or when asked --> + next (trusted, signs nothing)
//!                                 -- an hour later --> next signs, the old one stays trusted
//!                                 -- an hour later --> the old one is forgotten
//! certificate (Secret NAME-tls)   90 days, made anew at 2/3, for other names, and for another authority
//! ```
//! Everybody trusts an authority before anything that it signed is shown, so no handshake fails. Roles
//! read the files again while they run; nothing restarts.
//!
//! Invariants: the Secret of the authority is written before anything that it signed; an authority whose
//! key is lost stays trusted until its successor has taken over; what the Secrets say is read, never
//! guessed: what cannot be read is made anew.
//!
//! Where to look: what is due -> `decide` (pure); keys and signatures -> `authority`; Secrets -> `secrets`.

mod authority;
mod decide;
mod names;
mod secrets;

pub use authority::{Authority, Leaf};
pub use decide::{Authorities, Due, SPREAD_SECONDS, decide, leaf_is_due};
pub use names::server_names;
pub use secrets::{Ensured, Wanted, covers, ensure};

#[cfg(test)]
mod tests;
