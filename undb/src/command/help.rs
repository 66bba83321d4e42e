//! `undb help [COMMAND|TOPIC]...`

use crate::cli::Cli;
use crate::exit::{self, Exit, Failure, Outcome};
use crate::output;
use clap::CommandFactory;

/// What to explain.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A command (`kv put`) or a topic (`exit-codes`, `config`)
    words: Vec<String>,
}

/// Prints the help of a command or a topic.
pub fn run(args: Args) -> Outcome {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["exit-codes"] => output::bytes(exit::TABLE.as_bytes())?,
        ["config"] => output::bytes(CONFIG.as_bytes())?,
        words => command_help(words)?,
    }
    Ok(Exit::Ok)
}

fn command_help(words: &[&str]) -> Outcome<()> {
    let mut command = Cli::command();
    command.build();
    let mut found = &mut command;
    for word in words {
        found = match found.find_subcommand_mut(word) {
            Some(next) => next,
            None => {
                return Err(Failure::usage(format!(
                    "there is no command or topic `{}`; `undb help` lists them",
                    words.join(" ")
                )));
            }
        };
    }
    let text = found.render_long_help();
    output::bytes(text.to_string().as_bytes())
}

const CONFIG: &str = "\
Each role is a process of its own and reads one TOML file:

  undb run ROLE --config FILE          ROLE: meta | control | router | access | store | proxy
  undb run ROLE --print-config         every field with its unit and default

Unknown fields are refused with file, line and column. `undb dev` is these six roles in one process.
Values may name environment variables: \"${NAME}\" is replaced by NAME, ${NAME+1} by a number and one more,
$${ stands for ${ itself. A variable that is not set is an error.

Clients read these variables; a flag wins over its variable:
  UNDB_ENDPOINT     HOST:PORT[,HOST:PORT...] of access           (--endpoint)
  UNDB_TOKEN        the token itself
  UNDB_TOKEN_FILE   a file that holds it                         (--token-file)
  UNDB_CA_FILE      CA of a cluster that speaks TLS              (--ca-file)
  UNDB_CERT_FILE    certificate to show to it                    (--cert-file)
  UNDB_KEY_FILE     its private key                              (--cert-key-file)
";
