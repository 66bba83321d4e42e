//! Who leads each shard: as control says, or a client that was told so by a store. A term never goes
//! back, and within a term the leader does not change.

use super::Router;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use undb_proto::v1::{self, ErrorCode, control_client::ControlClient};
use undb_runtime::{Backoff, Credentials, rpc};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_CAP: Duration = Duration::from_secs(1);

type Map = Arc<BTreeMap<u64, v1::LeaderInfo>>;

/// The leaders known.
#[derive(Default)]
pub(super) struct Leaders {
    known: watch::Sender<Map>,
}

impl Leaders {
    pub fn now(&self) -> Map {
        self.known.borrow().clone()
    }

    pub fn follow(&self) -> watch::Receiver<Map> {
        self.known.subscribe()
    }

    /// Takes what is newer; true when something was.
    pub fn learn(&self, infos: impl IntoIterator<Item = v1::LeaderInfo>) -> bool {
        self.known.send_if_modified(|known| {
            let mut changed = false;
            for info in infos {
                let old = known.get(&info.shard_id);
                let newer = old.is_none_or(|old| {
                    info.term > old.term
                        || (info.term == old.term && old.replica_id == 0 && info.replica_id != 0)
                });
                if newer {
                    Arc::make_mut(known).insert(info.shard_id, info);
                    changed = true;
                }
            }
            changed
        })
    }
}

/// Watches the owner of the control lease, whoever that is. Ends with the process.
pub(super) async fn follow(router: Router, credentials: Credentials) {
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_CAP);
    let mut redirect = String::new();
    loop {
        let state = router.0.meta.state();
        let address = match redirect.is_empty() {
            true => state.control_lease().address.clone(),
            false => std::mem::take(&mut redirect),
        };
        if !address.is_empty() {
            match watch_once(&router, &address, &credentials).await {
                Ok(()) => backoff.reset(),
                Err(Some(owner)) if owner != address => redirect = owner,
                Err(_) => {}
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Ok: it brought something before it ended. An error may name the owner.
async fn watch_once(router: &Router, address: &str, credentials: &Credentials) -> Result<(), Option<String>> {
    let channel = rpc::auth_channel(address, credentials.clone()).map_err(|_| None)?;
    let mut client = ControlClient::new(channel).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
    let opened = tokio::time::timeout(CONNECT_WITHIN, client.watch_leaders(v1::Empty {})).await;
    let mut stream = opened.map_err(|_| None)?.map_err(|_| None)?.into_inner();
    let mut heard = false;
    // The channel's keep-alive ends the stream when the owner is gone without a word.
    while let Ok(Some(event)) = stream.message().await {
        if let Some(error) = &event.error {
            let owner = (error.code() == ErrorCode::NotLeader && !event.owner_address.is_empty())
                .then_some(event.owner_address);
            return Err(owner);
        }
        router.0.leaders.learn(event.leaders);
        heard = true;
    }
    if heard { Ok(()) } else { Err(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_of_an_older_term_is_not_taken() {
        let leaders = Leaders::default();
        let info = |term, replica_id| v1::LeaderInfo { shard_id: 1, replica_id, term, epoch: None };
        assert!(leaders.learn([info(5, 10)]));
        assert!(!leaders.learn([info(4, 11)]), "older");
        assert!(!leaders.learn([info(5, 11)]), "one leader a term");
        assert!(leaders.learn([info(6, 0)]), "a newer term without leader");
        assert!(leaders.learn([info(6, 12)]));
        assert_eq!(leaders.now()[&1], info(6, 12));
    }
}
