//! The Secrets of a ControlPlane, read and written without a cache.
//!
//! Order of writes: authority, certificate, what clients get. A write names the version that was read,
//! so of two operators one is refused and looks again.

use super::authority::{Authority, Leaf};
use super::decide::{Authorities, Due, decide, leaf_is_due};
use crate::apply::api;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::workload::names;
use base64::Engine;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use std::collections::BTreeMap;

type Data = BTreeMap<String, ByteString>;

const TOKEN_BYTES: usize = 32;

/// What a ControlPlane needs of its Secrets.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub control_plane: &'a str,
    /// Labels of the Secrets.
    pub labels: BTreeMap<String, String>,
    /// Only where the data goes with the object too: else keys live as long as the data.
    pub owner: Option<OwnerReference>,
    /// Names of the certificate; `None`: no TLS.
    pub server_names: Option<Vec<String>>,
    /// Asks for a new authority when it changes.
    pub rotation: String,
    /// What clients dial.
    pub endpoint: String,
}

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ensured {
    /// What was done, for an event; empty: nothing.
    pub done: Vec<String>,
    /// When the certificate ends, in seconds since 1970.
    pub expires: Option<u64>,
}

/// Makes, renews and rotates what is due; at most one step of the authorities.
pub async fn ensure(ctx: &Ctx, wanted: &Wanted<'_>) -> Result<Ensured> {
    let mut ensured = Ensured::default();
    let token = token(ctx, wanted, &mut ensured).await?;
    let bundle = match &wanted.server_names {
        Some(server_names) => Some(certificates(ctx, wanted, server_names, &mut ensured).await?),
        None => None,
    };
    client(ctx, wanted, &token, bundle.as_deref()).await?;
    Ok(ensured)
}

/// Whether a `NAME-tls` Secret holds a certificate for this host: a Pod that is started before would be
/// refused by others until its files follow.
pub fn covers(secret: &Secret, host: &str) -> bool {
    let Some(leaf) = secret.data.as_ref().and_then(leaf) else { return false };
    let parent = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    leaf.names.iter().any(|name| name == host || Some(name) == parent.as_ref())
}

async fn token(ctx: &Ctx, wanted: &Wanted<'_>, ensured: &mut Ensured) -> Result<String> {
    let name = names::token_secret(wanted.control_plane);
    let found = read(ctx, wanted, &name).await?;
    let known = found.as_ref().and_then(|secret| text(secret.data.as_ref()?, "token"));
    if let Some(token) = known {
        write(ctx, wanted, found, secret(wanted, &name, "Opaque", Data::from([bytes("token", &token)])))
            .await?;
        return Ok(token);
    }
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    write(ctx, wanted, found, secret(wanted, &name, "Opaque", Data::from([bytes("token", &token)]))).await?;
    ensured.done.push("made a token".into());
    Ok(token)
}

/// The bundle to trust.
async fn certificates(
    ctx: &Ctx,
    wanted: &Wanted<'_>,
    server_names: &[String],
    ensured: &mut Ensured,
) -> Result<String> {
    let now = ctx.clock.now_ms() / 1000;
    let (ca_name, tls_name) =
        (names::ca_secret(wanted.control_plane), names::tls_secret(wanted.control_plane));
    let found_ca = read(ctx, wanted, &ca_name).await?;
    let found_tls = read(ctx, wanted, &tls_name).await?;
    let leaf_now = found_tls.as_ref().and_then(|secret| leaf(secret.data.as_ref()?));
    let trusted = found_tls.as_ref().and_then(|secret| text(secret.data.as_ref()?, "ca.crt"));
    let known = found_ca.as_ref().and_then(|secret| authorities(secret.data.as_ref()?));
    let known = known.or_else(|| orphaned(leaf_now.as_ref()?, trusted.as_deref()?, now));

    let due = decide(known.as_ref(), leaf_now.as_ref(), &wanted.rotation, now);
    let subject = format!("{}/{}", wanted.namespace, wanted.control_plane);
    let authorities = step(known, due, &subject, &wanted.rotation, now)?;
    if due != Due::Nothing {
        ensured.done.push(format!("certificate authority: {}", told(due)));
    }
    let data = authorities_data(&authorities);
    write(ctx, wanted, found_ca, secret(wanted, &ca_name, "Opaque", data)).await?;

    let mut leaf = leaf_now;
    if let Some(why) = leaf_is_due(leaf.as_ref(), &authorities.current, server_names, now) {
        leaf = Some(authorities.current.sign(server_names, now)?);
        ensured.done.push(format!("made a certificate: {why}"));
    }
    let bundle = authorities.bundle();
    if let Some(leaf) = leaf {
        ensured.expires = Some(leaf.expires);
        let data = leaf_data(&leaf, &bundle);
        write(ctx, wanted, found_tls, secret(wanted, &tls_name, "kubernetes.io/tls", data)).await?;
    }
    Ok(bundle)
}

/// The Secret of the authority is gone, but Pods trust it and show what it signed: it stays trusted,
/// and a successor takes over in order.
fn orphaned(leaf: &Leaf, trusted: &str, now: u64) -> Option<Authorities> {
    if leaf.expires <= now {
        return None;
    }
    const END: &str = "-----END CERTIFICATE-----";
    let mut certificates = trusted.split_inclusive(END).map(str::trim).filter(|pem| pem.ends_with(END));
    let current = certificates.find(|pem| crate::apply::hash(pem) == leaf.authority)?;
    Some(Authorities {
        current: Authority {
            cert_pem: current.into(),
            key_pem: None,
            name: String::new(),
            issued: leaf.issued,
            expires: leaf.expires,
        },
        next: None,
        previous: None,
        rotated_for: String::new(),
    })
}

fn told(due: Due) -> &'static str {
    match due {
        Due::Nothing => "nothing to do",
        Due::Make => "made",
        Due::Begin => "its successor is trusted from now on",
        Due::Promote => "the successor signs from now on",
        Due::Forget => "the predecessor is not trusted any more",
    }
}

fn step(known: Option<Authorities>, due: Due, of: &str, wish: &str, now: u64) -> Result<Authorities> {
    let Some(mut known) = known else {
        let current = Authority::make(of, now)?;
        return Ok(Authorities { current, next: None, previous: None, rotated_for: wish.into() });
    };
    match due {
        Due::Nothing | Due::Make => {}
        Due::Begin => {
            known.next = Some((Authority::make(of, now)?, now));
            known.rotated_for = wish.into();
        }
        Due::Promote => {
            if let Some((next, _)) = known.next.take() {
                let old = std::mem::replace(&mut known.current, next);
                known.previous = Some((old.cert_pem, now));
            }
        }
        Due::Forget => known.previous = None,
    }
    Ok(known)
}

async fn client(ctx: &Ctx, wanted: &Wanted<'_>, token: &str, bundle: Option<&str>) -> Result<()> {
    let name = names::client_secret(wanted.control_plane);
    let mut data = Data::from([bytes("token", token), bytes("endpoint", &wanted.endpoint)]);
    data.extend(bundle.map(|bundle| bytes("ca.crt", bundle)));
    let found = read(ctx, wanted, &name).await?;
    write(ctx, wanted, found, secret(wanted, &name, "Opaque", data)).await
}

fn secret(wanted: &Wanted<'_>, name: &str, kind: &str, data: Data) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some(wanted.namespace.into()),
            labels: Some(wanted.labels.clone()),
            owner_references: wanted.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(kind.into()),
        data: Some(data),
        ..Secret::default()
    }
}

async fn read(ctx: &Ctx, wanted: &Wanted<'_>, name: &str) -> Result<Option<Secret>> {
    Ok(api::<Secret>(ctx, wanted.namespace).get_opt(name).await?)
}

/// Creates it, or replaces the version that was read; nothing when it is as it should be.
async fn write(ctx: &Ctx, wanted: &Wanted<'_>, found: Option<Secret>, mut secret: Secret) -> Result<()> {
    let api = api::<Secret>(ctx, wanted.namespace);
    let params =
        PostParams { field_manager: Some(crate::apply::FIELD_MANAGER.into()), ..PostParams::default() };
    let Some(found) = found else {
        api.create(&params, &secret).await?;
        return Ok(());
    };
    let is_same = found.data == secret.data
        && found.metadata.owner_references.clone().unwrap_or_default()
            == secret.metadata.owner_references.clone().unwrap_or_default();
    if is_same {
        return Ok(());
    }
    let mut labels = found.metadata.labels.clone().unwrap_or_default();
    labels.extend(secret.metadata.labels.take().unwrap_or_default());
    secret.metadata.labels = Some(labels);
    secret.metadata.annotations = found.metadata.annotations.clone();
    secret.metadata.resource_version = found.metadata.resource_version.clone();
    secret.metadata.uid = found.metadata.uid.clone();
    // The API server lets nobody change it.
    secret.type_ = found.type_.clone();
    let name = secret.metadata.name.clone().unwrap_or_default();
    api.replace(&name, &params, &secret).await?;
    Ok(())
}

fn bytes(key: &str, text: &str) -> (String, ByteString) {
    (key.into(), ByteString(text.as_bytes().to_vec()))
}

fn text(data: &Data, key: &str) -> Option<String> {
    let text = String::from_utf8(data.get(key)?.0.clone()).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(data: &Data, key: &str) -> Option<u64> {
    text(data, key)?.parse().ok()
}

pub(super) fn authorities_data(authorities: &Authorities) -> Data {
    let mut data = Data::new();
    let mut put = |who: &str, authority: &Authority| {
        data.extend([
            bytes(&format!("{who}.crt"), &authority.cert_pem),
            bytes(&format!("{who}.name"), &authority.name),
            bytes(&format!("{who}.issued"), &authority.issued.to_string()),
            bytes(&format!("{who}.expires"), &authority.expires.to_string()),
        ]);
        data.extend(authority.key_pem.iter().map(|key| bytes(&format!("{who}.key"), key)));
    };
    put("ca", &authorities.current);
    if let Some((next, since)) = &authorities.next {
        put("next", next);
        data.extend([bytes("next.since", &since.to_string())]);
    }
    if let Some((pem, since)) = &authorities.previous {
        data.extend([bytes("previous.crt", pem), bytes("previous.since", &since.to_string())]);
    }
    data.extend([bytes("rotated-for", &authorities.rotated_for)]);
    data
}

pub(super) fn authorities(data: &Data) -> Option<Authorities> {
    let authority = |who: &str| {
        Some(Authority {
            cert_pem: text(data, &format!("{who}.crt"))?,
            key_pem: text(data, &format!("{who}.key")),
            name: text(data, &format!("{who}.name")).unwrap_or_default(),
            issued: number(data, &format!("{who}.issued"))?,
            expires: number(data, &format!("{who}.expires"))?,
        })
    };
    Some(Authorities {
        current: authority("ca")?,
        next: authority("next").zip(number(data, "next.since")),
        previous: text(data, "previous.crt").zip(number(data, "previous.since")),
        rotated_for: text(data, "rotated-for").unwrap_or_default(),
    })
}

pub(super) fn leaf_data(leaf: &Leaf, bundle: &str) -> Data {
    Data::from([
        bytes("tls.crt", &leaf.cert_pem),
        bytes("tls.key", &leaf.key_pem),
        bytes("ca.crt", bundle),
        bytes("names", &leaf.names.join("\n")),
        bytes("authority", &leaf.authority),
        bytes("issued", &leaf.issued.to_string()),
        bytes("expires", &leaf.expires.to_string()),
    ])
}

pub(super) fn leaf(data: &Data) -> Option<Leaf> {
    Some(Leaf {
        cert_pem: text(data, "tls.crt")?,
        key_pem: text(data, "tls.key")?,
        names: text(data, "names")?.lines().map(String::from).collect(),
        authority: text(data, "authority")?,
        issued: number(data, "issued")?,
        expires: number(data, "expires")?,
    })
}
