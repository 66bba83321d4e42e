//! The three addresses: free, distinct, and on loopback unless there is a token.

use super::Args;
use crate::exit::{Failure, Outcome};
use std::net::SocketAddr;
use undb_runtime::rpc;

/// Checked addresses, as they were given.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub api: String,
    pub resp: String,
    pub http: String,
    /// What others on this machine dial when --api is on all interfaces.
    pub api_advertise: Option<String>,
}

impl Addresses {
    /// Refuses what cannot work before anything is started. A port may still be taken in between;
    /// then the part that wanted it says so.
    pub async fn check(args: &Args) -> Outcome<Self> {
        let named = [("--api", &args.api), ("--resp", &args.resp), ("--http", &args.http)];
        let mut bound = Vec::new();
        for (flag, address) in named {
            let resolved = resolve(flag, address).await?;
            if args.token_file.is_none() && resolved.iter().any(|a| !a.ip().is_loopback()) {
                return Err(Failure::usage(format!(
                    "{flag} {address} can be reached from other machines, and without a token everybody there could read and write; give --token-file FILE, or listen on 127.0.0.1"
                )));
            }
            // Held until all three are bound, so that two of them on one port are found out too.
            bound.push(rpc::bind(address, flag).await?);
        }
        let api = resolve("--api", &args.api).await?;
        if api.iter().any(|a| a.ip().is_unspecified() && a.port() == 0) {
            return Err(Failure::usage(
                "--api on all interfaces needs a port of its own; write for example 0.0.0.0:7380",
            ));
        }
        let api_advertise = api.first().filter(|a| a.ip().is_unspecified()).map(|a| match a {
            SocketAddr::V4(_) => format!("127.0.0.1:{}", a.port()),
            SocketAddr::V6(_) => format!("[::1]:{}", a.port()),
        });
        drop(bound);
        Ok(Self { api: args.api.clone(), resp: args.resp.clone(), http: args.http.clone(), api_advertise })
    }
}

async fn resolve(flag: &str, address: &str) -> Outcome<Vec<SocketAddr>> {
    let refuse = |why: String| {
        Failure::usage(format!("{flag} {address}: {why}; write HOST:PORT, for example 127.0.0.1:7380"))
    };
    let found: Vec<SocketAddr> =
        tokio::net::lookup_host(address).await.map_err(|e| refuse(e.to_string()))?.collect();
    if found.is_empty() { Err(refuse("it names no address".into())) } else { Ok(found) }
}
