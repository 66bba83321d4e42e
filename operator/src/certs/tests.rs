//! An authority's life, step by step, and that what it signs is accepted by the TLS library.

use super::decide::SPREAD_SECONDS;
use super::secrets::{authorities, authorities_data, leaf, leaf_data};
use super::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 3600;

fn names() -> Vec<String> {
    server_names("ns", "undb", &["edge".into()], &["fast".into()])
}

fn of(current: Authority) -> Authorities {
    Authorities { current, next: None, previous: None, rotated_for: String::new() }
}

/// As a role checks what another shows.
fn is_accepted(leaf: &Leaf, bundle: &str, host: &str, now: u64) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    for pem in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(pem.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("a verifier");
    let certificate = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).expect("a certificate");
    let host = ServerName::try_from(host.to_owned()).expect("a name");
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    use rustls::client::danger::ServerCertVerifier;
    verifier.verify_server_cert(&certificate, &[], &host, &[], now).is_ok()
}

#[test]
fn a_certificate_is_accepted_for_services_and_the_pods_behind_them() {
    let authority = Authority::make("ns/undb", NOW).expect("made");
    let leaf = authority.sign(&names(), NOW).expect("signed");
    let bundle = of(authority).bundle();
    for host in [
        "undb-access.ns.svc",
        "undb-meta-2.undb-meta.ns.svc",
        "fast-17.fast-stores.ns.svc",
        "edge-proxy.ns.svc",
        "edge-proxy",
        "localhost",
    ] {
        assert!(is_accepted(&leaf, &bundle, host, NOW), "{host}");
    }
    assert!(!is_accepted(&leaf, &bundle, "other-access.ns.svc", NOW));
    assert!(!is_accepted(&leaf, &bundle, "undb-access.ns.svc", NOW + 91 * DAY));
    let stranger = Authority::make("ns/undb", NOW).expect("made");
    assert!(!is_accepted(&leaf, &of(stranger).bundle(), "undb-access.ns.svc", NOW));
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_and_for_other_names() {
    let authority = Authority::make("ns/undb", NOW).expect("made");
    let leaf = authority.sign(&names(), NOW).expect("signed");
    let due = |names: &[String], days| leaf_is_due(Some(&leaf), &authority, names, NOW + days * DAY);
    assert_eq!(due(&names(), 59), None);
    assert!(due(&names(), 60).is_some());
    assert!(due(&server_names("ns", "undb", &[], &[]), 0).is_some());
    assert!(leaf_is_due(None, &authority, &names(), NOW).is_some());
}

#[test]
fn a_rotation_never_shows_what_somebody_does_not_trust() {
    let mut known = of(Authority::make("ns/undb", NOW).expect("made"));
    let mut now = NOW + 2434 * DAY;
    let mut shown = known.current.sign(&names(), now).expect("signed");
    // What a Pod has whose files are as far behind as they may be.
    let mut behind = known.bundle();
    let mut seen = Vec::new();
    for _round in 0..8 {
        let due = decide(Some(&known), Some(&shown), "", now);
        seen.push(due);
        match due {
            Due::Begin => known.next = Some((Authority::make("ns/undb", now).expect("made"), now)),
            Due::Promote => {
                let (next, _) = known.next.take().expect("a successor");
                let old = std::mem::replace(&mut known.current, next);
                known.previous = Some((old.cert_pem, now));
            }
            Due::Forget => known.previous = None,
            Due::Nothing | Due::Make => {}
        }
        if leaf_is_due(Some(&shown), &known.current, &names(), now).is_some() {
            shown = known.current.sign(&names(), now).expect("signed");
        }
        assert!(is_accepted(&shown, &behind, "undb-access.ns.svc", now), "{seen:?}");
        behind = known.bundle();
        now += SPREAD_SECONDS;
    }
    let steps: Vec<Due> = seen.into_iter().filter(|due| *due != Due::Nothing).collect();
    assert_eq!(steps, [Due::Begin, Due::Promote, Due::Forget]);
    assert_eq!(known.bundle().matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn a_wish_begins_one_rotation() {
    let mut known = of(Authority::make("ns/undb", NOW).expect("made"));
    assert_eq!(decide(Some(&known), None, "", NOW), Due::Nothing);
    assert_eq!(decide(Some(&known), None, "2027-01", NOW), Due::Begin);
    known.rotated_for = "2027-01".into();
    assert_eq!(decide(Some(&known), None, "2027-01", NOW), Due::Nothing);
    assert_eq!(decide(None, None, "", NOW), Due::Make);
}

#[test]
fn an_authority_without_its_key_signs_nothing_and_is_succeeded() {
    let authority = Authority::make("ns/undb", NOW).expect("made");
    let leaf = authority.sign(&names(), NOW).expect("signed");
    let known = of(Authority { key_pem: None, ..authority });
    assert_eq!(decide(Some(&known), Some(&leaf), "", NOW), Due::Begin);
    assert_eq!(leaf_is_due(Some(&leaf), &known.current, &[], NOW), None);
    assert!(known.current.sign(&names(), NOW).is_err());
}

#[test]
fn what_is_written_is_read_back() {
    let current = Authority::make("ns/undb", NOW).expect("made");
    let signed = current.sign(&names(), NOW).expect("signed");
    let next = Authority::make("ns/undb", NOW).expect("made");
    let known = Authorities {
        previous: Some((next.cert_pem.trim().into(), 5)),
        next: Some((next, 7)),
        current,
        rotated_for: "x".into(),
    };
    let read = authorities(&authorities_data(&known)).expect("readable");
    assert_eq!((read.current.id(), &read.previous), (known.current.id(), &known.previous));
    assert_eq!(read.next.as_ref().map(|(a, since)| (a.id(), *since)), known.next.map(|(a, s)| (a.id(), s)));
    // What was read signs as before.
    let again = read.current.sign(&names(), NOW).expect("signed");
    assert!(is_accepted(&again, &read.bundle(), "undb-access.ns.svc", NOW));
    let found = leaf(&leaf_data(&signed, &read.bundle())).expect("readable");
    assert_eq!((found.names, found.authority), (names(), read.current.id()));
}
