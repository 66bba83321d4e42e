//! The configuration file of each role, as a person would write it for one machine.

use super::Result;
use super::process::free_port;
use std::fmt::Write;
use std::path::Path;

/// A role's process: its name, its configuration, and where it can be asked whether it is ready.
pub struct Role {
    /// `undb run ROLE`.
    pub role: &'static str,
    /// Unique in the cluster.
    pub name: String,
    /// TOML.
    pub config: String,
    /// HOST:PORT of /readyz.
    pub admin: String,
    /// What `undb run ROLE` is given beside its configuration.
    pub flags: Vec<String>,
}

/// Addresses that roles are told about one another.
pub struct Addresses {
    pub meta: Vec<String>,
    pub control: String,
    pub router: String,
    pub access: String,
    pub resp: String,
    pub http: String,
}

fn address() -> Result<String> {
    Ok(format!("127.0.0.1:{}", free_port()?))
}

impl Addresses {
    pub fn pick(members: u64) -> Result<Addresses> {
        Ok(Addresses {
            meta: (0..members).map(|_| address()).collect::<Result<_>>()?,
            control: address()?,
            router: address()?,
            access: address()?,
            resp: address()?,
            http: address()?,
        })
    }
}

fn list(addresses: &[String]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|a| format!("{a:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

fn role(role: &'static str, name: String, config: String) -> Result<Role> {
    let admin = address()?;
    let flags = vec!["--admin".into(), admin.clone()];
    Ok(Role { role, name, config, admin, flags })
}

pub fn meta(to: &Addresses, dir: &Path, id: u64) -> Result<Role> {
    let name = format!("meta-{id}");
    let listen = &to.meta[id as usize - 1];
    let mut own = format!(
        "listen = {listen:?}\ndir = {:?}\ncluster_id = \"e2e\"\nmember_id = {id}\n",
        dir.join(&name).display().to_string()
    );
    for (i, address) in to.meta.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(own, "\n[[members]]\nid = {}\naddress = {address:?}\n", i + 1);
    }
    role("meta", name, own)
}

pub fn control(to: &Addresses, stores: u64) -> Result<Role> {
    let own = format!(
        "listen = {:?}\nmeta = {}\n\n[tuning]\nlease_ttl_ms = 3000\nstores_expected = {stores}\n",
        to.control,
        list(&to.meta)
    );
    role("control", "control".into(), own)
}

pub fn router(to: &Addresses, dir: &Path) -> Result<Role> {
    let last_good = dir.join("router-last-good").display().to_string();
    let own =
        format!("listen = {:?}\nmeta = {}\nlast_good_file = {last_good:?}\n", to.router, list(&to.meta));
    role("router", "router".into(), own)
}

pub fn access(to: &Addresses) -> Result<Role> {
    let own = format!("listen = {:?}\nmeta = {}\nrouters = [{:?}]\n", to.access, list(&to.meta), to.router);
    role("access", "access".into(), own)
}

pub fn store(to: &Addresses, dir: &Path, number: u64) -> Result<Role> {
    let name = format!("store-{number}");
    let own = format!(
        "dir = {:?}\nlisten = {:?}\ncontrol = [{:?}]\nzone = \"zone-{number}\"\ndisk_reserve_bytes = 67108864\n",
        dir.join(&name).display().to_string(),
        address()?,
        to.control
    );
    role("store", name, own)
}

pub fn proxy(to: &Addresses) -> Result<Role> {
    let own = format!("resp = {:?}\nhttp = {:?}\nendpoints = [{:?}]\n", to.resp, to.http, to.access);
    // Its HTTP port answers /readyz too.
    Ok(Role { role: "proxy", name: "proxy".into(), config: own, admin: to.http.clone(), flags: Vec::new() })
}
