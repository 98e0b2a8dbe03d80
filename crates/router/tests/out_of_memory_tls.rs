//! No allocation that a client with TLS causes ends the proxy when it fails: the handshake's, the
//! session's, those for its records and for what they carry.
//!
//! A proxy in this process, whose allocator refuses the k-th allocation of a session, for every k;
//! and every one from the k-th on. After each a whole session is served.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use reserve::{Allocator, Failing, Outcome, exempt_thread, failing_from};
use router::options::{Options, Parser};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::Server;
use testkit::process::free_port;

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// A value that is longer than a record.
const LARGE: usize = 100_000;

/// Makes a certificate of its own and its key.
fn certify(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(folder.join("key")).arg("-out").arg(folder.join("cert"));
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A proxy that goes on until the process ends; the address where it speaks TLS.
fn start(server: SocketAddr, folder: &Path) -> SocketAddr {
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"]}}}}, "route": "PoolRoute|A"}}"#);
    let port = free_port();
    let port_flag = port.to_string();
    let (cert, key) = (folder.join("cert"), folder.join("key"));
    let mut words = vec!["holdall route", "--config-str", &config, "-p", "0", "-t", "60000"];
    words.extend(["--asynclog-disable", "--ssl-port", &port_flag]);
    words.extend(["--pem-cert-path", cert.to_str().unwrap()]);
    words.extend(["--pem-key-path", key.to_str().unwrap()]);
    let options = Options::try_parse_from(words).unwrap();
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let started = move |_: &net::Control| tell.send(()).unwrap();
        router::run::run(options, |_| {}, started).unwrap();
    });
    hear.recv_timeout(Duration::from_secs(60)).unwrap();
    ([127, 0, 0, 1], port).into()
}

/// The place of the proxy, and what its clients trust.
struct Target {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

/// A request, and its reply if nothing is refused.
type Step = (Vec<u8>, Vec<u8>);

type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Target {
    fn new(address: SocketAddr, folder: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("cert")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Self { address, config: Arc::new(config) }
    }

    fn connect(&self) -> io::Result<Stream> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let name = "localhost".try_into().unwrap();
        let mut session = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(session, socket))
    }

    /// Plays the session over one connection. True if each request had its own reply; otherwise the
    /// first that had not was refused, or its connection ended, and no other bytes came.
    fn plays(&self, steps: &[Step]) -> bool {
        let Ok(mut stream) = self.connect().inspect_err(assert_no_silence) else { return false };
        steps.iter().all(|(request, want)| {
            let reply = ask(&mut stream, request, want.len());
            let is_refused = is_error(&reply);
            assert!(is_refused || want.starts_with(&reply), "{}", reply.escape_ascii());
            reply == *want
        })
    }

    /// The proxy is as it was, once its loop has seen that there is memory again.
    fn serves(&self, steps: &[Step]) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.plays(steps) {
            assert!(Instant::now() < end, "it does not serve");
        }
    }
}

/// A connection ends at once, or is served.
fn assert_no_silence(error: &io::Error) {
    let is_silence = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
    assert!(!is_silence, "no answer: {error}");
}

/// The error may stand behind the values of a line's first keys.
fn is_error(reply: &[u8]) -> bool {
    reply.windows(13).any(|window| window == b"SERVER_ERROR ") && reply.ends_with(b"\r\n")
}

/// What comes, up to the length of the reply, an error in its place, or the connection's end.
fn ask(stream: &mut Stream, request: &[u8], len: usize) -> Vec<u8> {
    // The proxy may have closed: the reply tells.
    let _ = stream.write_all(request);
    let (mut reply, mut part) = (Vec::new(), [0; 65536]);
    while reply.len() < len && !is_error(&reply) {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => reply.extend_from_slice(&part[..count]),
            Err(error) => {
                assert_no_silence(&error);
                break;
            }
        }
    }
    reply
}

fn session() -> Vec<Step> {
    let large = "v".repeat(LARGE);
    let hello = "VALUE small 0 5\r\nhello\r\n";
    let steps = [
        ("set small 0 0 5\r\nhello\r\n".to_owned(), "STORED\r\n".to_owned()),
        ("get small\r\n".to_owned(), format!("{hello}END\r\n")),
        (format!("set large 0 0 {LARGE}\r\n{large}\r\n"), "STORED\r\n".to_owned()),
        ("get large\r\n".to_owned(), format!("VALUE large 0 {LARGE}\r\n{large}\r\nEND\r\n")),
        (format!("get{}\r\n", " small".repeat(100)), format!("{}END\r\n", hello.repeat(100))),
        ("mn\r\n".to_owned(), "MN\r\n".to_owned()),
    ];
    steps.map(|(request, reply)| (request.into_bytes(), reply.into_bytes())).to_vec()
}

#[test]
fn no_failed_allocation_of_a_tls_session_ends_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let server = Server::memcached(&[]);
    let target = Target::new(start(server.addr(), folder.path()), folder.path());
    exempt_thread(true);
    let steps = session();
    target.serves(&steps);
    let (is_served, Outcome { asked, .. }) = failing_from(u64::MAX, false, || target.plays(&steps));
    assert!(is_served && asked > 50, "only {asked} allocations: is the session played?");
    let mut refused = 0;
    for kth in 1..=asked {
        for is_lasting in [false, true] {
            let (_, outcome) = failing_from(kth, is_lasting, || target.plays(&steps));
            refused += outcome.refused;
            target.serves(&steps);
        }
    }
    eprintln!("{asked} allocations a session, {refused} refused");
    assert!(refused > asked, "{refused} refused of {asked}");
}
