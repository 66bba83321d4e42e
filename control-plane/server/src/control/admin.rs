//! What people and the operator ask for: objects in, objects out.

use super::table_spec::parse_stored;
use super::{Control, gate};
use tonic::{Request, Response, Status};
use undb_proto::v1::{self, ErrorCode, meta_command::Op};
use undb_proto::wire_error;
use undb_spec::{Object, StoreCluster, Table};

const MS_PER_HOUR: u64 = 3_600_000;

/// What `Apply` found to do.
enum Applied {
    Created,
    Configured,
    Unchanged,
}

impl Control {
    async fn apply_object(&self, request: v1::ApplyRequest) -> Result<v1::ApplyResponse, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let invalid = |e: undb_spec::SpecError| wire_error(ErrorCode::InvalidArgument, e.to_string());
        let parsed = undb_spec::parse_json(&request.object_json).map_err(invalid)?;
        let mut warnings = parsed.warnings;
        let applied = match &parsed.object {
            Object::StoreCluster(object) => self.apply_store_cluster(epoch, object, request.dry_run).await?,
            Object::Table(object) => {
                self.warn_of_table(object, &mut warnings);
                self.apply_table(epoch, object, request.dry_run).await?
            }
        };
        let result = match applied {
            Applied::Created => "created",
            Applied::Configured => "configured",
            Applied::Unchanged => "unchanged",
        };
        Ok(v1::ApplyResponse { result: result.into(), warnings, ..Default::default() })
    }

    fn warn_of_table(&self, table: &Table, warnings: &mut Vec<String>) {
        if table.spec.quota.is_some() && !warnings.iter().any(|w| w.contains("quota")) {
            warnings.push("spec.quota: is kept, and not enforced yet".into());
        }
        let state = self.0.meta.state();
        if state.live_table(table.name()).is_none() && state.deleted_table(table.name()).is_some() {
            warnings.push(format!(
                "a deleted table `{}` is still kept; this makes a new, empty one beside it",
                table.name()
            ));
        }
    }

    async fn apply_store_cluster(
        &self,
        epoch: u64,
        object: &StoreCluster,
        dry_run: bool,
    ) -> Result<Applied, v1::Error> {
        let state = self.0.meta.state();
        let known = state.store_cluster(object.name());
        let wanted = Object::StoreCluster(object.clone());
        let applied = match known {
            None => Applied::Created,
            Some(known) => changed(&known.spec_json, &wanted)?,
        };
        if dry_run || matches!(applied, Applied::Unchanged) {
            return Ok(applied);
        }
        let record = v1::StoreClusterRecord {
            name: object.name().into(),
            spec_json: wanted.to_json(),
            revision: known.map_or(0, |k| k.revision),
        };
        let op = Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(record) });
        self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        Ok(applied)
    }

    async fn apply_table(&self, epoch: u64, object: &Table, dry_run: bool) -> Result<Applied, v1::Error> {
        let state = self.0.meta.state();
        let Some(known) = state.live_table(object.name()) else {
            self.first_record(object)?;
            if !dry_run {
                self.create_table(epoch, object).await?;
            }
            return Ok(Applied::Created);
        };
        let applied = changed(&known.spec_json, &Object::Table(object.clone()))?;
        if matches!(applied, Applied::Unchanged) {
            return Ok(applied);
        }
        let record = self.altered_record(known, object)?;
        if !dry_run {
            let alter = v1::AlterTable { table: Some(record), expected_revision: known.revision };
            self.0.meta.propose(epoch, Op::AlterTable(alter)).await.map_err(v1::Error::from)?;
        }
        Ok(applied)
    }

    async fn delete_object(&self, request: v1::DeleteObjectRequest) -> Result<String, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let name = request.name;
        match Kind::parse(&request.kind)? {
            Kind::Tables => {
                let op = Op::DeleteTable(v1::DeleteTable { name: name.clone(), now: request.now });
                let result = self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
                self.0.heard.stirred.notify_one();
                let table = result.table.unwrap_or_default();
                let left_ms = table.purge_after_ms.saturating_sub(self.0.clock.now_ms());
                Ok(match request.now || left_ms == 0 {
                    true => format!("table {name} deleted; its data is being removed"),
                    false => format!(
                        "table {name} deleted; `undb undelete table {name}` brings it back within {} hours",
                        left_ms.div_ceil(MS_PER_HOUR)
                    ),
                })
            }
            Kind::StoreClusters => {
                let op = Op::DeleteStoreCluster(v1::DeleteStoreCluster { name: name.clone() });
                self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
                Ok(format!("storecluster {name} deleted"))
            }
            Kind::Stores => {
                let message =
                    format!("`undb drain store {name}` empties a store, `undb remove store {name}` ends it");
                Err(wire_error(ErrorCode::NotSupported, message))
            }
            Kind::Shards | Kind::Leases => {
                let message = "shards go with their table, and leases are released by their holder";
                Err(wire_error(ErrorCode::NotSupported, message))
            }
        }
    }

    async fn undelete(&self, name: String) -> Result<String, v1::Error> {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let op = Op::UndeleteTable(v1::UndeleteTable { name: name.clone() });
        self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        self.0.heard.stirred.notify_one();
        Ok(format!("table {name} is back"))
    }
}

/// Whether an object that exists changes, or why it cannot.
fn changed(stored: &str, wanted: &Object) -> Result<Applied, v1::Error> {
    let old = parse_stored(stored)?;
    match undb_spec::changes(&old, wanted) {
        Ok(changes) if changes.is_empty() => Ok(Applied::Unchanged),
        Ok(_) => Ok(Applied::Configured),
        Err(violations) => {
            let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
            Err(wire_error(ErrorCode::InvalidArgument, lines.join("\n")))
        }
    }
}

/// The kinds of objects that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tables,
    Stores,
    Shards,
    StoreClusters,
    Leases,
}

impl Kind {
    /// Singular, plural or short, in any case.
    pub fn parse(text: &str) -> Result<Self, v1::Error> {
        match &text.to_ascii_lowercase()[..] {
            "table" | "tables" | "utb" => Ok(Self::Tables),
            "store" | "stores" | "ust" => Ok(Self::Stores),
            "shard" | "shards" => Ok(Self::Shards),
            "storecluster" | "storeclusters" | "usc" => Ok(Self::StoreClusters),
            "lease" | "leases" | "disruptionlease" | "disruptionleases" => Ok(Self::Leases),
            _ => {
                let message = format!(
                    "`{text}` is not a kind; ask for tables, stores, shards, storeclusters or leases"
                );
                Err(wire_error(ErrorCode::InvalidArgument, message))
            }
        }
    }
}

#[tonic::async_trait]
impl v1::admin_server::Admin for Control {
    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        let applied = self.apply_object(request.into_inner()).await;
        Ok(Response::new(
            applied.unwrap_or_else(|error| v1::ApplyResponse { error: Some(error), ..Default::default() }),
        ))
    }

    async fn get(
        &self,
        request: Request<v1::GetObjectsRequest>,
    ) -> Result<Response<v1::GetObjectsResponse>, Status> {
        let response = match self.describe(&request.into_inner()) {
            Ok(objects) => {
                let objects_json = objects.iter().map(ToString::to_string).collect();
                v1::GetObjectsResponse { objects_json, error: None }
            }
            Err(error) => v1::GetObjectsResponse { error: Some(error), ..Default::default() },
        };
        Ok(Response::new(response))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteObjectRequest>,
    ) -> Result<Response<v1::DeleteObjectResponse>, Status> {
        Ok(Response::new(message(self.delete_object(request.into_inner()).await)))
    }

    async fn undelete(
        &self,
        request: Request<v1::UndeleteTableRequest>,
    ) -> Result<Response<v1::DeleteObjectResponse>, Status> {
        Ok(Response::new(message(Control::undelete(self, request.into_inner().name).await)))
    }

    async fn status(&self, _request: Request<v1::Empty>) -> Result<Response<v1::StatusResponse>, Status> {
        if let Err((error, _)) = self.owned() {
            return Ok(Response::new(v1::StatusResponse { error: Some(error), ..Default::default() }));
        }
        let meta = self.0.meta.meta_status().await;
        Ok(Response::new(self.status_now(meta)))
    }

    async fn acquire_disruption(
        &self,
        request: Request<v1::AcquireDisruptionRequest>,
    ) -> Result<Response<v1::DisruptionResponse>, Status> {
        Ok(Response::new(gate::answer(self.acquire(request.into_inner()).await)))
    }

    async fn disruption_status(
        &self,
        request: Request<v1::DisruptionStatusRequest>,
    ) -> Result<Response<v1::DisruptionResponse>, Status> {
        Ok(Response::new(gate::answer(self.keep(request.into_inner()).await)))
    }

    async fn release_disruption(
        &self,
        request: Request<v1::ReleaseDisruptionRequest>,
    ) -> Result<Response<v1::DisruptionResponse>, Status> {
        Ok(Response::new(gate::answer(self.release(request.into_inner()).await)))
    }

    async fn list_disruptions(
        &self,
        _request: Request<v1::Empty>,
    ) -> Result<Response<v1::ListDisruptionsResponse>, Status> {
        Ok(Response::new(self.disruptions()))
    }

    async fn set_store(
        &self,
        request: Request<v1::SetStoreRequest>,
    ) -> Result<Response<v1::SetStoreResponse>, Status> {
        let changed = self.change_store(request.into_inner()).await;
        Ok(Response::new(
            changed.unwrap_or_else(|error| v1::SetStoreResponse { error: Some(error), ..Default::default() }),
        ))
    }

    async fn move_replica(
        &self,
        request: Request<v1::MoveReplicaRequest>,
    ) -> Result<Response<v1::MoveReplicaResponse>, Status> {
        Ok(Response::new(match self.change_move(request.into_inner()).await {
            Ok(message) => v1::MoveReplicaResponse { message, error: None },
            Err(error) => v1::MoveReplicaResponse { error: Some(error), ..Default::default() },
        }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        Ok(Response::new(match self.explain_now(request.get_ref()) {
            Ok(lines) => v1::ExplainResponse { lines, error: None },
            Err(error) => v1::ExplainResponse { error: Some(error), ..Default::default() },
        }))
    }
}

fn message(result: Result<String, v1::Error>) -> v1::DeleteObjectResponse {
    match result {
        Ok(message) => v1::DeleteObjectResponse { message, error: None },
        Err(error) => v1::DeleteObjectResponse { error: Some(error), ..Default::default() },
    }
}
