//! The certificate of the webhook: what a Secret holds, and whether it is to be made anew. Pure, but for keys.
//!
//! ```text
//! issued ------------ 2/3: the leader renews ------------ expires: anybody does
//! ```
//! Each issue has a CA of its own whose key is thrown away; `ca.crt` holds the newest CA and the one before, so
//! that the API server trusts replicas that still serve the old certificate.

use crate::error::{Error, Result};
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::collections::BTreeMap;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a certificate lives.
pub const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks of API servers may be behind.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

/// A Secret's data.
pub type Data = BTreeMap<String, ByteString>;

/// What a Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    pub cert_pem: String,
    pub key_pem: String,
    /// The newest CA first, then the one before it.
    pub ca_pem: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
    /// DNS names, separated by commas.
    pub names: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Material({} until {})", self.names, self.expires)
    }
}

/// What is to be done about a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Keep,
    /// It works: the leader renews it when it comes to it.
    RenewSoon,
    /// It does not work: whoever sees it makes another.
    RenewNow {
        reason: &'static str,
    },
}

impl Material {
    /// From a Secret; `None`: something is missing or is not text.
    pub fn read(data: &Data) -> Option<Self> {
        let text = |key: &str| Some(String::from_utf8(data.get(key)?.0.clone()).ok()?.trim().to_owned());
        let time = |key: &str| text(key)?.parse::<Timestamp>().ok();
        Some(Self {
            cert_pem: text("tls.crt")?,
            key_pem: text("tls.key")?,
            ca_pem: text("ca.crt")?,
            issued: time("issued")?,
            expires: time("expires")?,
            names: text("names")?,
        })
    }

    /// As a Secret's data.
    pub fn data(&self) -> Data {
        let bytes = |text: String| ByteString(text.into_bytes());
        BTreeMap::from([
            ("tls.crt".to_owned(), bytes(self.cert_pem.clone())),
            ("tls.key".to_owned(), bytes(self.key_pem.clone())),
            ("ca.crt".to_owned(), bytes(self.ca_pem.clone())),
            ("issued".to_owned(), bytes(self.issued.to_string())),
            ("expires".to_owned(), bytes(self.expires.to_string())),
            ("names".to_owned(), bytes(self.names.clone())),
        ])
    }
}

/// Whether a certificate for these names is to be made.
pub fn decide(data: Option<&Data>, names: &[String], now: Timestamp) -> Step {
    let Some(found) = data.and_then(Material::read) else {
        return Step::RenewNow { reason: "it is not complete" };
    };
    if found.names != names.join(",") {
        return Step::RenewNow { reason: "it is for other names" };
    }
    if now >= found.expires {
        return Step::RenewNow { reason: "it has expired" };
    }
    let life = found.expires.duration_since(found.issued);
    if now.duration_since(found.issued) >= life / 3 * 2 {
        return Step::RenewSoon;
    }
    Step::Keep
}

/// A new CA, and a certificate for these names that it signed. `before`: the bundle that is trusted now.
pub fn issue(names: &[String], before: Option<&str>, now: Timestamp) -> Result<Material> {
    let expires = now.checked_add(LIFE).map_err(|e| problem(&e))?;
    let mut authority = params(&[], now, "undb-operator webhook CA")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate().map_err(|e| problem(&e))?;
    let authority_cert = authority.self_signed(&authority_key).map_err(|e| problem(&e))?;
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = params(names, now, "undb-operator webhook")?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(|e| problem(&e))?;
    let cert = leaf.signed_by(&key, &issuer).map_err(|e| problem(&e))?;
    Ok(Material {
        cert_pem: cert.pem(),
        key_pem: key.serialize_pem(),
        ca_pem: bundle(&authority_cert.pem(), before.unwrap_or_default()),
        issued: now,
        expires,
        names: names.join(","),
    })
}

fn params(names: &[String], now: Timestamp, common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(|e| problem(&e))?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch.saturating_sub(BACKDATED);
    params.not_after = epoch + since_epoch + LIFE + DAY;
    Ok(params)
}

fn problem(error: &dyn std::fmt::Display) -> Error {
    Error::Certificate { name: "of the webhook".into(), problem: error.to_string() }
}

/// The new CA and the newest of those before.
fn bundle(new: &str, before: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let newest = before.find(END).map(|at| before[..at + END.len()].trim());
    match newest {
        Some(old) => format!("{}\n{old}\n", new.trim()),
        None => format!("{}\n", new.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["undb-operator-webhook.ops.svc".into()]
    }

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 24 * 3600).expect("a time")
    }

    #[test]
    fn a_certificate_is_kept_for_two_thirds_of_its_life_and_renewed_by_anybody_after_it() {
        let data = issue(&names(), None, at(0)).expect("issued").data();
        let step = |days| decide(Some(&data), &names(), at(days));
        assert_eq!(step(0), Step::Keep);
        assert_eq!(step(242), Step::Keep);
        assert_eq!(step(244), Step::RenewSoon);
        assert!(matches!(step(365), Step::RenewNow { .. }));
        assert!(matches!(decide(Some(&data), &["other".into()], at(0)), Step::RenewNow { .. }));
        assert!(matches!(decide(None, &names(), at(0)), Step::RenewNow { .. }));
        let mut broken = data.clone();
        broken.insert("tls.key".into(), ByteString(vec![0xff]));
        assert!(matches!(decide(Some(&broken), &names(), at(0)), Step::RenewNow { .. }));
    }

    #[test]
    fn a_bundle_holds_the_new_and_one_old_authority() {
        let first = issue(&names(), None, at(0)).expect("issued");
        let second = issue(&names(), Some(&first.ca_pem), at(1)).expect("issued");
        let third = issue(&names(), Some(&second.ca_pem), at(2)).expect("issued");
        let count = |m: &Material| m.ca_pem.matches("BEGIN CERTIFICATE").count();
        assert_eq!([count(&first), count(&second), count(&third)], [1, 2, 2]);
        assert!(second.ca_pem.ends_with(&first.ca_pem));
        assert!(!third.ca_pem.contains(first.ca_pem.trim()));
        assert_eq!(Material::read(&third.data()).map(|m| m.key_pem), Some(third.key_pem.trim().into()));
    }
}
