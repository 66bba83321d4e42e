//! Keeps the mirror: watches the leader, and turns to another member when it falls silent.

use super::{BACKOFF_CAP, BACKOFF_FIRST, MetaClient, Seen};
use std::sync::Arc;
use std::time::Duration;
use undb_meta::State;
use undb_proto::v1::{self, ErrorCode, watch_event::Event};
use undb_runtime::Backoff;

/// Three keep-alives missed.
const SILENCE_MAX: Duration = Duration::from_secs(6);

/// Never returns.
pub(super) async fn follow(client: MetaClient) {
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_CAP);
    loop {
        let heard = watch_once(&client).await;
        client.note(|seen| seen.following = false);
        if heard {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// One watch, from where the mirror is to its end. True when it brought something.
async fn watch_once(client: &MetaClient) -> bool {
    let (address, mut rpc) = client.0.endpoints.current();
    let state = client.state();
    let request =
        v1::WatchRequest { cluster_id: state.cluster().cluster_id.clone(), from_revision: state.revision() };
    drop(state);
    let mut stream = match tokio::time::timeout(SILENCE_MAX, rpc.watch(request)).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => {
            let error = client.0.endpoints.failed(&address, status.message());
            tracing::debug!(%error, "metadata watch refused");
            return false;
        }
        Err(_) => {
            let error = client.0.endpoints.failed(&address, "no answer in time");
            tracing::debug!(%error, "metadata watch refused");
            return false;
        }
    };
    let mut heard = false;
    loop {
        let event = match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
            Ok(Ok(Some(event))) => event,
            Ok(Ok(None)) => return heard,
            Ok(Err(_)) | Err(_) => {
                let error = client.0.endpoints.failed(&address, "the watch broke");
                tracing::debug!(%error, "metadata watch ended");
                return heard;
            }
        };
        if let Some(error) = &event.error {
            match error.code() {
                ErrorCode::NotLeader => client.0.endpoints.redirected(&address, &event.leader_address),
                _ => {
                    tracing::warn!(address, error = error.message, "metadata watch refused");
                    let _turned_to_the_next = client.0.endpoints.failed(&address, &error.message);
                }
            }
            return heard;
        }
        if !client.take(event) {
            return heard;
        }
        heard = true;
    }
}

impl MetaClient {
    /// Puts an event into the mirror; false when it does not fit and the watch must begin again.
    fn take(&self, event: v1::WatchEvent) -> bool {
        let revision = {
            let mut state = self.0.state.write();
            match event.event {
                Some(Event::Snapshot(image)) => match State::from_image(image) {
                    Ok(snapshot) if is_newer(&state, &snapshot) => *state = Arc::new(snapshot),
                    Ok(snapshot) => {
                        let (ours, theirs) = (state.revision(), snapshot.revision());
                        tracing::warn!(ours, theirs, "older metadata refused");
                        return false;
                    }
                    Err(error) => {
                        tracing::error!(%error, "metadata snapshot cannot be used");
                        return false;
                    }
                },
                Some(Event::Change(change)) if event.revision > state.revision() => {
                    Arc::make_mut(&mut state).absorb(event.revision, change);
                }
                Some(Event::Change(_) | Event::KeepAlive(_)) | None => {}
            }
            state.revision()
        };
        self.note(|seen| *seen = Seen { revision, following: true, begun: true });
        true
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        self.0.seen.send_modify(change);
    }
}

/// A snapshot of the same cluster that is not behind: an old member never takes us back.
fn is_newer(ours: &State, theirs: &State) -> bool {
    let (a, b) = (ours.cluster(), theirs.cluster());
    if a.cluster_id.is_empty() {
        return true;
    }
    a.cluster_id == b.cluster_id && (b.incarnation, theirs.revision()) >= (a.incarnation, ours.revision())
}
