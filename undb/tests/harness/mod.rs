//! Runs the built binary, and `undb dev` on free ports in a temporary directory.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod store;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// What a command did.
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The binary, without what this machine's environment would say to it.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undb"));
    let connection = ["UNDB_ENDPOINT", "UNDB_TOKEN", "UNDB_TOKEN_FILE", "UNDB_CA_FILE", "UNDB_CERT_FILE"];
    let process = ["UNDB_KEY_FILE", "UNDB_LOG", "UNDB_LOG_FORMAT", "UNDB_ADMIN"];
    for name in connection.iter().chain(&process) {
        command.env_remove(name);
    }
    command
}

/// Runs it with nothing on stdin.
pub fn undb(args: &[&str]) -> Ran {
    Ran::of(command().args(args).stdin(Stdio::null()).output().expect("the binary runs"))
}

/// Runs it with something on stdin.
pub fn undb_fed(args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = command()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(stdin).expect("the binary reads");
    drop(pipe);
    Ran::of(child.wait_with_output().expect("the binary ends"))
}

/// A cluster in one process.
pub struct Dev {
    child: Child,
    pub api: String,
    pub resp: String,
    pub http: String,
    pub ready: String,
}

impl Dev {
    /// Starts on free ports.
    pub fn start(dir: &Path) -> Self {
        Self::start_at(dir, ["127.0.0.1:0"; 3], &[])
    }

    /// Starts again where it was.
    pub fn restart(self, dir: &Path) -> Self {
        let addresses = [self.api.clone(), self.resp.clone(), self.http.clone()];
        self.stop();
        Self::start_at(dir, [&addresses[0], &addresses[1], &addresses[2]], &[])
    }

    /// Kills it without a word and starts again where it was.
    pub fn kill_and_restart(self, dir: &Path) -> Self {
        let addresses = [self.api.clone(), self.resp.clone(), self.http.clone()];
        drop(self);
        Self::start_at(dir, [&addresses[0], &addresses[1], &addresses[2]], &[])
    }

    /// Starts and waits for the ready line.
    pub fn start_at(dir: &Path, addresses: [&str; 3], more: &[&str]) -> Self {
        let mut child = command()
            .arg("dev")
            .arg("--dir")
            .arg(dir)
            .args(["--api", addresses[0], "--resp", addresses[1], "--http", addresses[2]])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        for line in stdout.lines() {
            let line = line.expect("text");
            if let Some(rest) = line.strip_prefix("ready: ") {
                let after = |name: &str| {
                    let tail = rest.split_once(name).expect("named in the ready line").1;
                    tail.split([',', ';', ' ']).next().expect("an address").to_owned()
                };
                let (api, resp, http) = (after("api "), after("redis "), after("http http://"));
                return Self { child, api, resp, http, ready: line };
            }
        }
        let mut stderr = String::new();
        let _unreadable = child.stderr.take().expect("piped").read_to_string(&mut stderr);
        let status = child.wait().expect("it has ended");
        panic!("dev ended before it was ready: {status}\n{stderr}");
    }

    /// Ends it in order; it must succeed.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(sent.success());
        let status = self.child.wait().expect("it ends");
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _unreadable = pipe.read_to_string(&mut stderr);
        }
        assert!(status.success(), "{status}\n{stderr}");
    }

    /// A client command against it.
    pub fn run(&self, args: &[&str]) -> Ran {
        undb(&[args, &["--endpoint", &self.api]].concat())
    }

    /// The same with something on stdin.
    pub fn run_fed(&self, args: &[&str], stdin: &[u8]) -> Ran {
        undb_fed(&[args, &["--endpoint", &self.api]].concat(), stdin)
    }

    /// Runs a command that must succeed, and gives its output.
    pub fn good(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        ran.text()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _already_waited = self.child.wait();
    }
}
