//! A server that answers each get with a value made from the key, in time or late, and records the
//! requests. It uses text, or packets for clients that start with one.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use proto::binary::{Command, Parsed, Request, opcode, reply};

/// The delay of an answer that comes when the client has hung up.
pub const FOR_EVER: Duration = Duration::MAX;

/// A running server.
pub struct Echo {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
}

/// The requests and closed connections that it has seen.
#[derive(Default)]
pub struct Seen {
    pub lines: AtomicU64,
    pub sets: AtomicU64,
    /// Connections that clients have ended.
    pub ended: AtomicU64,
}

/// The value of a key.
pub fn value_of(key: &str) -> String {
    format!("value of {key}")
}

impl Echo {
    /// `delay` maps the number of a line to the time that its answer takes.
    pub fn new(delay: impl Fn(u64) -> Duration + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (ends, seen) = (Arc::clone(&stop), Arc::new(Seen::default()));
        let (notes, delay) = (Arc::clone(&seen), Arc::new(delay));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, delay) = (Arc::clone(&notes), Arc::clone(&delay));
                thread::spawn(move || {
                    // A client that goes away is no error of this server's.
                    let _ = serve(&stream, &seen, &*delay);
                    seen.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen, stop }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: &TcpStream, seen: &Seen, delay: &dyn Fn(u64) -> Duration) -> std::io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, stream);
    if input.fill_buf()?.first() == Some(&PACKET) {
        return serve_packets(&mut input, seen, delay);
    }
    let (mut output, mut line) = (Vec::new(), Vec::new());
    loop {
        if input.buffer().is_empty() && !output.is_empty() {
            let mut stream = stream;
            stream.write_all(&output)?;
            output.clear();
        }
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        wait(&mut input, delay(seen.lines.fetch_add(1, Ordering::SeqCst)))?;
        let mut words = line.trim_ascii().split(|byte| *byte == b' ');
        match words.next() {
            Some(b"get") => {
                for key in words {
                    let value = [b"value of ", key].concat();
                    output.extend_from_slice(&[b"VALUE ", key].concat());
                    write!(output, " 0 {}\r\n", value.len())?;
                    output.extend_from_slice(&[&value[..], b"\r\n"].concat());
                }
                output.extend_from_slice(b"END\r\n");
            }
            Some(b"set") => {
                let len = String::from_utf8_lossy(words.nth(3).unwrap());
                let len: usize = len.parse().unwrap();
                input.read_exact(&mut vec![0; len + 2])?;
                seen.sets.fetch_add(1, Ordering::SeqCst);
                output.extend_from_slice(b"STORED\r\n");
            }
            Some(b"version") => output.extend_from_slice(b"VERSION 1\r\n"),
            _ => output.extend_from_slice(b"ERROR\r\n"),
        }
    }
}

/// The answer takes so long.
fn wait(input: &mut BufReader<&TcpStream>, time: Duration) -> std::io::Result<()> {
    if time == FOR_EVER {
        std::io::copy(input, &mut std::io::sink())?;
    } else if !time.is_zero() {
        thread::sleep(time);
    }
    Ok(())
}

/// The first byte of a packet.
const PACKET: u8 = 0x80;

/// Bytes of a packet's header; the last four of its first twelve say how many follow.
const HEADER_BYTES: usize = 24;

/// A run of quiet gets, followed by the loud one, equals a line in text.
fn serve_packets(
    input: &mut BufReader<&TcpStream>,
    seen: &Seen,
    delay: &dyn Fn(u64) -> Duration,
) -> std::io::Result<()> {
    let mut output = Vec::new();
    loop {
        if input.buffer().is_empty() && !output.is_empty() {
            let mut stream: &TcpStream = input.get_ref();
            stream.write_all(&output)?;
            output.clear();
        }
        let mut packet = vec![0; HEADER_BYTES];
        input.read_exact(&mut packet)?;
        let body_len = u32::from_be_bytes(packet[8..12].try_into().unwrap());
        packet.resize(HEADER_BYTES + body_len as usize, 0);
        input.read_exact(&mut packet[HEADER_BYTES..])?;
        let Parsed::Request { request: Request { header, command, .. }, .. } =
            proto::binary::parse(&packet)
        else {
            panic!("{packet:?} is no request");
        };
        if header.opcode != opcode::GETKQ {
            wait(input, delay(seen.lines.fetch_add(1, Ordering::SeqCst)))?;
        }
        match command {
            Command::Get { key, .. } => {
                let value = [b"value of ", key].concat();
                let len = u32::try_from(value.len()).unwrap();
                reply::write_hit(&mut output, &header, 0, 1, Some(key), len);
                output.extend_from_slice(&value);
            }
            _ => reply::write_error(&mut output, &header, proto::binary::Status::UnknownCommand),
        }
    }
}
