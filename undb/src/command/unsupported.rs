//! Commands that are named in the design and not there yet: each says so, and what to do instead.

use crate::exit::{Exit, Failure, Outcome};

/// Arguments are accepted whatever they are, so that the answer is about the command.
#[derive(Debug, clap::Args)]
pub struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

/// The commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Not supported yet: write a table to files
    #[command(hide = true, disable_help_flag = true)]
    Export(Anything),
    /// Not supported yet: cut a shard in two
    #[command(hide = true, disable_help_flag = true)]
    Split(Anything),
    /// Not supported yet: join two shards
    #[command(hide = true, disable_help_flag = true)]
    Merge(Anything),
    /// Not supported yet: move a table to another StoreCluster
    #[command(hide = true, disable_help_flag = true)]
    Migrate(Anything),
    /// Not supported yet: back up a table
    #[command(hide = true, disable_help_flag = true)]
    Backup(Anything),
    /// Not supported yet: restore a table
    #[command(hide = true, disable_help_flag = true)]
    Restore(Anything),
}

/// Says that it is not there yet.
pub fn run(command: &Command) -> Outcome {
    let (name, instead) = match command {
        Command::Export(_) => ("export", "`undb kv scan --json` writes a table as JSON lines"),
        Command::Split(_) => ("split", "give a new table splitKeys, or hash partitioning with enough shards"),
        Command::Merge(_) => ("merge", "shards stay as the table was created"),
        Command::Migrate(_) => ("migrate", "create another table and import into it"),
        Command::Backup(_) => ("backup", "stop the process and copy its directory, or `undb kv scan --json`"),
        Command::Restore(_) => ("restore", "`undb import` reads what `undb kv scan --json` wrote"),
    };
    Err(Failure::new(Exit::Unsupported, format!("`undb {name}` is not supported yet; {instead}")))
}
