//! A cluster of processes, all six roles and three stores, with TLS and a token: it is used through the SDK, the command
//! line and Redis over TLS; strangers learn what is missing; its certificates change while it runs.

mod harness;

use harness::{Ran, command, undb};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use undb_proto::v1::meta_client::MetaClient;
use undb_runtime::{Bearer, Credentials, Tls, rpc};
use undb_sdk::{Client, Options, TlsFiles};

const TOKEN: &str = "correct-horse-battery";
/// What runs, and at which of the ports.
const PROCESSES: [(&str, usize); 8] = [
    ("meta", 0),
    ("control", 1),
    ("router", 2),
    ("access", 3),
    ("store-1", 4),
    ("store-2", 7),
    ("store-3", 8),
    ("proxy", 5),
];

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::new(Vec::new()).expect("params");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed")
}

fn identify(dir: &Path, issuer: &Ca) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).expect("params");
    let certificate = params.signed_by(&key, issuer).expect("signed");
    write(dir, "tls.crt", &certificate.pem());
    write(dir, "tls.key", &key.serialize_pem());
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join("next"), text).expect("write");
    std::fs::rename(dir.join("next"), dir.join(name)).expect("rename");
}

/// Processes; they end with it.
struct Cluster {
    processes: Vec<(&'static str, Child)>,
    ports: Vec<u16>,
    dir: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            let _already_ended = process.kill();
            let _already_waited = process.wait();
        }
    }
}

impl Cluster {
    fn start(ca: &Ca) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        write(dir.path(), "ca.crt", &ca.pem());
        identify(dir.path(), ca);
        write(dir.path(), "token", TOKEN);
        let bound: Vec<_> =
            (0..9).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let ports = bound.iter().map(|l| l.local_addr().expect("bound").port()).collect();
        drop(bound);
        let mut cluster = Self { processes: Vec::new(), ports, dir };
        for (name, port) in PROCESSES {
            let role = name.split('-').next().unwrap_or(name);
            write(cluster.dir.path(), &format!("{name}.toml"), &cluster.config(name, role, port));
            let log = std::fs::File::create(cluster.dir.path().join(format!("{name}.log"))).expect("a log");
            let process = command()
                .args(["run", role, "--config", &cluster.file(&format!("{name}.toml"))])
                .env("TLS_DIR", cluster.dir.path())
                .stdin(Stdio::null())
                .stderr(log)
                .spawn();
            cluster.processes.push((name, process.expect("the binary runs")));
        }
        cluster
    }

    fn at(&self, role: usize) -> String {
        format!("localhost:{}", self.ports[role])
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    fn config(&self, name: &str, role: &str, port: usize) -> String {
        let listen = format!("127.0.0.1:{}", self.ports[port]);
        let http = format!("127.0.0.1:{}", self.ports[6]);
        let (own, advertise) = (self.file(name), self.at(port));
        let token_file = self.file("token");
        let with_token = |fields: String| format!("token_file = {token_file:?}\n{fields}\n");
        let (meta_at, control_at) = (self.at(0), self.at(1));
        let fields = match role {
            "meta" => with_token(format!("listen = {listen:?}\nadvertise = {advertise:?}\ndir = {own:?}")),
            "control" => with_token(format!(
                "listen = {listen:?}\nadvertise = {advertise:?}\nmeta = [{meta_at:?}]\n[tuning]\nstores_expected = 3"
            )),
            "router" => with_token(format!("listen = {listen:?}\nmeta = [{meta_at:?}]")),
            "access" => {
                with_token(format!("listen = {listen:?}\nmeta = [{meta_at:?}]\nrouters = [{:?}]", self.at(2)))
            }
            "store" => format!(
                "listen = {listen:?}\nadvertise = {advertise:?}\ncontrol = [{control_at:?}]\ndir = {own:?}\ntoken = {TOKEN:?}\n"
            ),
            _ => with_token(format!(
                "resp = {listen:?}\nhttp = {http:?}\nendpoints = [{:?}]\nresp_tls = true",
                self.at(3)
            )),
        };
        let files = "cert_file = \"${TLS_DIR}/tls.crt\"\nkey_file = \"${TLS_DIR}/tls.key\"\nca_file = \"${TLS_DIR}/ca.crt\"";
        format!("{fields}\n[tls]\n{files}\n")
    }

    fn options(&self) -> Options {
        let ca_file = self.file("ca.crt").into();
        let tls = TlsFiles { ca_file, cert_file: None, key_file: None };
        Options::new([self.at(3)]).token(Some(TOKEN.into())).tls(Some(tls.into()))
    }

    /// Repeats what may fail while the cluster starts or takes new certificates; fails with the logs.
    async fn until<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        mut attempt: impl AsyncFnMut(&Self) -> Result<T, E>,
    ) -> T {
        let mut last = String::new();
        for _ in 0..300 {
            match attempt(self).await {
                Ok(done) => return done,
                Err(error) => last = error.to_string(),
            }
            for (role, process) in &mut self.processes {
                if let Some(status) = process.try_wait().expect("a child") {
                    let log = std::fs::read_to_string(self.dir.path().join(format!("{role}.log")));
                    panic!("{what}: {role} has ended, {status}:\n{}", log.unwrap_or_default());
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for (name, _) in PROCESSES {
            let log = std::fs::read_to_string(self.dir.path().join(format!("{name}.log")));
            eprintln!("--- {name}\n{}", log.unwrap_or_default());
        }
        panic!("{what}: {last}");
    }

    fn undb(&self, args: &[&str], tls: &[&str]) -> Ran {
        let (endpoint, token) = (self.at(3), self.file("token"));
        undb(&[args, &["--endpoint", &endpoint, "--token-file", &token, "--timeout", "5"], tls].concat())
    }

    async fn redis(&self, commands: &str) -> std::io::Result<String> {
        let mut roots = rustls::RootCertStore::empty();
        let bundle = std::fs::read(self.file("ca.crt"))?;
        for certificate in CertificateDer::pem_slice_iter(&bundle) {
            roots.add(certificate.expect("PEM")).expect("a CA");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.ports[5])).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(format!("AUTH {TOKEN}\r\n{commands}QUIT\r\n").as_bytes()).await?;
        let mut answers = Vec::new();
        // A peer may close without the last word of TLS; what it said before counts.
        let _cut = stream.read_to_end(&mut answers).await;
        Ok(String::from_utf8_lossy(&answers).into_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_roles_with_tls_are_used_and_change_their_certificates() {
    let (old, new) = (ca(), ca());
    let mut cluster = Cluster::start(&old);
    let table =
        cluster.until("a table", async |c| Client::connect(c.options()).await?.table("default").await).await;
    cluster.until("a write", async |_| table.put("greeting", "hello").await).await;
    let record = table.get("greeting").await.expect("read").expect("written");
    assert_eq!(&record.value[..], b"hello");

    let expected = "+OK\r\n$5\r\nhello\r\n+OK\r\n+OK\r\n";
    // A write whose fate was not known in time may be sent again: it says the same.
    let said = async |c: &Cluster| match c.redis("GET greeting\r\nSET more words\r\n").await {
        Ok(answers) if answers == expected => Ok(()),
        Ok(answers) => Err(std::io::Error::other(answers)),
        Err(error) => Err(error),
    };
    cluster.until("the proxy", said).await;
    let more = table.get("more").await.expect("read").expect("written by the proxy");
    assert_eq!(&more.value[..], b"words");

    from_the_command_line(&cluster);
    // Three replicas a shard: what was written has gone from store to store.
    let ca_file = cluster.file("ca.crt");
    let ran = cluster.undb(&["get", "shards", "-o", "json"], &["--ca-file", &ca_file]);
    let (shards, voters) = (ran.text().matches("\"term\"").count(), ran.text().matches("\"Voter\"").count());
    assert!(shards > 0 && voters == 3 * shards, "{}{}", ran.text(), ran.stderr);
    strangers(&cluster).await;

    // The CA is replaced: both, then new certificates, then the new one alone.
    write(cluster.dir.path(), "ca.crt", &format!("{}{}", old.pem(), new.pem()));
    let both_trusted = Duration::from_secs(12);
    tokio::time::sleep(both_trusted).await;
    identify(cluster.dir.path(), &new);
    write(cluster.dir.path(), "new-ca.crt", &new.pem());
    let renewed = cluster
        .until("the new certificates", async |c| {
            let tls = TlsFiles { ca_file: c.file("new-ca.crt").into(), cert_file: None, key_file: None };
            Client::connect(c.options().tls(Some(tls.into()))).await?.table("default").await
        })
        .await;
    cluster.until("a read under the new CA", async |_| renewed.get("greeting").await).await;
    table.put("greeting", "still here").await.expect("the first client goes on");
}

fn from_the_command_line(cluster: &Cluster) {
    let ca_file = cluster.file("ca.crt");
    let ran = cluster.undb(&["kv", "get", "greeting"], &["--ca-file", &ca_file]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "hello"), "{}", ran.stderr);
    let ran = cluster.undb(&["kv", "get", "greeting"], &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("speaks TLS") && ran.stderr.contains("--ca-file FILE"), "{}", ran.stderr);
    let (proxy, token) = (cluster.at(5), cluster.file("token"));
    let resp = ["resp", "--proxy", &proxy, "--token-file", &token, "--ca-file", &ca_file, "GET", "greeting"];
    let ran = undb(&resp);
    assert_eq!((ran.code, ran.text().as_str()), (0, "hello\n"), "{}", ran.stderr);
    let ran = cluster.undb(&["kv", "get", "greeting"], &["--cert-file", &ca_file]);
    assert!(ran.code == 2 && ran.stderr.contains("give --ca-file FILE too"), "{}", ran.stderr);
}

async fn strangers(cluster: &Cluster) {
    let ca_file = cluster.file("ca.crt").into();
    let tls = Tls::open(TlsFiles { ca_file, cert_file: None, key_file: None }).expect("a CA");
    let bearer = Bearer::new(Some(TOKEN)).expect("visible");
    let channel = rpc::auth_channel(&cluster.at(0), Credentials::new(bearer, Some(tls)));
    let mut meta = MetaClient::new(channel.expect("an address"));
    let status = meta.meta_status(undb_proto::v1::Empty {}).await.expect_err("no certificate");
    assert!(status.message().contains("set cert_file and key_file"), "{status}");

    let mut plain = tokio::net::TcpStream::connect(("127.0.0.1", cluster.ports[5])).await.expect("connected");
    plain.write_all(b"PING\r\n").await.expect("sent");
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("-ERR this port speaks TLS"), "{answer}");
}
