//! Keys and signatures.

use crate::error::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::time::Duration;

const DAY_SECONDS: u64 = 24 * 3600;
/// How long an authority lives.
pub const AUTHORITY_LIFE_SECONDS: u64 = 3650 * DAY_SECONDS;
/// How long a certificate lives.
pub const LEAF_LIFE_SECONDS: u64 = 90 * DAY_SECONDS;
/// Clocks of nodes may be behind.
const BACKDATED_SECONDS: u64 = 3600;

/// Who signs. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate.
    pub cert_pem: String,
    /// Its key; `None`: lost, so that it is trusted but signs nothing more.
    pub key_pem: Option<String>,
    /// Its common name, which the issuer field of what it signs repeats.
    pub name: String,
    /// When it began.
    pub issued: u64,
    /// When it ends.
    pub expires: u64,
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The certificate.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: String,
    /// DNS names, in order.
    pub names: Vec<String>,
    /// Which authority signed: `Authority::id`.
    pub authority: String,
    /// When it began.
    pub issued: u64,
    /// When it ends.
    pub expires: u64,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({} until {})", self.name, self.expires)
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({} names until {})", self.names.len(), self.expires)
    }
}

/// When a certificate begins and ends, around what is said of it.
fn dates(params: &mut CertificateParams, issued: u64, expires: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(issued.saturating_sub(BACKDATED_SECONDS));
    params.not_after = epoch + Duration::from_secs(expires);
}

fn problem(error: impl std::fmt::Display) -> Error {
    Error::Certificate { name: "of a ControlPlane".into(), problem: error.to_string() }
}

impl Authority {
    /// A new one. `of`: what it is for, `NAMESPACE/NAME`.
    pub fn make(of: &str, now: u64) -> Result<Self> {
        let key = KeyPair::generate().map_err(problem)?;
        // Two authorities of one name would be taken for one another by their issuer field.
        let name = format!("UNDB {of} {:08x}", rand::random::<u32>());
        let expires = now + AUTHORITY_LIFE_SECONDS;
        let certificate = Self::params(&name, now, expires).self_signed(&key).map_err(problem)?;
        Ok(Self {
            cert_pem: certificate.pem().trim().to_owned(),
            key_pem: Some(key.serialize_pem().trim().to_owned()),
            name,
            issued: now,
            expires,
        })
    }

    fn params(name: &str, issued: u64, expires: u64) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        dates(&mut params, issued, expires);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Tells it from others; public.
    pub fn id(&self) -> String {
        crate::apply::hash(&self.cert_pem.trim())
    }

    /// A certificate for servers and clients of these names.
    pub fn sign(&self, names: &[String], now: u64) -> Result<Leaf> {
        let own = self.key_pem.as_deref().ok_or_else(|| problem("the key of the authority is lost"))?;
        let own = KeyPair::from_pem(own).map_err(problem)?;
        let issuer = Issuer::new(Self::params(&self.name, self.issued, self.expires), own);
        let expires = (now + LEAF_LIFE_SECONDS).min(self.expires);
        let mut params = CertificateParams::new(names.to_vec()).map_err(problem)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "UNDB");
        dates(&mut params, now, expires);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(problem)?;
        let certificate = params.signed_by(&key, &issuer).map_err(problem)?;
        Ok(Leaf {
            cert_pem: certificate.pem().trim().to_owned(),
            key_pem: key.serialize_pem().trim().to_owned(),
            names: names.to_vec(),
            authority: self.id(),
            issued: now,
            expires,
        })
    }
}
