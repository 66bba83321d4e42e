//! One command a file. Each has `Args` (what can be typed) and `run`.

pub mod apply;
pub mod bench;
pub mod cordon;
pub mod delete;
pub mod describe;
pub mod dev;
pub mod drain;
pub mod explain;
pub mod get;
pub mod help;
pub mod import;
pub mod inspect;
pub mod kv;
pub mod move_replica;
pub mod remove;
pub mod resp;
pub mod run;
pub mod status;
pub mod store_action;
pub mod undelete;
pub mod unsupported;

use crate::cli::Command;
use crate::exit::Outcome;

/// Runs what was typed.
pub async fn run(command: Command) -> Outcome {
    match command {
        Command::Dev(args) => dev::run(*args).await,
        Command::Run(args) => run::run(args).await,
        Command::Apply(args) => apply::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Delete(args) => delete::run(args).await,
        Command::Undelete(args) => undelete::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Cordon(args) => cordon::run(args).await,
        Command::Uncordon(args) => cordon::run_uncordon(args).await,
        Command::Drain(args) => drain::run(args).await,
        Command::Remove(args) => remove::run(args).await,
        Command::Move(args) => move_replica::run(args).await,
        Command::Kv(args) => kv::run(args).await,
        Command::Resp(args) => resp::run(args).await,
        Command::Import(args) => import::run(*args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Inspect(args) => inspect::run(args),
        Command::Help(args) => help::run(args),
        Command::Unsupported(command) => unsupported::run(&command),
    }
}
