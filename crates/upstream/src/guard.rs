//! The layer between a socket and its pipeline: TLS, and a login before the first request.
//!
//! ```text
//!     socket -> Guard::receive -> plain bytes -> Pipeline
//!     socket <- Guard::outgoing <- Guard::send <- Pipeline
//! ```
//!
//! Connections without either have no guard.

use std::io::{self, Read, Write};

use proto::binary::answer::{Parsed, parse};
use rustls::ClientConnection;
use thiserror::Error;

use crate::login::Login;
use crate::sasl::{Sasl, SaslError, Step};
use crate::settings::Protocol;
use crate::tls::{SessionError, Tls};

/// The reason why a connection cannot be used.
#[derive(Debug, Error)]
pub(crate) enum GuardError {
    #[error("the login is not answered")]
    LoginUnanswered,
    #[error("the login is answered by no packet")]
    NoPacket,
    /// Refused, with the server's line.
    #[error("the login is refused: {}", .0.escape_ascii())]
    Refused(Box<[u8]>),
    #[error(transparent)]
    Sasl(#[from] SaslError),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("TLS: {0}")]
    TlsBytes(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Handshake,
    Login,
    Open,
}

/// TLS and login of one connection.
pub(crate) struct Guard {
    session: Option<ClientConnection>,
    login: Option<(Login, Protocol)>,
    /// The SASL login, if the protocol is binary.
    sasl: Option<Sasl>,
    stage: Stage,
    /// Bytes for the socket; those before `sent` have left.
    out: Vec<u8>,
    sent: usize,
    /// The start of the answer to the login.
    answer: Vec<u8>,
    /// The peer has closed its side.
    is_ended: bool,
}

/// The maximum length of an answer to a login, in bytes.
const ANSWER_BYTES_MAX: usize = 1024;

/// Maximum bytes of the body of such a packet.
const SASL_ANSWER_BYTES_MAX: u32 = 512;

/// Plain bytes encrypted at once.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

impl Guard {
    /// Creates the guard of a new connection; `None` if it needs none.
    ///
    /// # Errors
    ///
    /// The reason why there can be no session.
    pub(crate) fn new(
        tls: Option<(&Tls, &str)>,
        login: Option<(&Login, Protocol)>,
    ) -> Result<Option<Box<Self>>, SessionError> {
        if tls.is_none() && login.is_none() {
            return Ok(None);
        }
        let session = tls.map(|(tls, name)| tls.session(name)).transpose()?;
        let mut guard = Self {
            session,
            login: login.map(|(login, protocol)| (login.clone(), protocol)),
            sasl: None,
            stage: Stage::Handshake,
            out: Vec::new(),
            sent: 0,
            answer: Vec::new(),
            is_ended: false,
        };
        guard.advance();
        guard.seal();
        Ok(Some(Box::new(guard)))
    }

    /// Returns true if requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Returns true if it has no more work.
    pub(crate) fn is_done(&self) -> bool {
        self.is_open() && self.session.is_none() && self.outgoing().is_empty()
    }

    /// Returns true if the peer has closed its side.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes bytes from the socket, and appends those for the pipeline to `plain`.
    ///
    /// # Errors
    ///
    /// The reason why the connection cannot be used. An alert about it may be outgoing.
    pub(crate) fn receive(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), GuardError> {
        let begin = plain.len();
        let opened = self.open(received, plain);
        self.seal();
        opened?;
        self.advance();
        if self.stage == Stage::Login {
            self.answer.extend(plain.drain(begin..));
            if self.is_let_in()? {
                plain.append(&mut self.answer);
                self.stage = Stage::Open;
            } else if self.answer.len() > ANSWER_BYTES_MAX {
                return Err(GuardError::LoginUnanswered);
            }
        }
        self.seal();
        Ok(())
    }

    /// Reads complete answers to the login, up to the one that accepts it.
    fn is_let_in(&mut self) -> Result<bool, GuardError> {
        let Some(mut sasl) = self.sasl.take() else { return self.is_stored() };
        loop {
            let (step, consumed) = match parse(&self.answer, SASL_ANSWER_BYTES_MAX) {
                Parsed::Bad => return Err(GuardError::NoPacket),
                Parsed::Incomplete { .. } => {
                    self.sasl = Some(sasl);
                    return Ok(false);
                }
                Parsed::Response { response, consumed } => (sasl.take(&response)?, consumed),
            };
            self.answer.drain(..consumed);
            match step {
                Step::Done => return Ok(true),
                Step::Send(packet) => self.send(&packet),
            }
        }
    }

    /// Reads the answer to the text login, which is a line. Returns false while it is incomplete.
    fn is_stored(&mut self) -> Result<bool, GuardError> {
        let Some(end) = memchr::memchr(b'\n', &self.answer) else { return Ok(false) };
        let rest = self.answer.split_off(end + 1);
        let line = std::mem::replace(&mut self.answer, rest);
        if line == b"STORED\r\n" {
            return Ok(true);
        }
        Err(GuardError::Refused(line.trim_ascii_end().into()))
    }

    fn open(&mut self, mut received: &[u8], plain: &mut Vec<u8>) -> Result<(), GuardError> {
        let Some(session) = &mut self.session else {
            plain.extend_from_slice(received);
            return Ok(());
        };
        while !received.is_empty() && !self.is_ended {
            session.read_tls(&mut received)?;
            let state = session.process_new_packets()?;
            let (start, room) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(start + room, 0);
            let fresh = plain.get_mut(start..).unwrap_or_default();
            session.reader().read_exact(fresh)?;
            self.is_ended = state.peer_has_closed();
        }
        Ok(())
    }

    /// Moves from stage to stage until it has to wait.
    fn advance(&mut self) {
        let is_handshaking = self.session.as_ref().is_some_and(|session| session.is_handshaking());
        if self.stage == Stage::Handshake && !is_handshaking {
            match self.login.take() {
                None => self.stage = Stage::Open,
                Some((login, Protocol::Text)) => {
                    self.stage = Stage::Login;
                    self.send(&login.command());
                }
                Some((login, Protocol::Binary)) => {
                    self.stage = Stage::Login;
                    let (sasl, packet) = Sasl::new(login);
                    self.sasl = Some(sasl);
                    self.send(&packet);
                }
            }
        }
    }

    /// Sends plain bytes.
    pub(crate) fn send(&mut self, plain: &[u8]) {
        match &mut self.session {
            None => self.out.extend_from_slice(plain),
            Some(session) => {
                // Its buffer is memory, which accepts everything.
                let _ = session.writer().write_all(plain);
                self.seal();
            }
        }
    }

    /// Takes the session's output for the socket.
    fn seal(&mut self) {
        if let Some(session) = &mut self.session {
            // Writing into memory does not fail.
            while session.wants_write() && session.write_tls(&mut self.out).is_ok_and(|len| len > 0)
            {
            }
        }
    }

    /// The bytes to send now.
    pub(crate) fn outgoing(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Records that `count` bytes have left.
    pub(crate) fn has_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking() -> Box<Guard> {
        let login = Login::new("app", "a b");
        Guard::new(None, Some((&login, Protocol::Text))).unwrap().unwrap()
    }

    #[test]
    fn the_login_is_sent_first() {
        assert!(Guard::new(None, None).unwrap().is_none());
        let mut guard = asking();
        assert_eq!(guard.outgoing(), b"set login 0 0 7\r\napp a b\r\n");
        guard.has_sent(guard.outgoing().len());
        let mut plain = Vec::new();
        guard.receive(b"STO", &mut plain).unwrap();
        assert!(!guard.is_open());
        guard.receive(b"RED\r\nEND\r\n", &mut plain).unwrap();
        assert!(guard.is_done());
        assert_eq!(plain, b"END\r\n");
    }

    #[test]
    fn a_refused_login_reports_the_servers_message() {
        let (mut plain, mut guard) = (Vec::new(), asking());
        let why = guard.receive(b"CLIENT_ERROR no\r\n", &mut plain).unwrap_err();
        assert_eq!(why.to_string(), "the login is refused: CLIENT_ERROR no");
        let mut guard = asking();
        assert!(guard.receive(&[b'x'; 2000], &mut plain).is_err());
        assert!(!format!("{:?}", Login::new("app", "secret")).contains("secret"));
    }
}
