//! Transports of a connection: a TCP or unix socket, TLS over TCP, or UDP datagrams with
//! memcached's frame.
//!
//! A TCP connection is opened without waiting: until then, its socket accepts nothing, as if it
//! were full, so that reconnecting stalls no other connection of the thread. A TLS handshake and a
//! login are waited for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::spec::Target;

/// One of the transports.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(OwnedFd),
    Tls(TcpStream, Box<ClientConnection>),
    Udp(UdpSocket, Box<Datagrams>),
}

/// The TLS of new connections.
#[derive(Clone, Debug)]
pub(super) struct TlsClient {
    pub(super) config: Arc<ClientConfig>,
    /// The name that certificates must have, if it is not the host's.
    pub(super) name: Option<String>,
}

/// The reply being assembled.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    request_id: u16,
    parts: Vec<Option<Vec<u8>>>,
}

/// Bytes of memcached's frame: request id, sequence number, number of datagrams, reserved.
const FRAME_BYTES: usize = 8;

/// The time after which a handshake has failed.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);

/// The time after which a connection attempt has failed.
const CONNECT_PATIENCE_SECS: i64 = 5;

/// Maximum number of datagrams of a reply: a megabyte in pieces of 1400 bytes.
const PARTS_MAX: u16 = 1024;

impl Transport {
    /// Connects; `waits` until a TCP connection is there.
    pub(super) fn connect(
        target: &Target,
        client: Option<&TlsClient>,
        waits: bool,
    ) -> Result<Self> {
        match (target, client) {
            (Target::Tcp(name, address), None) => plain(*address, waits)
                .map(Self::Plain)
                .with_context(|| format!("{name}: no connection")),
            (Target::Tcp(name, address), Some(client)) => {
                let shown = client.name.as_deref();
                tls(shown.unwrap_or_else(|| hostport::split(name).0), *address, &client.config)
                    .with_context(|| format!("{name}: no connection"))
            }
            (Target::Udp(name, address), _) => {
                udp(*address).with_context(|| format!("{name}: no socket"))
            }
            (Target::Unix(path), _) => {
                let stream = UnixStream::connect(path)
                    .with_context(|| format!("{}: no connection", path.display()))?;
                stream.set_nonblocking(true)?;
                Ok(Self::Plain(OwnedFd::from(stream)))
            }
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(stream, _) => stream.as_fd(),
            Self::Udp(socket, _) => socket.as_fd(),
        }
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(..))
    }

    /// Over UDP, ignores further datagrams of the current request.
    pub(super) fn forget(&mut self) {
        if let Self::Udp(_, datagrams) = self {
            datagrams.request_id = datagrams.request_id.wrapping_add(1);
            datagrams.parts.clear();
        }
    }

    /// Writes the accepted part of `bytes`; over UDP, a request is accepted whole.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::io::write(socket, bytes)?),
            Self::Tls(stream, session) => {
                let taken = session.writer().write(bytes)?;
                send(stream, session)?;
                if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
            }
            Self::Udp(socket, datagrams) => {
                datagrams.request_id = datagrams.request_id.wrapping_add(1);
                datagrams.parts.clear();
                let mut datagram = Vec::with_capacity(FRAME_BYTES + bytes.len());
                datagram.extend_from_slice(&datagrams.request_id.to_be_bytes());
                datagram.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
                datagram.extend_from_slice(bytes);
                socket.send(&datagram)?;
                Ok(bytes.len())
            }
        }
    }

    /// True if everything accepted was sent.
    pub(super) fn is_flushed(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) | Self::Udp(..) => Ok(true),
            Self::Tls(stream, session) => {
                send(stream, session)?;
                Ok(!session.wants_write())
            }
        }
    }

    /// Reads once. `None` if there is nothing yet; 0 at the end.
    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Self::Plain(socket) => rustix::io::read(socket, buffer).map_err(io::Error::from),
            Self::Tls(stream, session) => opened(stream, session, buffer),
            Self::Udp(socket, datagrams) => datagrams.receive(socket, buffer),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl Datagrams {
    /// A datagram of the current request; late or foreign ones are ignored. A whole reply is put
    /// into `buffer`.
    fn receive(&mut self, socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = socket.recv(buffer)?;
        let nothing = || Err(io::ErrorKind::WouldBlock.into());
        let Some(([id0, id1, seq0, seq1, count0, count1, _, _], payload)) =
            buffer[..bytes].split_first_chunk::<FRAME_BYTES>()
        else {
            return nothing();
        };
        let [id, sequence, count] =
            [[*id0, *id1], [*seq0, *seq1], [*count0, *count1]].map(u16::from_be_bytes);
        if id != self.request_id || sequence >= count || count > PARTS_MAX {
            return nothing();
        }
        let payload = payload.to_vec();
        self.parts.resize(usize::from(count), None);
        self.parts[usize::from(sequence)] = Some(payload);
        let whole: Option<Vec<&Vec<u8>>> = self.parts.iter().map(Option::as_ref).collect();
        let Some(reply) =
            whole.map(|parts| parts.into_iter().flatten().copied().collect::<Vec<u8>>())
        else {
            return nothing();
        };
        if reply.len() > buffer.len() {
            return Err(io::Error::other("a reply is longer than any that is asked for"));
        }
        // Repeated datagrams of it belong to no request.
        self.request_id = self.request_id.wrapping_add(1);
        self.parts.clear();
        buffer[..reply.len()].copy_from_slice(&reply);
        Ok(reply.len())
    }
}

fn plain(address: SocketAddr, waits: bool) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A deliberate close uses a reset: thousands of connections per second would run out of ports.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) if waits => {
            let patience = Timespec { tv_sec: CONNECT_PATIENCE_SECS, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&patience))?;
            ensure!(ready > 0, "no answer for {CONNECT_PATIENCE_SECS} seconds");
            sockopt::socket_error(&socket)??;
        }
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(socket)
}

fn tls(name: &str, address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Transport> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_PATIENCE))?;
    stream.set_write_timeout(Some(HANDSHAKE_PATIENCE))?;
    let name = ServerName::try_from(name.to_owned())?;
    let mut session = ClientConnection::new(Arc::clone(config), name)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).context("the TLS handshake failed")?;
    }
    stream.set_nonblocking(true)?;
    Ok(Transport::Tls(stream, Box::new(session)))
}

fn udp(address: SocketAddr) -> Result<Transport> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(Transport::Udp(socket, Box::default()))
}

/// Sends the session's sealed bytes as far as the socket accepts them.
fn send(mut stream: &TcpStream, session: &mut ClientConnection) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(&mut stream) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads once from the socket, and all that it delivered: the poller does not see the session's
/// buffer.
fn opened(
    mut stream: &TcpStream,
    session: &mut ClientConnection,
    buffer: &mut [u8],
) -> io::Result<usize> {
    if session.read_tls(&mut stream)? == 0 {
        return Ok(0);
    }
    session.process_new_packets().map_err(io::Error::other)?;
    session.reader().read(buffer)
}
