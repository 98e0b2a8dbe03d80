//! TLS and logins of connections: certificates and passwords are read once for all of them.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context, Error, Result, bail, ensure};
use certs::ClientOptions;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::spec::{Credentials, Protocol, Spec, Target, Tls};
use super::transport::{TlsClient, Transport};
use crate::number::fits;

/// The TLS and login of every new connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Security {
    tls: Option<TlsClient>,
    login: Option<Login>,
}

/// A login, as its bytes.
#[derive(Clone)]
struct Login {
    request: Vec<u8>,
    protocol: Protocol,
}

impl std::fmt::Debug for Login {
    /// Hides the bytes, because they include a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// memcached's binary command for a login.
const SASL_AUTH: u8 = 0x21;

/// A login without an answer for this time has failed.
const LOGIN_PATIENCE_SECS: i64 = 5;

impl Security {
    /// The security settings of `spec`.
    ///
    /// # Errors
    ///
    /// When a file of certificates, of a key or of a login is unusable.
    pub(super) fn of(spec: &Spec) -> Result<Self> {
        let login = match (&spec.credentials, &spec.login) {
            (Some(Credentials(line)), _) => Some(Login::of(line, spec.protocol)?),
            (None, Some(file)) => Some(Login::read(file, spec.protocol)?),
            (None, None) => None,
        };
        let ca_cert = match &spec.tls {
            None => return Ok(Self { login, ..Self::default() }),
            Some(Tls::Verified(path)) => Some(path.clone()),
            Some(Tls::Unverified) => None,
        };
        let (chain_cert, key) = spec.identity.clone().unzip();
        let options = ClientOptions { ca_cert, chain_cert, key };
        let mut config = Arc::unwrap_or_clone(certs::client_config(&options).map_err(Error::msg)?);
        // Records of full length: how a server handles them is a part of the measurement.
        config.max_fragment_size = None;
        let tls = TlsClient { config: Arc::new(config), name: spec.tls_name.clone() };
        Ok(Self { tls: Some(tls), login })
    }

    /// Connects, and logs in if required; `waits` for the TCP connection, and a login waits, too.
    pub(super) fn open(&self, target: &Target, waits: bool) -> Result<Transport> {
        let waits = waits || self.login.is_some();
        let mut transport = Transport::connect(target, self.tls.as_ref(), waits)?;
        if let Some(login) = &self.login {
            login.perform(&mut transport).with_context(|| target.to_string())?;
        }
        Ok(transport)
    }
}

impl Login {
    /// Reads `USER:PASSWORD`, or a Redis server's `PASSWORD`, from the first line of a file.
    fn read(file: &Path, protocol: Protocol) -> Result<Self> {
        let named = || format!("--login {}", file.display());
        let text = fs::read_to_string(file).with_context(named)?;
        Self::of(text.lines().next().unwrap_or_default(), protocol).with_context(named)
    }

    /// Parses such a line.
    fn of(line: &str, protocol: Protocol) -> Result<Self> {
        let (user, password) = match line.split_once(':') {
            Some((user, password)) => (Some(user), password),
            None => (None, line),
        };
        ensure!(!password.is_empty(), "the login is not USER:PASSWORD");
        ensure!(user.is_some() || protocol == Protocol::Resp, "the login has no user");
        Ok(Self { request: request(protocol, user.unwrap_or_default(), password), protocol })
    }

    /// Logs a new connection in.
    ///
    /// # Errors
    ///
    /// When the server refuses, does not answer, or disconnects.
    fn perform(&self, transport: &mut Transport) -> Result<()> {
        let (mut sent, mut reply, mut buffer) = (0, Vec::new(), [0; 1024]);
        while sent < self.request.len() {
            match transport.write(&self.request[sent..]) {
                Ok(taken) => sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(transport, PollFlags::OUT)?;
                }
                Err(error) => return Err(error).context("the login could not be sent"),
            }
        }
        while !transport.is_flushed()? {
            wait(transport, PollFlags::OUT)?;
        }
        loop {
            if let Some(is_in) = self.outcome(&reply) {
                ensure!(is_in, "the server refused the login: {}", reply.escape_ascii());
                return Ok(());
            }
            ensure!(reply.len() < 4096, "no reply to a login: {}", reply[..60].escape_ascii());
            wait(transport, PollFlags::IN)?;
            match transport.read(&mut buffer).context("the reply to the login")? {
                Some(0) => bail!("the server closed a connection that was to be logged in"),
                Some(bytes) => reply.extend_from_slice(&buffer[..bytes]),
                None => {}
            }
        }
    }

    /// True if the reply, if it is whole, accepts the login.
    fn outcome(&self, reply: &[u8]) -> Option<bool> {
        if self.protocol != Protocol::Binary {
            return reply.ends_with(b"\r\n").then(|| reply == b"STORED\r\n" || reply == b"+OK\r\n");
        }
        let header = reply.first_chunk::<24>()?;
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let is_whole = reply.len() >= 24 + usize::try_from(body).ok()?;
        is_whole.then_some(header[0] == 0x81 && header[6..8] == [0, 0])
    }
}

/// memcached's `set` of any key in text, its SASL PLAIN in binary; Redis's AUTH.
fn request(protocol: Protocol, user: &str, password: &str) -> Vec<u8> {
    match protocol {
        Protocol::Text | Protocol::Meta => {
            let data = format!("{user} {password}");
            format!("set auth 0 0 {}\r\n{data}\r\n", data.len()).into_bytes()
        }
        Protocol::Binary => {
            let (name, data) = ("PLAIN", format!("\0{user}\0{password}"));
            let mut bytes = vec![0; 24];
            (bytes[0], bytes[1], bytes[3]) = (0x80, SASL_AUTH, 5);
            let body: u32 = fits(name.len() + data.len());
            bytes[8..12].copy_from_slice(&body.to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(data.as_bytes());
            bytes
        }
        Protocol::Resp => {
            let words: Vec<&str> = [user, password].into_iter().filter(|w| !w.is_empty()).collect();
            let bulk = |word: &str| format!("${}\r\n{word}\r\n", word.len());
            let head = format!("*{}\r\n{}", words.len() + 1, bulk("AUTH"));
            (head + &words.iter().map(|word| bulk(word)).collect::<String>()).into_bytes()
        }
    }
}

fn wait(transport: &Transport, flags: PollFlags) -> Result<()> {
    let patience = Timespec { tv_sec: LOGIN_PATIENCE_SECS, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::from_borrowed_fd(transport.fd(), flags)], Some(&patience))?;
    ensure!(ready > 0, "no reply to the login for {LOGIN_PATIENCE_SECS} seconds");
    Ok(())
}
