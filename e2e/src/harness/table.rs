//! Making a table and waiting until it can be written.

use super::{HarnessError, Result};
use std::time::{Duration, Instant};
use undb_sdk::{Admin, Client, Options, Table};

const TABLE_WAIT: Duration = Duration::from_secs(60);

/// Applies an object, as often as it takes for the control plane to be there.
pub async fn apply(options: &Options, object_json: &str) -> Result<()> {
    let admin = Admin::new(options).map_err(HarnessError::client("reaching the admin API"))?;
    let deadline = Instant::now() + TABLE_WAIT;
    loop {
        match admin.apply(object_json, false).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline || error.kind() == undb_sdk::Kind::Reject => {
                return Err(HarnessError::client(format!("applying {object_json}"))(error));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// The table, once a write to it was acknowledged and removed again.
pub async fn wait_for_table(options: &Options, name: &str) -> Result<Table> {
    let deadline = Instant::now() + TABLE_WAIT;
    loop {
        let tried = async {
            let table = Client::connect(options.clone()).await?.table(name).await?;
            table.put("e2e-probe", "x").await?;
            table.delete("e2e-probe").await?;
            Ok(table)
        };
        match tried.await {
            Ok(table) => return Ok(table),
            Err(error) if Instant::now() >= deadline => {
                return Err(HarnessError::client(format!("waiting for table {name}"))(error));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
