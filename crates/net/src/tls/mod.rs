//! TLS: converts one session's records to plain bytes and back.
//!
//! ```text
//!     socket -> incoming (the worker's) -> Tls::open -> plain, behind what was left -> Service
//!     Service -> scratch -> Tls::seal -> sealed (the worker's) -> socket; the rest to pending
//! ```
//!
//! The protocol is rustls's, by its unbuffered interface. A connection holds the session, and of
//! its bytes only an incomplete record (`partial`) and the bytes that its socket did not take, both
//! bounded and charged. All bytes of a read are decrypted at once, so none wait where the poller
//! does not see them.

mod acceptor;

use std::fmt;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

pub(crate) use acceptor::HANDSHAKE_PATIENCE;
pub use acceptor::{TlsAcceptor, TlsError, TlsMode, TlsOptions, Verify, knows_suite};

/// Bytes read from a socket at once.
const READ_BYTES: usize = 32 * 1024;

/// The longest part of a message that is kept, in bytes: a client's chain of certificates, or a
/// record.
const PARTIAL_BYTES_MAX: usize = 32 * 1024;

/// The maximum output of [`Tls::open`] for one read, in bytes; a worker's read buffer has this much
/// more room.
pub(crate) const OPENED_BYTES_MAX: usize = READ_BYTES + PARTIAL_BYTES_MAX;

/// Records are at most this much longer than their content, in bytes: header, nonce, content type
/// and tag.
const RECORD_OVERHEAD: usize = 64;

/// Plain bytes in a record.
const RECORD_BYTES: usize = 16 * 1024;

/// Bytes of a session in addition to its buffers and its client's certificates: measured with the
/// sessions of 1000 idle clients.
pub(crate) const SESSION_BYTES: isize = 16 * 1024;

/// The TLS session of one connection.
pub(crate) struct Tls {
    session: UnbufferedServerConnection,
    /// An incomplete record or handshake message.
    partial: Vec<u8>,
    /// The end of the time for the handshake, in the worker's milliseconds; `None` once it is done.
    handshake_deadline_ms: Option<u64>,
    /// The peer has announced the end of its data.
    is_ended: bool,
}

/// The buffers that a worker lends to the TLS sessions that it serves, one at a time.
#[derive(Debug)]
pub(crate) struct Scratch {
    incoming: Vec<u8>,
    /// Bytes to send. Empty between connections.
    pub(crate) sealed: Vec<u8>,
    /// Plain bytes of sessions that were sealed and are not in the worker's counters yet.
    pub(crate) uncounted: u64,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Plain bytes.
    pub(crate) len: usize,
    /// It completed the handshake.
    pub(crate) is_new: bool,
}

/// The session is broken. The alert for the peer may be in `sealed`.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) reason: String,
    /// Its handshake was not complete.
    pub(crate) in_handshake: bool,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { incoming: vec![0; OPENED_BYTES_MAX], sealed: Vec::new(), uncounted: 0 }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    pub(crate) fn new(session: UnbufferedServerConnection, handshake_deadline_ms: u64) -> Self {
        Self {
            session,
            partial: Vec::new(),
            handshake_deadline_ms: Some(handshake_deadline_ms),
            is_ended: false,
        }
    }

    /// The end of the time for the handshake; `None` once it is done.
    pub(crate) fn handshake_deadline_ms(&self) -> Option<u64> {
        self.handshake_deadline_ms
    }

    /// Bytes of the session, which keeps the certificates of its client: all that the client sent,
    /// even those that its own does not need.
    pub(crate) fn session_bytes(&self) -> isize {
        let certificates = self.session.peer_certificates().unwrap_or_default();
        let bytes: usize = certificates.iter().map(|certificate| certificate.len()).sum();
        SESSION_BYTES + bytes.cast_signed()
    }

    /// Bytes held in addition to the session.
    pub(crate) fn buffered(&self) -> usize {
        self.partial.capacity()
    }

    /// The peer has announced the end of its data.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The place for the next bytes from the socket: after the partial record.
    pub(crate) fn room<'s>(&self, scratch: &'s mut Scratch) -> &'s mut [u8] {
        let kept = self.partial.len();
        let end = (kept + READ_BYTES).min(scratch.incoming.len());
        scratch.incoming[..kept].copy_from_slice(&self.partial);
        &mut scratch.incoming[kept..end]
    }

    /// Takes `got` bytes that were read into [`Self::room`]. Their content goes into `plain`, which
    /// has room for [`OPENED_BYTES_MAX`], and the bytes to send in answer into `scratch.sealed`.
    ///
    /// # Errors
    ///
    /// Any fault of the peer.
    pub(crate) fn open(
        &mut self,
        got: usize,
        scratch: &mut Scratch,
        plain: &mut [u8],
    ) -> Result<Opened, Broken> {
        let was_in_handshake = self.handshake_deadline_ms.is_some();
        let Scratch { incoming, sealed, .. } = scratch;
        let incoming = &mut incoming[..self.partial.len() + got];
        let opened = self.process(incoming, plain, sealed);
        let (len, used) = opened.map_err(|error| {
            self.append_alert(sealed);
            Broken { reason: explained(&error, incoming), in_handshake: was_in_handshake }
        })?;
        let rest = &incoming[used..];
        if rest.len() > PARTIAL_BYTES_MAX {
            let reason = "a message that is too long".to_owned();
            return Err(Broken { reason, in_handshake: was_in_handshake });
        }
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
        let is_new = was_in_handshake && self.handshake_deadline_ms.is_none();
        Ok(Opened { len, is_new })
    }

    /// Returns the number of plain bytes in `plain` and of consumed bytes of `incoming`.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plain: &mut [u8],
        sealed: &mut Vec<u8>,
    ) -> Result<(usize, usize), rustls::Error> {
        let (mut len, mut used) = (0, 0);
        loop {
            let UnbufferedStatus { discard, state } =
                self.session.process_tls_records(&mut incoming[used..]);
            let is_done = match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let payload = record?.payload;
                        // The plain bytes are fewer than the sealed ones, which all have room.
                        plain[len..len + payload.len()].copy_from_slice(payload);
                        len += payload.len();
                    }
                    false
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, sealed)?;
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::PeerClosed => {
                    self.is_ended = true;
                    false
                }
                ConnectionState::WriteTraffic(_) => {
                    self.handshake_deadline_ms = None;
                    true
                }
                ConnectionState::BlockedHandshake | ConnectionState::Closed => true,
                // Data before the handshake's end is never offered.
                _ => return Err(rustls::Error::General("early data".to_owned())),
            };
            used += discard;
            if is_done {
                return Ok((len, used));
            }
        }
    }

    /// Appends `plain` as records to `sealed`.
    ///
    /// # Errors
    ///
    /// The session cannot send any more.
    pub(crate) fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let records = plain.len() / RECORD_BYTES + 1;
        let room = plain.len() + records * RECORD_OVERHEAD;
        self.write(sealed, room, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Appends the end of the stream to `sealed`, if the session can still send.
    pub(crate) fn append_end(&mut self, sealed: &mut Vec<u8>) {
        if self.handshake_deadline_ms.is_none() {
            // A peer that misses it learns the end from the socket.
            let _ = self
                .write(sealed, RECORD_OVERHEAD, |traffic, room| traffic.queue_close_notify(room));
        }
    }

    /// Advances the session to where it can send, and appends the output of `put`.
    fn write(
        &mut self,
        sealed: &mut Vec<u8>,
        room: usize,
        put: impl Fn(
            &mut rustls::unbuffered::WriteTraffic<'_, rustls::server::ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> Result<(), rustls::Error> {
        loop {
            // The partial record is passed in unchanged: the session uses its place.
            let UnbufferedStatus { discard, state } =
                self.session.process_tls_records(&mut self.partial);
            let is_done = match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    append(sealed, room, |room| match put(&mut traffic, room) {
                        Ok(written) => Ok(written),
                        Err(EncryptError::InsufficientSize(size)) => Err(Some(size)),
                        Err(EncryptError::EncryptExhausted) => Err(None),
                    })?;
                    true
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, sealed)?;
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::PeerClosed => {
                    self.is_ended = true;
                    false
                }
                _ => return Err(rustls::Error::General("the session has ended".to_owned())),
            };
            self.partial.drain(..discard);
            if is_done {
                return Ok(());
            }
        }
    }

    /// Appends the alert about the fault, if there is one to send.
    fn append_alert(&mut self, sealed: &mut Vec<u8>) {
        let status = self.session.process_tls_records(&mut []);
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
            // An alert that cannot be sent is a small loss: the connection ends.
            let _ = encode(&mut data, sealed);
        }
    }
}

/// Appends the session's own messages.
fn encode(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, rustls::server::ServerConnectionData>,
    sealed: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    append(sealed, RECORD_BYTES, |room| match data.encode(room) {
        Ok(written) => Ok(written),
        Err(EncodeError::InsufficientSize(size)) => Err(Some(size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
    })
}

/// Lets `put` write after `out`, with room for `room` bytes, or for as many as it demands.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut put: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> Result<(), rustls::Error> {
    let start = out.len();
    out.resize(start + room, 0);
    let mut written = put(&mut out[start..]);
    if let Err(Some(InsufficientSizeError { required_size })) = written {
        out.resize(start + required_size, 0);
        written = put(&mut out[start..]);
    }
    out.truncate(start + *written.as_ref().unwrap_or(&0));
    match written {
        Ok(_) => Ok(()),
        Err(_) => Err(rustls::Error::General("nothing can be sent".to_owned())),
    }
}

/// rustls's message, or holdall's own for the most common mistake.
fn explained(error: &rustls::Error, incoming: &[u8]) -> String {
    let is_record = matches!(incoming.first(), None | Some(20..=24));
    if is_record { error.to_string() } else { format!("not TLS: {error}") }
}
