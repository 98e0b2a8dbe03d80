//! A TLS session with a program in this process, each of whose allocations fails once.
//!
//! The test makes `reserve::Failing` its global allocator and starts the program.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reserve::{Outcome, exempt_thread, failing_from};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Bytes of a value that exceeds a record, and is chained in a store.
const LARGE: usize = 100_000;

/// The maximum wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a self-signed certificate and its key: the files `cert` and `key` of the folder.
pub fn certify(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(folder.join("key")).arg("-out").arg(folder.join("cert"));
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A request, and its reply if no allocation is refused.
type Step = (Vec<u8>, Vec<u8>);

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A TLS program, and the session of its clients.
#[derive(Debug)]
pub struct Session {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    steps: Vec<Step>,
    /// An error may follow the values of a request's first keys.
    has_late_errors: bool,
}

impl Session {
    /// A session with the holder of the folder's certificate, including one request for `keys`
    /// keys.
    #[must_use]
    pub fn new(address: SocketAddr, folder: &Path, keys: usize, has_late_errors: bool) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("cert")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Self { address, config: Arc::new(config), steps: steps(keys), has_late_errors }
    }

    /// Refuses each allocation of the session, first only that one, then also all that follow it.
    /// After each, a whole session is served.
    pub fn refuse_each_allocation(&self) {
        exempt_thread(true);
        self.serves();
        let (is_served, Outcome { asked, .. }) = failing_from(u64::MAX, false, || self.plays());
        assert!(is_served && asked > 50, "only {asked} allocations: is the session played?");
        let mut refused = 0;
        for kth in 1..=asked {
            for is_lasting in [false, true] {
                let (_, outcome) = failing_from(kth, is_lasting, || self.plays());
                refused += outcome.refused;
                self.serves();
            }
        }
        assert!(refused > asked, "{refused} refused of {asked}");
    }

    fn connect(&self) -> io::Result<Stream> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let name = "localhost".try_into().unwrap();
        let mut session = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(session, socket))
    }

    /// Plays the session over one connection. Returns true if each request had its own reply;
    /// otherwise the first other one was refused, or its connection ended, and no other bytes came.
    fn plays(&self) -> bool {
        let Ok(mut stream) = self.connect().inspect_err(assert_no_silence) else { return false };
        self.steps.iter().all(|(request, want)| {
            let reply = self.ask(&mut stream, request, want.len());
            let before = self.error_in(&reply).unwrap_or(reply.len());
            assert!(want.starts_with(&reply[..before]), "{}", reply.escape_ascii());
            reply == *want
        })
    }

    /// Asserts that the program serves as before, once its loop has seen that there is memory
    /// again.
    fn serves(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.plays() {
            assert!(Instant::now() < end, "it does not serve");
        }
    }

    /// Reads up to the length of the reply, an error instead, or the connection's end.
    fn ask(&self, stream: &mut Stream, request: &[u8], len: usize) -> Vec<u8> {
        // The program may have closed; the reply shows that.
        let _ = stream.write_all(request);
        let (mut reply, mut part) = (Vec::new(), [0; 65536]);
        while reply.len() < len && self.error_in(&reply).is_none() {
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

    /// The start of the error in a reply that ends with one.
    fn error_in(&self, reply: &[u8]) -> Option<usize> {
        const ERROR: &[u8] = b"SERVER_ERROR ";
        let at = if self.has_late_errors {
            reply.windows(ERROR.len()).position(|window| window == ERROR)?
        } else {
            reply.starts_with(ERROR).then_some(0)?
        };
        reply.ends_with(b"\r\n").then_some(at)
    }
}

/// Asserts that a connection ends at once, or is served.
fn assert_no_silence(error: &io::Error) {
    let is_silence = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
    assert!(!is_silence, "no answer: {error}");
}

fn steps(keys: usize) -> Vec<Step> {
    let large = "v".repeat(LARGE);
    let hello = "VALUE small 0 5\r\nhello\r\n";
    let steps = [
        ("set small 0 0 5\r\nhello\r\n".to_owned(), "STORED\r\n".to_owned()),
        ("get small\r\n".to_owned(), format!("{hello}END\r\n")),
        (format!("set large 0 0 {LARGE}\r\n{large}\r\n"), "STORED\r\n".to_owned()),
        ("get large\r\n".to_owned(), format!("VALUE large 0 {LARGE}\r\n{large}\r\nEND\r\n")),
        (format!("get{}\r\n", " small".repeat(keys)), format!("{}END\r\n", hello.repeat(keys))),
        ("mn\r\n".to_owned(), "MN\r\n".to_owned()),
    ];
    steps.map(|(request, reply)| (request.into_bytes(), reply.into_bytes())).to_vec()
}
