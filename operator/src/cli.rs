//! What can be typed: `undb-operator run | crds | version`.

use crate::ctx::Settings;
use crate::elector::Terms;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  undb-operator crds | kubectl apply --server-side -f -    install the resource definitions
  undb-operator run --image registry.example/undb:0.1.0    run it against the current kubectl context
  undb-operator crds ./crds                                write them as files, one a kind

In a cluster the Helm chart starts `run` with its settings in environment variables.

Exit codes: 0 ended in order; 2 the command line is wrong; 3 the API server cannot be reached or refuses;
5 the resource definitions are not installed; 11 a port is in use; 14 leadership was lost, start it again;
20 a fault of ours.";

/// Runs UNDB on Kubernetes: ControlPlane, StoreCluster, Router and Table resources in, Pods that are
/// only stopped when every shard can bear it out
#[derive(Debug, Parser)]
#[command(name = "undb-operator", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: controllers when it leads, the eviction webhook always
    Run(Box<Run>),
    /// Print the resource definitions, or write them as files into a directory
    Crds {
        /// One file a kind goes here; without it all are printed
        dir: Option<PathBuf>,
    },
    /// Print the version
    Version,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Whether the gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnsafeGate {
    /// Every stop of a store is asked for
    On,
    /// TESTS ONLY: every question is answered yes, and shards go down
    Off,
}

/// Settings of `run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The image of the roles where a resource names none; it is kept in the resource's status from then on
    #[arg(long, env = "UNDB_IMAGE", value_name = "IMAGE")]
    pub image: String,
    /// The operator's own namespace: its Lease and the webhook's Secret lie there
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,
    /// The operator's own Pod, for events and as the holder of the Lease
    #[arg(long, env = "POD_NAME", default_value = "undb-operator", value_name = "NAME")]
    pub pod_name: String,
    /// Namespaces to look after, separated by commas; none: all
    #[arg(long, env = "UNDB_WATCH_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACES")]
    pub watch_namespaces: Vec<String>,
    /// The Lease by which replicas choose their leader
    #[arg(long, default_value = "undb-operator", value_name = "NAME")]
    pub lease: String,
    /// How long the others wait for a leader that has gone silent: 3 to 300
    #[arg(long, env = "UNDB_LEASE_SECONDS", default_value_t = 15, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(3..=300))]
    pub lease_seconds: u64,
    /// Where the API server calls the eviction webhook, HTTPS
    #[arg(long, env = "UNDB_WEBHOOK_LISTEN", default_value = "0.0.0.0:9443", value_name = "HOST:PORT")]
    pub webhook_listen: String,
    /// Where /healthz, /readyz and /metrics are served, plain HTTP
    #[arg(long, env = "UNDB_ADMIN", default_value = "0.0.0.0:9090", value_name = "HOST:PORT")]
    pub admin: String,
    /// How the log looks
    #[arg(long, env = "UNDB_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged, for example `info` or `info,undb_operator=debug`
    #[arg(long, env = "UNDB_LOG", default_value = "info,kube=warn", value_name = "FILTER")]
    pub log: String,
    /// How long an orderly end may take; less than the Pod's grace period
    #[arg(long, default_value = "25", value_name = "SECONDS")]
    pub grace_seconds: u64,
    /// Test setting, only read from the environment
    #[arg(long, env = "UNDB_UNSAFE_GATE", value_enum, default_value = "on", hide = true)]
    pub unsafe_gate: UnsafeGate,
}

impl Run {
    /// What controllers see of it.
    pub fn settings(&self) -> Settings {
        let namespaces = self.watch_namespaces.iter().map(|name| name.trim().to_owned());
        Settings {
            image: self.image.clone(),
            namespace: self.namespace.clone(),
            pod_name: self.pod_name.clone(),
            watch_namespaces: namespaces.filter(|name| !name.is_empty()).collect(),
            unsafe_gate_off: self.unsafe_gate == UnsafeGate::Off,
        }
    }

    /// The times of the election.
    pub fn terms(&self) -> Terms {
        Terms::of(Duration::from_secs(self.lease_seconds))
    }

    /// How long an orderly end may take.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_teaches() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("kubectl apply --server-side -f -") && help.contains("Exit codes"), "{help}");
    }

    #[test]
    fn no_namespaces_means_all_of_them() {
        let parse = |list: &str| {
            let args = ["undb-operator", "run", "--image", "undb:1", "--watch-namespaces", list];
            match Cli::try_parse_from(args).expect("parses").command {
                Command::Run(run) => run.settings(),
                other => panic!("{other:?}"),
            }
        };
        assert!(parse("").watches("any"));
        let two = parse("a, b");
        assert!(two.watches("a") && two.watches("b") && !two.watches("c"));
        assert!(!two.unsafe_gate_off);
    }
}
