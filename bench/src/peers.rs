//! Redis and etcd as targets, and how they are started for a fair comparison.
//!
//! Fair means: a write is answered when it has been synced to disk. Redis runs alone with
//! `appendfsync always`; etcd with three members, each on its own directory, syncs by itself.

use bytes::Bytes;
use futures::future::BoxFuture;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use undb_bench::{Target, TargetError};

mod etcd {
    #![allow(clippy::all)]
    tonic::include_proto!("etcdserverpb");
}

use etcd::kv_client::KvClient;

const START_PATIENCE: Duration = Duration::from_secs(20);

fn failed(error: impl std::fmt::Display) -> TargetError {
    TargetError(error.to_string())
}

/// A process that ends with us.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a directory; its output goes to a file there.
pub fn start(program: &str, args: &[String], dir: &Path) -> io::Result<Process> {
    std::fs::create_dir_all(dir)?;
    let log = std::fs::File::create(dir.join("output.log"))?;
    let child = Command::new(program)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{program} does not start: {e}")))?;
    Ok(Process(child))
}

/// Ports that were free a moment ago.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
    listeners.iter().map(|l| Ok(l.local_addr()?.port())).collect()
}

/// Waits until something listens.
pub async fn listening(port: u16) -> Result<(), TargetError> {
    let since = Instant::now();
    loop {
        match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
            Ok(_) => return Ok(()),
            Err(error) if since.elapsed() > START_PATIENCE => return Err(failed(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One redis-server, synced at every write.
pub struct Redis {
    connections: Vec<redis::aio::MultiplexedConnection>,
    _process: Process,
}

impl Redis {
    /// Starts it in `dir`.
    pub async fn start(dir: &Path) -> Result<Self, TargetError> {
        let port = free_ports(1).map_err(failed)?[0];
        let args =
            ["--port", &port.to_string(), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
                .map(str::to_owned);
        let process = start("redis-server", &args, dir).map_err(failed)?;
        listening(port).await?;
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).map_err(failed)?;
        let mut connections = Vec::new();
        for _ in 0..4 {
            connections.push(client.get_multiplexed_async_connection().await.map_err(failed)?);
        }
        Ok(Self { connections, _process: process })
    }

    fn connection(&self, key: &[u8]) -> redis::aio::MultiplexedConnection {
        let at = key.iter().fold(0usize, |n, b| n.wrapping_mul(31).wrapping_add(*b as usize));
        self.connections[at % self.connections.len()].clone()
    }
}

impl Target for Redis {
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<usize>, TargetError>> {
        let mut connection = self.connection(&key);
        Box::pin(async move {
            let value: Option<Vec<u8>> =
                redis::cmd("GET").arg(&key[..]).query_async(&mut connection).await.map_err(failed)?;
            Ok(value.map(|v| v.len()))
        })
    }

    fn write(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), TargetError>> {
        let mut connection = self.connection(&key);
        Box::pin(async move {
            redis::cmd("SET").arg(&key[..]).arg(&value[..]).query_async(&mut connection).await.map_err(failed)
        })
    }
}

/// Three etcd members.
pub struct Etcd {
    clients: Vec<KvClient<tonic::transport::Channel>>,
    _processes: Vec<Process>,
}

const MEMBERS: usize = 3;

impl Etcd {
    /// Starts them below `dir`.
    pub async fn start(dir: &Path) -> Result<Self, TargetError> {
        let ports = free_ports(MEMBERS * 2).map_err(failed)?;
        let (client_ports, peer_ports) = ports.split_at(MEMBERS);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<_> =
            peer_ports.iter().enumerate().map(|(i, p)| format!("m{i}={}", url(p))).collect();
        let mut processes = Vec::new();
        for i in 0..MEMBERS {
            let args = [
                "--name",
                &format!("m{i}"),
                "--data-dir",
                "data",
                "--listen-client-urls",
                &url(&client_ports[i]),
                "--advertise-client-urls",
                &url(&client_ports[i]),
                "--listen-peer-urls",
                &url(&peer_ports[i]),
                "--initial-advertise-peer-urls",
                &url(&peer_ports[i]),
                "--initial-cluster",
                &cluster.join(","),
                "--quota-backend-bytes",
                "8589934592",
            ]
            .map(str::to_owned);
            processes.push(start("etcd", &args, &dir.join(format!("m{i}"))).map_err(failed)?);
        }
        let mut clients = Vec::new();
        for port in client_ports {
            listening(*port).await?;
            clients.push(KvClient::connect(url(port)).await.map_err(failed)?);
        }
        let started = Self { clients, _processes: processes };
        started.wait_for_leader().await?;
        Ok(started)
    }

    async fn wait_for_leader(&self) -> Result<(), TargetError> {
        let since = Instant::now();
        loop {
            match self.write("ready".into(), "yes".into()).await {
                Ok(()) => return Ok(()),
                Err(error) if since.elapsed() > START_PATIENCE => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn client(&self, key: &[u8]) -> KvClient<tonic::transport::Channel> {
        self.clients[usize::from(key.last().copied().unwrap_or(0)) % MEMBERS].clone()
    }
}

impl Target for Etcd {
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<usize>, TargetError>> {
        let mut client = self.client(&key);
        Box::pin(async move {
            let found = client.range(etcd::RangeRequest { key }).await.map_err(|s| failed(s.message()))?;
            Ok(found.into_inner().kvs.first().map(|kv| kv.value.len()))
        })
    }

    fn write(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), TargetError>> {
        let mut client = self.client(&key);
        Box::pin(async move {
            client.put(etcd::PutRequest { key, value }).await.map_err(|s| failed(s.message()))?;
            Ok(())
        })
    }
}
