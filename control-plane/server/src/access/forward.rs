//! Admin calls, passed on to the holder of the control lease. They are idempotent, so one that met a
//! change of owner is asked again.

use crate::client::MetaClient;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use undb_proto::v1::admin_client::AdminClient;
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;
use undb_runtime::rpc::{AuthChannel, MESSAGE_BYTES_MAX, auth_channel};
use undb_runtime::{Backoff, Credentials};

const WITHIN: Duration = Duration::from_secs(15);
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Passes Admin calls on.
pub(super) struct Forward {
    meta: MetaClient,
    credentials: Credentials,
}

impl Forward {
    pub fn new(meta: MetaClient, credentials: Credentials) -> Self {
        Self { meta, credentials }
    }

    fn owner(&self) -> Result<AdminClient<AuthChannel>, String> {
        let state = self.meta.state();
        let address = &state.control_lease().address;
        if address.is_empty() {
            return Err("nobody holds the control lease; start cluster control".into());
        }
        let channel = auth_channel(address, self.credentials.clone()).map_err(|e| e.to_string())?;
        Ok(AdminClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// `error_of` finds the error in an answer; an error in words becomes one by `refusal`.
    async fn pass<R, F>(
        &self,
        call: impl Fn(AdminClient<AuthChannel>) -> F,
        error_of: fn(&R) -> Option<&v1::Error>,
        refusal: fn(v1::Error) -> R,
    ) -> Result<Response<R>, Status>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let deadline = Instant::now() + WITHIN;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        loop {
            let problem = match self.owner() {
                Err(problem) => problem,
                Ok(client) => match tokio::time::timeout(CALL_TIMEOUT, call(client)).await {
                    Ok(Ok(response)) => match error_of(response.get_ref()) {
                        Some(error) if error.code() == ErrorCode::NotLeader => error.message.clone(),
                        _ => return Ok(response),
                    },
                    Ok(Err(status)) => status.message().to_owned(),
                    Err(_) => "no answer in time".into(),
                },
            };
            let delay = backoff.next_delay();
            if Instant::now() + delay >= deadline {
                let message = format!("cluster control does not answer: {problem}; check its processes");
                return Ok(Response::new(refusal(wire_error(ErrorCode::Unavailable, message))));
            }
            tokio::time::sleep(delay).await;
        }
    }
}

/// Calls that only go on to the owner.
macro_rules! forward {
    ($($call:ident: $request:ident -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl v1::admin_server::Admin for Forward {
            $(async fn $call(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                let request = request.into_inner();
                self.pass(
                    |mut client| {
                        let request = request.clone();
                        async move { client.$call(request).await }
                    },
                    |r| r.error.as_ref(),
                    |error| v1::$response { error: Some(error), ..Default::default() },
                )
                .await
            })*
        }
    };
}

forward! {
    apply: ApplyRequest -> ApplyResponse;
    get: GetObjectsRequest -> GetObjectsResponse;
    delete: DeleteObjectRequest -> DeleteObjectResponse;
    undelete: UndeleteTableRequest -> DeleteObjectResponse;
    status: Empty -> StatusResponse;
    acquire_disruption: AcquireDisruptionRequest -> DisruptionResponse;
    disruption_status: DisruptionStatusRequest -> DisruptionResponse;
    release_disruption: ReleaseDisruptionRequest -> DisruptionResponse;
    list_disruptions: Empty -> ListDisruptionsResponse;
    set_store: SetStoreRequest -> SetStoreResponse;
    move_replica: MoveReplicaRequest -> MoveReplicaResponse;
    explain: ExplainRequest -> ExplainResponse;
}
