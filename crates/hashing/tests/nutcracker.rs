//! The installed twemproxy (Debian's nutcracker) and ours send every key to the same server.
//!
//! One nutcracker with a pool for each hash and distribution runs in front of four servers that
//! answer every get with a miss and record the server reached.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use hashing::key::inside_hash_tag;
use hashing::{KeyHash, Placement};

const WEIGHTS: [u32; 4] = [1, 2, 5, 1];
const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// The server that received each key.
type Seen = Arc<Mutex<BTreeMap<String, u32>>>;

/// Answers gets with a miss until the peer disconnects.
fn serve(requests: impl Read, mut replies: impl Write, server: u32, seen: &Seen) {
    for line in BufReader::new(requests).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8(line).unwrap();
        let key = line.strip_prefix("get ").unwrap().trim_end().to_owned();
        seen.lock().unwrap().insert(key, server);
        if replies.write_all(b"END\r\n").is_err() {
            return;
        }
    }
}

/// The socket of the server that also has this port.
fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

/// Four servers, each with a port and a socket.
fn servers(folder: &Path, seen: &Seen) -> Vec<u16> {
    let ports = (0..4).map(|server| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let local = UnixListener::bind(socket(folder, port)).unwrap();
        let (of_port, of_socket) = (seen.clone(), seen.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, replies) = (of_port.clone(), stream.try_clone().unwrap());
                thread::spawn(move || serve(stream, replies, server, &seen));
            }
        });
        thread::spawn(move || {
            for stream in local.incoming().map_while(Result::ok) {
                let (seen, replies) = (of_socket.clone(), stream.try_clone().unwrap());
                thread::spawn(move || serve(stream, replies, server, &seen));
            }
        });
        port
    });
    ports.collect()
}

struct Pool {
    name: String,
    hash: KeyHash,
    distribution: &'static str,
    /// `true` if the servers have configured names.
    named: bool,
    hash_tag: bool,
    /// `true` if the proxy reaches the servers by unix sockets.
    by_path: bool,
}

fn pools() -> Vec<Pool> {
    let hashes = KeyHash::ALL.into_iter().filter(|(_, hash)| *hash != KeyHash::Murmur3);
    let mut pools = Vec::new();
    for (name, hash) in hashes {
        for distribution in ["ketama", "modula"] {
            let name = format!("{name}-{distribution}");
            let (named, hash_tag, by_path) = (true, false, false);
            pools.push(Pool { name, hash, distribution, named, hash_tag, by_path });
        }
    }
    for (name, named, hash_tag, by_path) in [
        ("unnamed", false, false, false),
        ("tagged", true, true, false),
        ("paths", false, false, true),
    ] {
        let (name, hash, distribution) = (name.to_owned(), KeyHash::Fnv1a64, "ketama");
        pools.push(Pool { name, hash, distribution, named, hash_tag, by_path });
    }
    pools
}

impl Pool {
    fn address(&self, folder: &Path, port: u16) -> String {
        match self.by_path {
            true => socket(folder, port).display().to_string(),
            false => format!("127.0.0.1:{port}"),
        }
    }

    fn yaml(&self, folder: &Path, ports: &[u16]) -> String {
        let (name, hash, distribution) = (&self.name, self.hash.name(), self.distribution);
        let listen = folder.join(name);
        let mut text = format!(
            "{name}:\n  listen: {}\n  hash: {hash}\n  distribution: {distribution}\n  servers:\n",
            listen.display()
        );
        for ((port, weight), name) in ports.iter().zip(WEIGHTS).zip(NAMES) {
            let name = if self.named { name } else { "" };
            let address = self.address(folder, *port);
            writeln!(text, "   - {address}:{weight} {name}").unwrap();
        }
        if self.hash_tag {
            text.push_str("  hash_tag: \"{}\"\n");
        }
        text
    }

    /// twemproxy leaves the weight out of a server's name, but a path keeps the colon before it.
    fn placement(&self, folder: &Path, ports: &[u16]) -> Placement {
        let name = |(name, port): (&str, &u16)| match (self.named, self.by_path) {
            (true, _) => name.to_owned(),
            (false, true) => format!("{}:", self.address(folder, *port)),
            (false, false) => self.address(folder, *port),
        };
        let names = NAMES.into_iter().zip(ports).map(name);
        let servers: Vec<_> = names.zip(WEIGHTS).collect();
        match self.distribution {
            "modula" => Placement::twemproxy_modula(&servers, self.hash).unwrap(),
            _ => Placement::twemproxy_ketama(&servers, self.hash).unwrap(),
        }
    }

    fn keys(&self) -> Vec<String> {
        let name = &self.name;
        let plain = (0..100).map(|number| format!("{name}:{number}"));
        let odd = ["ä", "ab\u{fe}", "{user:17}:a", "{user:17}:b", "{}", "}{x", "{open"];
        plain.chain(odd.into_iter().map(|odd| format!("{name}{odd}"))).collect()
    }
}

/// Ends the process that the test started.
struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

fn start(folder: PathBuf, pools: &[Pool], ports: &[u16]) -> Running {
    let config: String = pools.iter().map(|pool| pool.yaml(&folder, ports)).collect();
    fs::write(folder.join("conf.yml"), config).unwrap();
    let stats = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("nutcracker")
        .env("PATH", "/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin")
        .args(["-a", "127.0.0.1", "-s", &stats.to_string(), "-o"])
        .arg(folder.join("log"))
        .arg("-c")
        .arg(folder.join("conf.yml"))
        .arg("-p")
        .arg(folder.join("pid"))
        .stdout(Stdio::null())
        .spawn()
        .expect("Debian's nutcracker");
    Running(child, folder)
}

fn connect(path: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{path:?}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn keys_land_where_twemproxy_sends_them() {
    let seen = Seen::default();
    let folder = std::env::temp_dir().join(format!("holdall-nutcracker-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let ports = servers(&folder, &seen);
    let pools = pools();
    let running = start(folder, &pools, &ports);
    for pool in &pools {
        let mut stream = connect(&running.1.join(&pool.name));
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let keys = pool.keys();
        let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
        stream.write_all(gets.as_bytes()).unwrap();
        let replies = BufReader::new(stream).lines().take(keys.len()).map(Result::unwrap);
        assert_eq!(replies.filter(|reply| reply == "END").count(), keys.len(), "{}", pool.name);
        let placement = pool.placement(&running.1, &ports);
        for key in keys {
            let hashed = key.as_bytes();
            let hashed = if pool.hash_tag { inside_hash_tag(hashed, *b"{}") } else { hashed };
            let want = seen.lock().unwrap()[&key];
            assert_eq!(placement.pick(hashed), want, "{key} in {}", pool.name);
        }
    }
}
