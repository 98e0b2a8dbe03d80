//! A connection whose kernel reports when bytes left it and when bytes arrived.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, Timestamps, recvmsg, setsockopt,
};
use nix::sys::time::TimeSpec;

use super::parts::{Moments, ServerTimes};

/// Number of requested keys.
const KEYS: u32 = 100;

/// Attempts to read the stamp of an answered request before it counts as missing.
const LOOKS_MAX: u32 = 1000;

/// Maximum number of statistics bytes read.
const STATS_BYTES_MAX: usize = 1 << 20;

/// A connection with stamps.
pub(super) struct StampedSocket {
    stream: TcpStream,
    /// Bytes of a value, all of them `x`.
    value_bytes: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl StampedSocket {
    /// Connects, and requests stamps from the kernel.
    pub(super) fn open(server: SocketAddr, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&server, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(&stream, Timestamping, &flags).context("SO_TIMESTAMPING")?;
        Ok(Self { stream, value_bytes: 0, request: Vec::new(), reply: vec![0; 64 * 1024] })
    }

    /// True if both ends have the same address.
    pub(super) fn is_on_this_host(&self) -> bool {
        let ends = self.stream.local_addr().and_then(|own| Ok((own, self.stream.peer_addr()?)));
        ends.is_ok_and(|(own, other)| own.ip() == other.ip() || other.ip().is_loopback())
    }

    /// Stores the values that are requested later.
    pub(super) fn fill(&mut self, value_bytes: usize) -> Result<()> {
        self.value_bytes = value_bytes;
        for number in 0..KEYS {
            let head = format!("set {} 0 0 {value_bytes}\r\n", key(number));
            let value = vec![b'x'; value_bytes];
            self.stream.write_all(&[head.as_bytes(), &value, b"\r\n"].concat())?;
            let reply = self.line("a set")?;
            if reply != b"STORED\r\n" {
                let first = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
                bail!("a set was answered with {}", first.escape_ascii());
            }
        }
        self.stamp_of_sending();
        Ok(())
    }

    /// One get, and its moments; none if a stamp is missing.
    pub(super) fn get(&mut self, number: u32) -> Result<Option<Moments>> {
        // Stamps of an earlier request came too late.
        while self.stamp_of_sending().is_some() {}
        let begin = now();
        let key = key(number);
        self.request.clear();
        write!(self.request, "get {key}\r\n")?;
        let wanted = format!("VALUE {key} 0 {}\r\n", self.value_bytes).len();
        let wanted = wanted + self.value_bytes + b"\r\nEND\r\n".len();
        let send = now();
        self.stream.write_all(&self.request)?;
        let (mut filled, mut received) = (0, None);
        while filled < wanted {
            if self.reply.len() < wanted {
                self.reply.resize(wanted, 0);
            }
            let (read, stamp) = receive(&self.stream, &mut self.reply[filled..])?;
            ensure!(read > 0, "the server closed the connection");
            filled += read;
            received = stamp.or(received);
            ensure!(
                filled >= wanted || !self.reply[..filled].ends_with(b"END\r\n"),
                "a get was answered with {}",
                self.reply[..filled.min(100)].escape_ascii()
            );
        }
        let end = now();
        let sent = (0..LOOKS_MAX).find_map(|_| self.stamp_of_sending());
        let whole = sent.zip(received);
        Ok(whole.map(|(sent, received)| Moments { begin, send, sent, received, end }))
    }

    /// True if the server reports its own times of a request that follows the question.
    pub(super) fn reports_times(&mut self) -> Result<bool> {
        if self.ask_for_times()?.starts_with(b"MN") {
            self.get(0)?;
            return Ok(self.times()?.is_some());
        }
        Ok(false)
    }

    /// The server's own times of the last get, if it reports them; requests those of the next.
    pub(super) fn times(&mut self) -> Result<Option<ServerTimes>> {
        let line = String::from_utf8_lossy(self.ask_for_times()?).into_owned();
        let numbers = line.strip_prefix("MN times ").map(|numbers| numbers.trim_end().split(' '));
        let numbers = numbers.map(|words| words.map(str::parse).collect::<Result<Vec<u64>, _>>());
        Ok(match numbers.transpose()?.as_deref() {
            Some(&[parse, execute, write, ref rest @ ..]) => {
                Some(ServerTimes { wait: rest.first().copied(), parse, execute, write })
            }
            _ => None,
        })
    }

    /// The answer to `mn times`: a line.
    fn ask_for_times(&mut self) -> Result<&[u8]> {
        self.stream.write_all(b"mn times\r\n")?;
        self.line("mn times")
    }

    /// The answer to `request`, which is one line.
    fn line(&mut self, request: &str) -> Result<&[u8]> {
        let mut filled = 0;
        while !self.reply[..filled].ends_with(b"\r\n") {
            let read = self.stream.read(&mut self.reply[filled..])?;
            ensure!(read > 0, "{request} was answered with {filled} bytes, and no line end");
            filled += read;
        }
        Ok(&self.reply[..filled])
    }

    /// The median of the server's own time of a get in the last minutes, in microseconds.
    pub(super) fn server_get(&mut self) -> Result<Option<f64>> {
        self.stream.write_all(b"stats latency\r\n")?;
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        let is_whole = |text: &[u8]| text.ends_with(b"END\r\n") || text.ends_with(b"ERROR\r\n");
        while !is_whole(&text) && text.len() < STATS_BYTES_MAX {
            let read = self.stream.read(&mut part)?;
            ensure!(read > 0, "the server closed the connection");
            text.extend_from_slice(&part[..read]);
        }
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let seconds = lines.find_map(|line| line.strip_prefix("STAT latency:get:p50_seconds "));
        Ok(seconds.and_then(|seconds| Some(seconds.parse::<f64>().ok()? * 1e6)))
    }

    /// The moment at which the kernel passed a request to the interface, if it has reported that.
    fn stamp_of_sending(&self) -> Option<u64> {
        let mut control = cmsg_space!(Timestamps, [u8; 64]);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(self.stream.as_raw_fd(), &mut [], Some(&mut control), flags);
        stamp(message.ok()?.cmsgs().ok()?)
    }
}

fn key(number: u32) -> String {
    format!("stages:{}", number % KEYS)
}

/// Received bytes, and the time of their last segment.
fn receive(stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = cmsg_space!(Timestamps, [u8; 64]);
    loop {
        let mut parts = [IoSliceMut::new(into)];
        let fd = stream.as_raw_fd();
        match recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(message) => return Ok((message.bytes, message.cmsgs().ok().and_then(stamp))),
        }
    }
}

/// The kernel's stamp among the control messages, in nanoseconds since 1970.
fn stamp(messages: impl Iterator<Item = ControlMessageOwned>) -> Option<u64> {
    let mut stamps = messages.filter_map(|message| match message {
        ControlMessageOwned::ScmTimestampsns(stamps) => nanoseconds(stamps.system),
        _ => None,
    });
    stamps.next()
}

fn nanoseconds(time: TimeSpec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec()).ok().filter(|seconds| *seconds > 0)?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

/// The current time, by the clock of the kernel's stamps.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// A server of one connection that answers every line with `reply`.
    fn server(reply: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                (&stream).write_all(reply(line.trim_end()).as_bytes()).unwrap();
                line.clear();
            }
        });
        address
    }

    fn stored(line: &str) -> String {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["set", ..] => String::new(),
            ["get", key] => format!("VALUE {key} 0 3\r\nxxx\r\nEND\r\n"),
            ["mn", "times"] => "MN\r\n".to_owned(),
            ["stats", _] => "STAT latency:get:p50_seconds 0.000002\r\nEND\r\n".to_owned(),
            _ => "STORED\r\n".to_owned(),
        }
    }

    #[test]
    fn the_moments_of_a_get_are_in_order() {
        let address = server(stored);
        let mut socket = StampedSocket::open(address, Duration::from_secs(5)).unwrap();
        socket.fill(3).unwrap();
        assert!(socket.is_on_this_host());
        // The kernel enables stamps in a separate thread, some time after the request.
        let give_up = Instant::now() + Duration::from_secs(20);
        let mut moments = Vec::new();
        for number in 0.. {
            if moments.len() == 50 || Instant::now() > give_up {
                break;
            }
            moments.extend(socket.get(number).unwrap());
        }
        assert_eq!(moments.len(), 50, "requests with stamps");
        for Moments { begin, send, sent, received, end } in moments {
            assert!(begin <= send && send <= sent && sent <= received && received <= end);
        }
        assert_eq!(socket.server_get().unwrap(), Some(2.0));
        assert!(!socket.reports_times().unwrap(), "MN alone");
    }

    #[test]
    fn reported_server_times_are_read() {
        let times = |answer: &'static str| {
            let address = server(move |line| match line {
                "mn times" => answer.to_owned(),
                _ => stored(line),
            });
            let mut socket = StampedSocket::open(address, Duration::from_secs(5)).unwrap();
            socket.fill(3).unwrap();
            (socket.reports_times().map_err(|error| error.to_string()), socket.times())
        };
        let (tells, told) = times("MN times 300 700 9000\r\n");
        assert_eq!(tells, Ok(true));
        let expected = ServerTimes { wait: None, parse: 300, execute: 700, write: 9000 };
        assert_eq!(told.unwrap(), Some(expected));
        let (_, told) = times("MN times 300 700 9000 15000\r\n");
        assert_eq!(told.unwrap(), Some(ServerTimes { wait: Some(15000), ..expected }));
        assert_eq!(times("ERROR\r\n").0, Ok(false), "a server without meta commands");
        assert!(times("MN times 300 x 9000\r\n").0.is_err());
        assert_eq!(times("MN times 300\r\n").0, Ok(false));
    }

    #[test]
    fn a_miss_is_an_error() {
        let miss = |line: &str| match line.starts_with("get") {
            true => "END\r\n".to_owned(),
            false => stored(line),
        };
        let mut socket = StampedSocket::open(server(miss), Duration::from_secs(5)).unwrap();
        socket.fill(3).unwrap();
        let error = socket.get(1).unwrap_err();
        assert!(error.to_string().contains("answered with END"), "{error}");
        let refuses = server(|_| "SERVER_ERROR out of memory\r\n".to_owned());
        let mut socket = StampedSocket::open(refuses, Duration::from_secs(5)).unwrap();
        let error = socket.fill(3).unwrap_err().to_string();
        assert_eq!(error, "a set was answered with SERVER_ERROR out of memory");
    }
}
