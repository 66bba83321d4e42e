//! TLS between two ends in one process: who is let in, who is told what, and certificates that change.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Status};
use tower::ServiceExt;
use undb_runtime::rpc::{self, Channel, Routes};
use undb_runtime::tls::{Speaks, TlsListener};
use undb_runtime::{InternalCheck, Shutdown, Tls, TlsFiles, TokenCheck};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca(name: &str) -> Ca {
    let mut params = CertificateParams::new(Vec::new()).expect("params");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed")
}

/// Files of one process.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(bundle: &[&Ca], issuer: &Ca) -> Self {
        let files = Self { dir: tempfile::tempdir().expect("temp dir") };
        files.trust(bundle);
        files.identify(issuer, &["localhost", "127.0.0.1"], 2099);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        // As Kubernetes does: the new file appears whole.
        let next = self.path("next");
        std::fs::write(&next, text).expect("write");
        std::fs::rename(next, self.path(name)).expect("rename");
    }

    fn trust(&self, bundle: &[&Ca]) {
        let pem: String = bundle.iter().map(|ca| ca.pem()).collect();
        self.write("ca.crt", &pem);
    }

    fn identify(&self, issuer: &Ca, names: &[&str], end_year: i32) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("params");
        params.not_after = rcgen::date_time_ymd(end_year, 1, 1);
        let certificate = params.signed_by(&key, issuer).expect("signed");
        self.write("tls.crt", &certificate.pem());
        self.write("tls.key", &key.serialize_pem());
    }

    fn open(&self) -> Tls {
        let files = TlsFiles {
            ca_file: self.path("ca.crt"),
            cert_file: Some(self.path("tls.crt")),
            key_file: Some(self.path("tls.key")),
        };
        Tls::open(files).expect("good files")
    }

    fn open_without_certificate(&self) -> Tls {
        let files = TlsFiles { ca_file: self.path("ca.crt"), cert_file: None, key_file: None };
        Tls::open(files).expect("a good CA")
    }
}

/// Answers every call well.
#[derive(Clone)]
struct Yes<const INTERNAL: bool>;

impl<const INTERNAL: bool> tonic::server::NamedService for Yes<INTERNAL> {
    const NAME: &'static str = if INTERNAL { "internal" } else { "open" };
}

impl<const INTERNAL: bool> tower::Service<http::Request<Body>> for Yes<INTERNAL> {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), std::convert::Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        std::future::ready(Ok(Status::ok("").into_http()))
    }
}

struct Server {
    port: u16,
    shutdown: Shutdown,
}

impl Server {
    async fn start(tls: Option<Tls>) -> Self {
        let listener = rpc::bind("127.0.0.1:0", "test").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let check = InternalCheck::new(TokenCheck::default(), tls.as_ref());
        let routes = Routes::new(Yes::<false>).add_service(InterceptedService::new(Yes::<true>, check));
        let shutdown = Shutdown::new(Duration::from_secs(1));
        tokio::spawn(rpc::serve_over(listener, tls, routes, shutdown.clone()));
        Self { port, shutdown }
    }

    fn dial(&self, host: &str, tls: Option<&Tls>) -> Channel {
        rpc::channel_over(&format!("{host}:{}", self.port), tls).expect("an address")
    }

    async fn ask(&self, service: &str, tls: Option<&Tls>) -> Result<(), Status> {
        call(self.dial("127.0.0.1", tls), service).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn call(channel: Channel, service: &str) -> Result<(), Status> {
    let request = http::Request::post(format!("/{service}/Call"))
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .expect("a request");
    let answer = tokio::time::timeout(Duration::from_secs(20), channel.oneshot(request)).await;
    let response = answer.expect("no hang").map_err(|e| Status::from_error(Box::new(e)))?;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

fn says(result: Result<(), Status>, words: &str) -> Status {
    let status = result.expect_err("refused");
    let text = format!("{status:?}");
    assert!(text.contains(words), "{text}");
    status
}

#[tokio::test]
async fn both_ends_check_each_other() {
    let ours = ca("ours");
    let server = Server::start(Some(Files::new(&[&ours], &ours).open())).await;
    let client = Files::new(&[&ours], &ours).open();
    for service in ["open", "internal"] {
        server.ask(service, Some(&client)).await.expect("one CA");
        call(server.dial("localhost", Some(&client)), service).await.expect("a DNS name");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_reaches_open_services_only() {
    let ours = ca("ours");
    let files = Files::new(&[&ours], &ours);
    let server = Server::start(Some(files.open())).await;
    let client = files.open_without_certificate();
    server.ask("open", Some(&client)).await.expect("open");
    let status = says(server.ask("internal", Some(&client)).await, "set cert_file and key_file");
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn another_ca_is_refused_by_either_end() {
    let (ours, other) = (ca("ours"), ca("other"));
    let server = Server::start(Some(Files::new(&[&ours], &ours).open())).await;
    let stranger = Files::new(&[&other], &other).open();
    says(server.ask("open", Some(&stranger)).await, "its certificate is of another CA");
    // Knows our CA, but shows a certificate of another one.
    let pretender = Files::new(&[&ours], &other).open();
    says(server.ask("open", Some(&pretender)).await, "it refuses our certificate (UnknownCA)");
}

#[tokio::test]
async fn an_expired_certificate_and_another_name_are_named() {
    let ours = ca("ours");
    let client = Files::new(&[&ours], &ours).open();
    let files = Files::new(&[&ours], &ours);
    files.identify(&ours, &["127.0.0.1"], 2001);
    let server = Server::start(Some(files.open())).await;
    says(server.ask("open", Some(&client)).await, "has expired");
    files.identify(&ours, &["store-1.example", "10.0.0.1"], 2099);
    let server = Server::start(Some(files.open())).await;
    says(server.ask("open", Some(&client)).await, "not for the name that was dialled");
    says(call(server.dial("localhost", Some(&client)), "open").await, "not for the name that was dialled");
}

#[tokio::test]
async fn plain_and_tls_tell_one_another_what_is_wrong() {
    let ours = ca("ours");
    let files = Files::new(&[&ours], &ours);
    let server = Server::start(Some(files.open())).await;
    let status = says(server.ask("open", None).await, "this port speaks TLS");
    assert_eq!(status.code(), Code::Unauthenticated);
    let plain = Server::start(None).await;
    says(plain.ask("open", Some(&files.open())).await, "it does not speak TLS");
    plain.ask("internal", None).await.expect("plain as ever");
}

#[tokio::test]
async fn a_plain_redis_or_http_client_is_told_in_its_own_language() {
    let ours = ca("ours");
    let tls = Files::new(&[&ours], &ours).open();
    for (speaks, sent, want) in [
        (Speaks::Resp, "PING\r\n", "-ERR this port speaks TLS"),
        (Speaks::Http, "GET / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut listener = TlsListener::new(listener, tls.clone(), speaks);
        let accepting = tokio::spawn(async move { listener.accept().await });
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(sent.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with(want), "{answer}");
        accepting.abort();
    }
}

#[tokio::test]
async fn a_peer_that_says_nothing_holds_up_nobody() {
    let ours = ca("ours");
    let files = Files::new(&[&ours], &ours);
    let server = Server::start(Some(files.open())).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(("127.0.0.1", server.port)).await.expect("connected"));
    }
    server.ask("open", Some(&files.open())).await.expect("served beside them");
    let mut rest = Vec::new();
    silent[0].read_to_end(&mut rest).await.expect("cut off by the time limit");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_ca_and_certificates_are_replaced_without_a_restart() {
    let (old, new) = (ca("old"), ca("new"));
    let (server_files, client_files) = (Files::new(&[&old], &old), Files::new(&[&old], &old));
    let (server_tls, client_tls) = (server_files.open(), client_files.open());
    let server = Server::start(Some(server_tls.clone())).await;
    let lasting = server.dial("127.0.0.1", Some(&client_tls));
    call(lasting.clone(), "internal").await.expect("the old CA");
    assert!(!server_tls.reload().expect("good"), "nothing has changed");

    // First everybody trusts both, then certificates change one after the other.
    for (files, tls) in [(&server_files, &server_tls), (&client_files, &client_tls)] {
        files.trust(&[&old, &new]);
        assert!(tls.reload().expect("good"));
    }
    for (files, tls) in [(&server_files, &server_tls), (&client_files, &client_tls)] {
        files.identify(&new, &["127.0.0.1"], 2099);
        assert!(tls.reload().expect("good"));
        server.ask("internal", Some(&client_tls)).await.expect("half way");
    }
    for (files, tls) in [(&server_files, &server_tls), (&client_files, &client_tls)] {
        files.trust(&[&new]);
        assert!(tls.reload().expect("good"));
    }
    server.ask("internal", Some(&client_tls)).await.expect("the new CA");
    call(lasting, "internal").await.expect("an open connection goes on");
    let late = Files::new(&[&old], &old).open();
    assert!(server.ask("open", Some(&late)).await.is_err(), "the old CA is gone");
}

#[tokio::test]
async fn a_bad_new_file_keeps_the_old_certificate() {
    let ours = ca("ours");
    let files = Files::new(&[&ours], &ours);
    let tls = files.open();
    let server = Server::start(Some(tls.clone())).await;
    let client = Files::new(&[&ours], &ours).open();
    let good: Vec<_> = ["tls.crt", "tls.key", "ca.crt"].map(|f| (f, read(&files.path(f)))).into();
    let other_key = KeyPair::generate().expect("a key").serialize_pem();
    for (file, text, words) in [
        ("tls.crt", "no PEM", "holds no certificate"),
        ("tls.key", "", "holds no private key"),
        ("tls.key", other_key.as_str(), "does not belong to the certificate"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no CA certificate"),
    ] {
        files.write(file, text);
        let error = tls.reload().expect_err("bad").to_string();
        assert!(error.contains(words) && error.contains(file), "{error}");
        server.ask("internal", Some(&client)).await.expect("the old one serves");
        good.iter().for_each(|(file, text)| files.write(file, text));
    }
    files.identify(&ours, &["127.0.0.1"], 2001);
    assert!(tls.reload().expect_err("expired").to_string().contains("has expired already"));
    std::fs::remove_file(files.path("tls.crt")).expect("removed");
    assert!(tls.reload().is_err());
    server.ask("internal", Some(&client)).await.expect("the old one serves");
}

#[tokio::test(start_paused = true)]
async fn files_are_looked_at_without_being_asked() {
    let ours = ca("ours");
    let files = Files::new(&[&ours], &ours);
    let tls = files.open_without_certificate();
    let only_ca = TlsFiles { ca_file: files.path("ca.crt"), cert_file: None, key_file: None };
    assert!(Tls::open_server(&only_ca).expect_err("no certificate").to_string().contains("cert_file"));
    files.trust(&[&ours, &ca("another")]);
    // Paused time moves on as soon as everybody waits; a change that the watcher took is none for us.
    for _ in 0..1000 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if tls.bundle_len() == 2 {
            return;
        }
    }
    panic!("nobody looked");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("readable")
}
