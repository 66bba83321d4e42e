//! The stores that this host talks to.

use super::link::{Dial, Link};
use super::pace::Pace;
use crate::config::HostOptions;
use crate::{AddressBook, Member};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use undb_proto::v1::RaftGroup;
use undb_proto::v1::raft_transport_client::RaftTransportClient;
use undb_runtime::Credentials;
use undb_runtime::rpc::{AuthChannel, MESSAGE_BYTES_MAX, auth_channel};
use undb_types::GroupId;

pub(crate) type Client = RaftTransportClient<AuthChannel>;

/// What shares a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Entries.
    Entries,
    /// What must not wait behind entries.
    Control,
}

impl Lane {
    pub fn name(self) -> &'static str {
        match self {
            Lane::Entries => "entries",
            Lane::Control => "control",
        }
    }
}

/// All links of a host. Clones are the same.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    cluster_id: String,
    store: u64,
    addresses: Arc<dyn AddressBook>,
    credentials: Credentials,
    pace: Pace,
    ended: CancellationToken,
    // Leaf lock. A link lives as long as the host.
    links: Mutex<HashMap<(u64, Lane), Link>>,
}

impl Peers {
    pub fn new(options: &HostOptions, ended: CancellationToken) -> Self {
        let inner = Inner {
            cluster_id: options.cluster_id.clone(),
            store: options.store,
            addresses: options.addresses.clone(),
            credentials: options.credentials.clone(),
            pace: Pace::new(options.snapshot_bytes_per_s),
            ended,
            links: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The link to a member's store.
    pub fn link(&self, member: &Member, lane: Lane) -> Link {
        let mut links = self.inner.links.lock();
        let link = links.entry((member.store, lane)).or_insert_with(|| {
            let dial = Dial { peers: self.clone(), store: member.store, lane, fallback: Arc::default() };
            Link::start(dial, self.inner.ended.clone())
        });
        link.set_fallback(&member.address);
        link.clone()
    }

    /// A client on a new connection to a store.
    pub fn client(&self, store: u64, fallback: &str) -> Result<Client, Status> {
        let address = self.inner.addresses.address(store, fallback);
        let address = address.ok_or_else(|| Status::unavailable("the store has no known address"))?;
        let channel = auth_channel(&address, self.inner.credentials.clone())
            .map_err(|e| Status::unavailable(e.to_string()))?;
        Ok(RaftTransportClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    pub fn header(&self, from: GroupId, to_replica: u64, to_store: u64) -> RaftGroup {
        RaftGroup {
            shard_id: from.shard.0,
            from_replica: from.replica.0,
            to_replica,
            cluster_id: self.inner.cluster_id.clone(),
            to_store,
        }
    }

    pub fn pace(&self) -> &Pace {
        &self.inner.pace
    }

    /// The label of this host's metrics.
    pub fn store_label(&self) -> String {
        self.inner.store.to_string()
    }
}
