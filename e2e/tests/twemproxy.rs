//! A configuration of twemproxy, unchanged, in twemproxy (Debian's nutcracker) and in holdall: each
//! pool has its own address, and keys go to the same servers, even after one is ejected.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{FaultProxy, Kind, Launch, Mode, Server, Wire};

const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
const WEIGHTS: [u32; 4] = [1, 2, 5, 1];
const POOLS: [&str; 3] = ["ketama", "modula", "random"];

/// Kills the process on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Pools at these addresses that eject a server at its first failure, for longer than the test.
fn yaml(servers: &[SocketAddr], listen: &[SocketAddr]) -> String {
    let pools = POOLS.iter().zip(listen).map(|(pool, listen)| {
        let servers = servers.iter().zip(WEIGHTS).zip(NAMES);
        let servers: String = servers
            .map(|((server, weight), name)| format!("    - {server}:{weight} {name}\n"))
            .collect();
        format!(
            "{pool}:\n  listen: {listen}\n  hash: murmur\n  distribution: {pool}\n  auto_eject_hosts: true\n  \
             server_failure_limit: 1\n  server_retry_timeout: 3600000\n  servers:\n{servers}"
        )
    });
    pools.collect()
}

fn listening() -> Vec<SocketAddr> {
    POOLS.iter().map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect()
}

#[track_caller]
fn wait_until_all_accept(addresses: &[SocketAddr]) {
    let end = Instant::now() + Duration::from_secs(60);
    while addresses.iter().any(|address| TcpStream::connect(address).is_err()) {
        assert!(Instant::now() < end, "{addresses:?}: nobody listens");
        thread::sleep(Duration::from_millis(5));
    }
}

fn nutcracker(folder: &Path, config: &Path) -> Running {
    let child = Command::new("nutcracker")
        .env("PATH", "/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin")
        .args(["-a", "127.0.0.1", "-s", &free_port().to_string()])
        .arg("-o")
        .arg(folder.join("log"))
        .arg("-p")
        .arg(folder.join("pid"))
        .arg("-c")
        .arg(config)
        .stdout(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

fn holdall(config: &Path) -> Running {
    let mut command = Command::new(holdall_path());
    command.args(["route", "--asynclog-disable", "-t", "60000", "-f"]).arg(config);
    Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// The server of each key, from the value; `None`: an error.
fn homes(proxy: SocketAddr, keys: &[String]) -> BTreeMap<String, Option<String>> {
    let mut wire = Wire::connect(proxy);
    keys.iter()
        .map(|key| {
            wire.send(format!("get {key}\r\n").as_bytes());
            let line = wire.line();
            let home = if line.starts_with("VALUE ") {
                let name = wire.line();
                assert_eq!(wire.line(), "END");
                Some(name)
            } else {
                assert!(line.starts_with("SERVER_ERROR "), "{line}");
                None
            };
            (key.clone(), home)
        })
        .collect()
}

/// Starts servers that have every key, with the server's own name as the value.
fn servers(keys: &[String]) -> Vec<Server> {
    let filled = NAMES.map(|name| {
        let server = Launch::new(Kind::Memcached).start();
        let mut wire = server.connect();
        for key in keys {
            let set = format!("set {key} 0 0 {}\r\n{name}\r\n", name.len());
            wire.expect(set.as_bytes(), b"STORED\r\n");
        }
        server
    });
    filled.into()
}

#[test]
fn pools_and_ejections_match_twemproxy() {
    let keys: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    let servers = servers(&keys);
    let fault_proxies: Vec<_> =
        servers.iter().map(|server| FaultProxy::before(server.addr())).collect();
    let addresses: Vec<_> = fault_proxies.iter().map(FaultProxy::addr).collect();
    let folder: PathBuf = std::env::temp_dir().join(format!("twemproxy-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (theirs, ours) = (listening(), listening());
    let [their_file, our_file] = [&theirs, &ours].map(|listen| {
        let file = folder.join(format!("{}.yml", listen[0].port()));
        fs::write(&file, yaml(&addresses, listen)).unwrap();
        file
    });
    let _running = (nutcracker(&folder, &their_file), holdall(&our_file));
    wait_until_all_accept(&[theirs.clone(), ours.clone()].concat());
    let both = |pool: usize| (homes(theirs[pool], &keys), homes(ours[pool], &keys));
    for (pool, name) in POOLS.iter().take(2).enumerate() {
        let (theirs, ours) = both(pool);
        assert_eq!(theirs, ours, "{name}");
        assert!(ours.values().all(Option::is_some));
    }
    // gamma, which has most of the keys, no longer accepts connections.
    fault_proxies[2].set(Mode::Refuse);
    for (pool, name) in POOLS.iter().enumerate() {
        for proxy in [theirs[pool], ours[pool]] {
            let end = Instant::now() + Duration::from_secs(60);
            while homes(proxy, &keys).values().any(Option::is_none) {
                assert!(Instant::now() < end, "{name}: gamma is not ejected");
            }
        }
    }
    for (pool, name) in POOLS.iter().take(2).enumerate() {
        let (theirs, ours) = both(pool);
        assert_eq!(theirs, ours, "{name} without gamma");
        assert!(ours.values().flatten().all(|home| home != "gamma"));
    }
    fs::remove_dir_all(&folder).unwrap();
}
