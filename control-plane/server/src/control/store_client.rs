//! Calls to stores, over one channel each.

use parking_lot::Mutex;
use std::collections::HashMap;
use undb_proto::v1::store_client::StoreClient;
use undb_runtime::rpc::{AuthChannel, MESSAGE_BYTES_MAX, auth_channel};
use undb_runtime::{Credentials, RuntimeError};

/// Channels by address; those of stores that moved are let go when there are many.
pub(super) struct StoreClients {
    credentials: Credentials,
    // Leaf lock.
    channels: Mutex<HashMap<String, StoreClient<AuthChannel>>>,
}

const CHANNELS_MAX: usize = 4096;

impl StoreClients {
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, channels: Mutex::default() }
    }

    /// A client of the store at an address.
    pub fn at(&self, address: &str) -> Result<StoreClient<AuthChannel>, RuntimeError> {
        let mut channels = self.channels.lock();
        if let Some(client) = channels.get(address) {
            return Ok(client.clone());
        }
        let client = StoreClient::new(auth_channel(address, self.credentials.clone())?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        if channels.len() >= CHANNELS_MAX {
            channels.clear();
        }
        channels.insert(address.to_owned(), client.clone());
        Ok(client)
    }
}
