//! Measures the processor time of a single get with and without TLS, in holdall and in Debian's
//! memcached, in turn.
//!
//! `cargo build --release -p holdall && cargo run -p e2e --bin tls-cost`. Fifty connections, one
//! request in flight on each, 64-byte values, one worker. The client is not measured, so its speed
//! does not matter: the figure is the server's processor time divided by the number of requests.
//! Needs openssl.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement stops where it fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::process::free_port;
use testkit::{Kind, Launch, process};

const CONNECTIONS: usize = 50;
const ROUNDS: usize = 2000;
const GET: &[u8] = b"get key\r\n";

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn main() {
    let folder = std::env::temp_dir().join(format!("tls-cost-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let config = certificate(&folder);
    for round in 0..3 {
        for kind in [Kind::Holdall, Kind::Memcached] {
            let plain_us = measure(kind, &folder, None);
            let tls_us = measure(kind, &folder, Some(&config));
            let ratio = tls_us / plain_us;
            println!("{round} {kind:?}: {plain_us:.2} us plain, {tls_us:.2} us TLS, {ratio:.2}x");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Processor time of one get, in microseconds.
fn measure(kind: Kind, folder: &Path, config: Option<&Arc<ClientConfig>>) -> f64 {
    let (tls_port, plain_port) = (free_port(), free_port());
    let file = |name: &str| folder.join(name).display().to_string();
    let options = format!("ssl_chain_cert={},ssl_key={}", file("cert"), file("key"));
    let listen = format!("127.0.0.1:{tls_port},notls:127.0.0.1:{plain_port}");
    let args = ["-Z", "-o", &options, "-t", "1", "-l", &listen];
    let server = Launch::new(kind).plain_port(plain_port).args(&args).start();
    let value = "v".repeat(64);
    server.connect().expect(format!("set key 0 0 64\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
    let want = format!("VALUE key 0 64\r\n{value}\r\nEND\r\n");
    let port = if config.is_some() { tls_port } else { plain_port };
    let addr: SocketAddr = ([127, 0, 0, 1], port).into();
    let mut streams: Vec<Box<dyn Stream>> = (0..CONNECTIONS)
        .map(|_| {
            let socket = TcpStream::connect(addr).unwrap();
            socket.set_nodelay(true).unwrap();
            let Some(config) = config else { return Box::new(socket) as Box<dyn Stream> };
            let name = ServerName::try_from("localhost").unwrap();
            let session = ClientConnection::new(Arc::clone(config), name).unwrap();
            Box::new(StreamOwned::new(session, socket)) as Box<dyn Stream>
        })
        .collect();
    let mut round = || {
        for stream in &mut streams {
            stream.write_all(GET).unwrap();
        }
        let mut answer = vec![0; want.len()];
        for stream in &mut streams {
            stream.read_exact(&mut answer).unwrap();
            assert!(answer == want.as_bytes());
        }
    };
    (0..100).for_each(|_| round());
    let before = process::cpu_time(server.pid());
    (0..ROUNDS).for_each(|_| round());
    let used = process::cpu_time(server.pid()) - before;
    used.as_secs_f64() * 1e6 / (ROUNDS * CONNECTIONS) as f64
}

/// Creates a certificate, and a client that trusts it.
fn certificate(folder: &Path) -> Arc<ClientConfig> {
    let (key, cert) = (folder.join("key"), folder.join("cert"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), cert.as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&cert).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}
