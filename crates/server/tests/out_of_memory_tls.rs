//! No allocation that a client with TLS causes ends the server when it fails: the handshake's, the
//! session's, those for its records and for what they carry.
//!
//! A server in this process, whose allocator refuses the k-th allocation of a session, for every k;
//! and every one from the k-th on. After each a whole session is served.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use options::{Environment, Invocation, Style};
use reserve::{Allocator, Failing, Outcome, exempt_thread, failing_from};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// A value that is longer than a record, and chained in the store.
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

/// A server on a free port, which goes on until the process ends.
fn start(folder: &Path) -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (cert, key) = (folder.join("cert"), folder.join("key"));
    let line = format!(
        "-l 127.0.0.1 -p {port} -U 0 -t 1 -m 64 -u root -Z -o no_sampling -o ssl_chain_cert={},ssl_key={}",
        cert.display(),
        key.display()
    );
    let arguments = line.split(' ').map(OsString::from);
    let environment = Environment { cpus: 1, port_file: None, ..Environment::default() };
    let parsed = options::parse(Style::Holdall, arguments, &environment).unwrap();
    let Invocation::Run { options, .. } = parsed else { panic!("a server was asked for") };
    thread::spawn(move || server::run::run(*options).unwrap());
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return port;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the server does not listen");
}

/// The place of the server, and what its clients trust.
struct Target {
    port: u16,
    config: Arc<ClientConfig>,
}

/// A request, and its reply if nothing is refused.
type Step = (Vec<u8>, Vec<u8>);

type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Target {
    fn new(port: u16, folder: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("cert")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Self { port, config: Arc::new(config) }
    }

    fn connect(&self) -> io::Result<Stream> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
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
            let is_refused = reply.starts_with(b"SERVER_ERROR ");
            assert!(is_refused || want.starts_with(&reply), "{}", reply.escape_ascii());
            reply == *want
        })
    }

    /// The server is as it was, once its loop has seen that there is memory again.
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
    assert!(!is_silence, "no answer to a handshake: {error}");
}

/// What comes, up to the length of the reply, an error in its place, or the connection's end.
fn ask(stream: &mut Stream, request: &[u8], len: usize) -> Vec<u8> {
    // The server may have closed: the reply tells.
    let _ = stream.write_all(request);
    let (mut reply, mut part) = (Vec::new(), [0; 65536]);
    while reply.len() < len && !(reply.starts_with(b"SERVER_ERROR ") && reply.ends_with(b"\r\n")) {
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
        (format!("get{}\r\n", " small".repeat(500)), format!("{}END\r\n", hello.repeat(500))),
        ("mn\r\n".to_owned(), "MN\r\n".to_owned()),
    ];
    steps.map(|(request, reply)| (request.into_bytes(), reply.into_bytes())).to_vec()
}

#[test]
fn no_failed_allocation_of_a_tls_session_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let target = Target::new(start(folder.path()), folder.path());
    exempt_thread(true);
    let steps = session();
    assert!(target.plays(&steps));
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
