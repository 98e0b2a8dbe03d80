//! A connection to a server, and the lines and blocks of memcached's text protocol on it.

use std::fmt;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use certs::ClientOptions;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// The longest line of a reply, in bytes: a key has 250, three times that if it is encoded.
const LINE_BYTES_MAX: u64 = 8192;

/// memcached's port, for addresses without one.
const PORT: u16 = 11211;

/// A failure of a connection or of a server's reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system's error, for an address.
    #[error("{address}: {error}")]
    Io {
        /// The server.
        address: String,
        /// The reason.
        error: io::Error,
    },
    /// A reply that does not fit the request.
    #[error("{address}: {request} was answered by {reply:?}{}", hint(reply))]
    Reply {
        /// The server.
        address: String,
        /// The request.
        request: &'static str,
        /// The reply's first line.
        reply: String,
    },
    /// A server that does not show its settings.
    #[error("{error}; {advice}")]
    NoSettings {
        /// Its answer.
        error: Box<Self>,
        /// The flag that may be missing.
        advice: &'static str,
    },
    /// A listing of keys that does not end.
    #[error("{address}: SCAN does not end: {why}")]
    Endless {
        /// The server.
        address: String,
        /// Its answers.
        why: String,
    },
    /// The file of the login.
    #[error("--login {}: {why}", file.display())]
    Login {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The files of certificates.
    #[error("TLS: {0}")]
    Tls(#[from] certs::CertsError),
    /// Not a dump, or an incomplete one.
    #[error("the dump: {0}")]
    Dump(String),
    /// Reading or writing a file.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// A Redis that gets a request of memcached's protocol refuses it by a line with a minus.
fn hint(reply: &str) -> &'static str {
    match reply.starts_with("-ERR ") || reply.starts_with("-NOAUTH ") {
        true => "; dump and cp read a Redis by the address redis://HOST:PORT",
        false => "",
    }
}

/// The connection settings for servers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// TLS, with servers verified by these issuers (PEM).
    pub tls_ca: Option<PathBuf>,
    /// TLS with any certificate.
    pub tls_insecure: bool,
    /// A file whose first line is `USER:PASSWORD`.
    pub login: Option<PathBuf>,
    /// The silence after which a server has failed.
    pub timeout: Duration,
}

impl Options {
    /// The files that are read.
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        [&self.tls_ca, &self.login].into_iter().flatten().map(PathBuf::as_path).collect()
    }
}

/// The socket below a connection's stream.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection.
pub struct Connection {
    address: String,
    timeout: Duration,
    socket: Socket,
    has_tls: bool,
    stream: BufReader<Box<dyn Stream>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to `HOST`, `HOST:PORT` or `unix:PATH`, and logs in if the options require it.
    ///
    /// # Errors
    ///
    /// When the server is not reached within the timeout, its certificate is not trusted, or it
    /// refuses the login.
    pub fn open(address: &str, options: &Options) -> Result<Self, Error> {
        let failed = |error| Error::Io { address: address.to_owned(), error };
        let mut has_tls = false;
        let (socket, stream): (_, Box<dyn Stream>) = match address.strip_prefix("unix:") {
            Some(path) => {
                let stream = UnixStream::connect(path).map_err(failed)?;
                stream.set_read_timeout(Some(options.timeout)).map_err(failed)?;
                stream.set_write_timeout(Some(options.timeout)).map_err(failed)?;
                (Socket::Unix(stream.try_clone().map_err(failed)?), Box::new(stream))
            }
            None => {
                let stream = tcp(address, options.timeout).map_err(failed)?;
                let socket = Socket::Tcp(stream.try_clone().map_err(failed)?);
                has_tls = options.tls_ca.is_some() || options.tls_insecure;
                if has_tls {
                    (socket, Box::new(encrypted(stream, address, options)?))
                } else {
                    (socket, Box::new(stream))
                }
            }
        };
        let mut connection = Self {
            address: address.to_owned(),
            timeout: options.timeout,
            socket,
            has_tls,
            stream: BufReader::new(stream),
        };
        if let Some(file) = &options.login {
            connection.log_in(file)?;
        }
        Ok(connection)
    }

    /// The login of memcached's `-Y`: a `set` whose value is name and password.
    fn log_in(&mut self, file: &PathBuf) -> Result<(), Error> {
        let (user, password) = login_in(file)?;
        let block = format!("{user} {password}");
        self.send(format!("set auth 0 0 {}\r\n{block}\r\n", block.len()).as_bytes())?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            reply => Err(self.unexpected("the login", reply)),
        }
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The other end's address; a unix socket has none.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(stream) => stream.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// True if it is encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// Waits for lines without a limit from now on, for events that may never come.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn wait_without_limit(&mut self) -> Result<(), Error> {
        let done = match &self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(None),
            Socket::Unix(stream) => stream.set_read_timeout(None),
        };
        done.map_err(|error| self.failed(error))
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// When the server does not accept them.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).map_err(|error| self.failed(error))
    }

    /// The next line of a reply, without its end; bytes that are not text are replaced.
    ///
    /// # Errors
    ///
    /// When the connection ends or the line is too long.
    pub fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.failed(error))?;
        if line.pop() != Some(b'\n') {
            let kind = io::ErrorKind::UnexpectedEof;
            let why = if line.is_empty() {
                "closed the connection"
            } else {
                "the connection ended in the middle of a line (does the port expect TLS?)"
            };
            return Err(self.failed(io::Error::new(kind, why)));
        }
        Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned())
    }

    /// A block of `len` bytes and the line end after it.
    ///
    /// # Errors
    ///
    /// When the connection ends, or the block has another length.
    pub fn block(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut block = Vec::new();
        // Memory grows with the received data, whatever the announced length.
        let read = (&mut self.stream).take(len as u64 + 2).read_to_end(&mut block);
        read.map_err(|error| self.failed(error))?;
        if block.len() != len + 2 || !block.ends_with(b"\r\n") {
            return Err(self.unexpected("a value", "a block of another length"));
        }
        block.truncate(len);
        Ok(block)
    }

    /// The error for a reply that does not fit its request.
    #[must_use]
    pub fn unexpected(&self, request: &'static str, reply: &str) -> Error {
        Error::Reply { address: self.address.clone(), request, reply: reply.to_owned() }
    }

    fn failed(&self, error: io::Error) -> Error {
        // The system reports a socket's time limit as EAGAIN: "Resource temporarily unavailable".
        let error = match error.kind() {
            kind @ (io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let seconds = self.timeout.as_secs_f64();
                io::Error::new(kind, format!("no answer within {seconds} s"))
            }
            _ => error,
        };
        Error::Io { address: self.address.clone(), error }
    }
}

/// User and password in the first line of a file, or of a pipe: `--login <(..)`.
pub(crate) fn login_in(file: &PathBuf) -> Result<(String, String), Error> {
    let login = fs::read_to_string(file).and_then(|text| files::login_in(&text));
    login.map_err(|error| Error::Login { file: file.clone(), why: error.to_string() })
}

fn tcp(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for target in hostport::with_port(address, PORT).to_socket_addrs()? {
        match TcpStream::connect_timeout(&target, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn encrypted(
    stream: TcpStream,
    address: &str,
    options: &Options,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Error> {
    let failed =
        |why: String| Error::Io { address: address.to_owned(), error: io::Error::other(why) };
    let files = ClientOptions { ca_cert: options.tls_ca.clone(), ..ClientOptions::default() };
    let config = certs::client_config(&files)?;
    let (host, _) = hostport::split(address);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let session = ClientConnection::new(config, name).map_err(|error| failed(error.to_string()))?;
    Ok(StreamOwned::new(session, stream))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_ipv6_address_needs_no_brackets_and_no_port() {
        let options = Options { timeout: Duration::from_millis(100), ..Options::default() };
        let redis = |address| crate::Redis::open(address, &options).map(drop);
        for opened in [
            Connection::open("::1", &options).map(drop),
            redis("redis://::1"),
            redis("redis://[::1]/3"),
        ] {
            // Some host may have a server there; most refuse the connection.
            let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("lookup"), "{error}");
        }
    }

    #[test]
    fn a_redis_is_recognized_by_its_refusal() {
        let text = |reply: &str| {
            let address = "a:1".to_owned();
            Error::Reply { address, request: "stats", reply: reply.to_owned() }.to_string()
        };
        assert!(text("-ERR unknown command 'stats'").ends_with("redis://HOST:PORT"));
        assert_eq!(text("ERROR"), "a:1: stats was answered by \"ERROR\"");
    }

    #[test]
    fn a_silent_server_gives_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let timeout = Duration::from_millis(100);
        for tls_insecure in [false, true] {
            let options = Options { timeout, tls_insecure, ..Options::default() };
            let mut connection = Connection::open(&address, &options).unwrap();
            let error = connection.send(b"stats\r\n").and_then(|()| connection.line());
            let text = error.unwrap_err().to_string();
            assert_eq!(text, format!("{address}: no answer within 0.1 s"));
        }
    }
}
