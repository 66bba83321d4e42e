//! Which member is asked next: the one that led last, the one that a member names, else in turn.

use crate::error::CallError;
use parking_lot::Mutex;
use undb_proto::v1::meta_client::MetaClient;
use undb_runtime::rpc::{AuthChannel, MESSAGE_BYTES_MAX, auth_channel};
use undb_runtime::{Credentials, RuntimeError};

/// The members' addresses and open channels.
pub struct Endpoints {
    credentials: Credentials,
    // Leaf lock.
    inner: Mutex<Inner>,
}

struct Inner {
    /// Configured ones first; those that members named after them.
    known: Vec<(String, MetaClient<AuthChannel>)>,
    current: usize,
    configured: usize,
}

impl Endpoints {
    /// Channels to all of them; none connects before it is used.
    pub fn new(addresses: &[String], credentials: Credentials) -> Result<Self, RuntimeError> {
        let mut known = Vec::new();
        for address in addresses {
            known.push((address.clone(), connect(address, &credentials)?));
        }
        if known.is_empty() {
            let reason = "no metadata member is configured".into();
            return Err(RuntimeError::Address { address: String::new(), reason });
        }
        let inner = Inner { configured: known.len(), known, current: 0 };
        Ok(Self { credentials, inner: Mutex::new(inner) })
    }

    /// The member to ask now.
    pub fn current(&self) -> (String, MetaClient<AuthChannel>) {
        let inner = self.inner.lock();
        inner.known[inner.current].clone()
    }

    /// A member did not answer: the next one is asked.
    pub fn failed(&self, address: &str, problem: &str) -> CallError {
        let mut inner = self.inner.lock();
        if inner.known[inner.current].0 == address {
            inner.current = (inner.current + 1) % inner.configured;
        }
        CallError::Unavailable(format!("metadata member {address}: {problem}"))
    }

    /// A member does not lead, and may know who does.
    pub fn redirected(&self, from: &str, leader: &str) {
        if leader.is_empty() || leader == from {
            let _turned_to_the_next = self.failed(from, "it does not lead");
            return;
        }
        let mut inner = self.inner.lock();
        if let Some(at) = inner.known.iter().position(|(a, _)| a == leader) {
            inner.current = at;
            return;
        }
        let Ok(client) = connect(leader, &self.credentials) else { return };
        let configured = inner.configured;
        // One stranger at a time: the leader of the moment.
        inner.known.truncate(configured);
        inner.known.push((leader.to_owned(), client));
        inner.current = configured;
    }
}

fn connect(address: &str, credentials: &Credentials) -> Result<MetaClient<AuthChannel>, RuntimeError> {
    let channel = auth_channel(address, credentials.clone())?;
    Ok(MetaClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}
