//! The memory of TLS sessions is limited, and clients without a login take it from nobody.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use certs::ClientOptions;
use common::{Running, eventually, one_worker};
use net::{Config, ConnState, Listen, TlsAcceptor, TlsMode, TlsOptions, Verify};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

/// The charge of one session.
const SESSION_BYTES: usize = 16 << 10;

/// A certificate for `localhost` that is its own authority, and its key; removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("net-tls-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn acceptor(&self, verify: Verify, mode: TlsMode) -> Arc<TlsAcceptor> {
        let (chain_cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        let (ca_cert, resumption) = (Some(chain_cert.clone()), true);
        let default = TlsOptions::default();
        let options = TlsOptions { chain_cert, key, ca_cert, verify, resumption, ..default };
        Arc::new(TlsAcceptor::open(options, vec![mode]).unwrap())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server with TLS that takes at most this many sessions.
fn server(files: &Files, sessions_max: usize, config: Config) -> Running {
    let tls = Some(files.acceptor(Verify::Request, TlsMode::Standard));
    let session_bytes_max = sessions_max * SESSION_BYTES;
    Running::listen(&listen(), &Config { session_bytes_max, tls, ..config })
}

fn listen() -> Listen {
    let tcp = vec!["127.0.0.1:0".parse().unwrap()];
    Listen { tcp, backlog: 1024, ..Listen::default() }
}

struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    fn new(server: &Running, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(StreamOwned::new(session, socket))
    }

    /// Sends a line that the server returns. False if it has closed the connection.
    fn ask(&mut self, line: &[u8]) -> bool {
        let mut got = vec![0; line.len()];
        self.0.write_all(line).is_ok() && self.0.read_exact(&mut got).is_ok() && got == line
    }
}

/// A session keeps the certificates that its client sent.
#[test]
fn the_certificates_of_a_client_count() {
    const MORE: usize = 30;
    let files = Files::new("chain");
    let server = server(&files, 64, one_worker());
    let held = |chain: &str| {
        let options = ClientOptions {
            chain_cert: Some(files.path(chain)),
            key: Some(files.path("key.pem")),
            ..ClientOptions::default()
        };
        let mut client = Client::new(&server, &certs::client_config(&options).unwrap());
        assert!(client.ask(b"echo\n"));
        let held = server.seen.held.load(Ordering::SeqCst).unsigned_abs();
        drop(client);
        eventually("closed", || server.control.stats().curr_connections == 0);
        held
    };
    let text = fs::read_to_string(files.path("cert.pem")).unwrap();
    fs::write(files.path("long.pem"), text.repeat(1 + MORE)).unwrap();
    let one = certs::certificates(&files.path("cert.pem")).unwrap()[0].len();
    assert_eq!(held("long.pem") - held("cert.pem"), MORE * one);
    assert_eq!(server.seen.held.load(Ordering::SeqCst), 0);
}

/// A resumption does not look at the certificate, which may have expired meanwhile.
#[test]
fn no_session_with_a_verified_client_is_resumed() {
    let files = Files::new("resumption");
    let options = ClientOptions {
        chain_cert: Some(files.path("cert.pem")),
        key: Some(files.path("key.pem")),
        ..ClientOptions::default()
    };
    for (verify, mode, is_resumed) in [
        (Verify::None, TlsMode::Standard, true),
        (Verify::Require, TlsMode::ServerOnly, true),
        (Verify::Request, TlsMode::Standard, false),
        (Verify::Require, TlsMode::Standard, false),
        (Verify::None, TlsMode::Mutual, false),
    ] {
        let tls = Some(files.acceptor(verify, mode));
        let server = Running::listen(&listen(), &Config { tls, ..one_worker() });
        let mut config = ClientConfig::clone(&certs::client_config(&options).unwrap());
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(config);
        for expected in [false, is_resumed] {
            let mut client = Client::new(&server, &config);
            assert!(client.ask(b"echo\n"));
            let is_resumed = client.0.conn.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(is_resumed, expected, "{verify:?} {mode:?}");
        }
    }
}

/// The end of the replies is announced, although the server has not read all requests.
#[test]
fn a_draining_server_ends_its_replies_in_order() {
    let files = Files::new("drain");
    let server = server(&files, 64, one_worker());
    let config = certs::client_config(&ClientOptions::default()).unwrap();
    let mut client = Client::new(&server, &config);
    client.0.write_all(b"big 20000000\n").unwrap();
    eventually("stuck", || {
        server.control.connections().iter().any(|info| info.state == ConnState::Writing)
    });
    client.0.write_all(&b"echo\n".repeat(20_000)).unwrap();
    server.control.drain(Duration::from_secs(60));
    let mut got = Vec::new();
    client.0.read_to_end(&mut got).unwrap();
    assert_eq!(got[20_000_000..], b"echo\n".repeat((got.len() - 20_000_000) / 5));
    assert_eq!(client.0.sock.read(&mut [0]).unwrap(), 0, "the socket ends in order, too");
    drop(client);
    assert_eq!(server.join().held.load(Ordering::SeqCst), 0);
}

/// A TLS client can read an alert, but no text.
#[test]
fn a_full_server_refuses_tls_clients_by_an_alert() {
    let files = Files::new("full");
    let limits = Config { max_connections: 1, rejection: Some(b"full\n"), ..one_worker() };
    let server = server(&files, 64, limits);
    let _first = server.client();
    eventually("one", || server.control.stats().curr_connections == 1);
    let mut refused = Vec::new();
    TcpStream::connect(server.address()).unwrap().read_to_end(&mut refused).unwrap();
    assert_eq!(refused, [0x15, 3, 1, 0, 2, 2, 80], "the fatal alert internal_error");
}

/// Clients without a login that are never idle, and that come again when they are closed.
#[test]
fn sessions_without_a_login_close_no_others() {
    const MOST: usize = 64;
    let files = Files::new("crowd");
    let login_timeout = Some(Duration::from_secs(60));
    let server = server(&files, MOST, Config { login_timeout, ..one_worker() });
    let config = certs::client_config(&ClientOptions::default()).unwrap();
    let mut known: Vec<Client> = (0..10).map(|_| Client::new(&server, &config)).collect();
    for client in &mut known {
        assert!(client.ask(b"login\n"));
    }
    // They are idle now.
    thread::sleep(Duration::from_millis(1100));
    let end = Instant::now() + Duration::from_secs(60);
    let enough = 4 * MOST as u64;
    let crowd = || {
        let mut clients = Vec::new();
        while server.control.stats().tls_kicks < enough && Instant::now() < end {
            if clients.len() < MOST / 8 {
                clients.push(Client::new(&server, &config));
            }
            // Each is asked at least once per second.
            clients.retain_mut(|client: &mut Client| client.ask(b"echo\n"));
        }
    };
    thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(crowd))));
    assert!(server.control.stats().tls_kicks >= enough, "there was no crowd");
    for client in &mut known {
        assert!(client.ask(b"echo\n"), "a client that has logged in was closed");
    }
    let mut newcomer = Client::new(&server, &config);
    assert!(newcomer.ask(b"login\n"), "a user cannot log in");
}

/// Idle sessions of clients that have logged in give way to new ones of which most log in.
#[test]
fn idle_sessions_give_way_to_clients_that_log_in() {
    const MOST: usize = 64;
    let files = Files::new("pool");
    let login_timeout = Some(Duration::from_secs(60));
    let server = server(&files, MOST, Config { login_timeout, ..one_worker() });
    let config = certs::client_config(&ClientOptions::default()).unwrap();
    // One after the other, because a handshake has a time limit.
    let log_in = |_| {
        let mut client = Client::new(&server, &config);
        assert!(client.ask(b"login\n"), "it is refused for idle ones");
        client
    };
    let _idle: Vec<Client> = (0..MOST).map(log_in).collect();
    thread::sleep(Duration::from_millis(1100));
    let _others: Vec<Client> = (0..MOST / 2).map(log_in).collect();
    eventually("idle ones closed", || server.control.stats().tls_kicks >= (MOST / 2) as u64);
}
