//! An upper limit: holdall's event loop with a service without lookups.
//!
//! The service finds the ends of lines, counts the keys of a get, skips the data of a set, and
//! sends a reply of the right length: one `VALUE` for each key, as large as the last set's value.
//! It speaks only the text protocol.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command line program")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use net::{CloseReason, Config, Flow, Input, Listen, Output, Peer, Service, Unbudgeted};

fn main() -> ExitCode {
    let Some(port) = std::env::args().nth(1).and_then(|port| port.parse().ok()) else {
        eprintln!("usage: do-nothing PORT");
        return ExitCode::FAILURE;
    };
    let tcp = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    let config = Config { workers: 1, ..Config::default() };
    let started = Listen { tcp, backlog: 1024, ..Listen::default() }.bind().and_then(|sockets| {
        net::start(sockets, &config, Arc::new(Unbudgeted), |_, _| Nothing::new())
    });
    match started {
        Ok(handle) => handle.join(),
        Err(error) => {
            eprintln!("do-nothing: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The number of keys for which the reply is prepared.
const KEYS: usize = 128;

struct Nothing {
    value_bytes: usize,
    /// The reply for one key, [`KEYS`] times.
    values: Vec<u8>,
    one_bytes: usize,
}

impl Nothing {
    fn new() -> Self {
        let mut nothing = Self { value_bytes: 0, values: Vec::new(), one_bytes: 0 };
        nothing.prepare(64);
        nothing
    }

    fn prepare(&mut self, value_bytes: usize) {
        let mut one = format!("VALUE key:000000000000 0 {value_bytes}\r\n").into_bytes();
        one.resize(one.len() + value_bytes, b'x');
        one.extend_from_slice(b"\r\n");
        (self.value_bytes, self.one_bytes) = (value_bytes, one.len());
        self.values = one.repeat(KEYS);
    }

    fn get(&self, line: &[u8], output: &mut Output<'_>) {
        let keys = memchr::memchr_iter(b' ', line).count();
        for from in (0..keys).step_by(KEYS) {
            let count = KEYS.min(keys - from);
            output.buf().extend_from_slice(&self.values[..count * self.one_bytes]);
        }
        output.buf().extend_from_slice(b"END\r\n");
    }

    /// Returns the number of bytes of data after the line.
    fn set(&mut self, line: &[u8], output: &mut Output<'_>) -> usize {
        let digits = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
        let digits = digits.iter().filter(|byte| byte.is_ascii_digit());
        let value_bytes = digits.fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
        if value_bytes != self.value_bytes {
            self.prepare(value_bytes);
        }
        output.buf().extend_from_slice(b"STORED\r\n");
        value_bytes + 2
    }
}

impl Service for Nothing {
    /// Bytes of a set's data that have not arrived yet.
    type Session = usize;

    fn begin_turn(&mut self, _now: Instant) {}

    fn before_park(&mut self) {}

    fn open(&mut self, _peer: &Peer) -> usize {
        0
    }

    fn serve(&mut self, skip: &mut usize, input: &mut Input<'_>, output: &mut Output<'_>) -> Flow {
        loop {
            let skipped = (*skip).min(input.bytes().len());
            input.consume(skipped);
            *skip -= skipped;
            let Some(end) = memchr::memchr(b'\n', input.bytes()) else { return Flow::NeedInput };
            if output.is_full() && !output.flush() {
                return Flow::Blocked;
            }
            let line = &input.bytes()[..end];
            input.consume(end + 1);
            match line {
                [b'g', ..] => self.get(line, output),
                [b's', ..] => *skip = self.set(line, output),
                _ => output.buf().extend_from_slice(b"ERROR\r\n"),
            }
        }
    }

    fn datagram(&mut self, _: &Peer, _: &[u8], _: &mut Vec<u8>) -> net::DatagramFate {
        net::DatagramFate::Dropped
    }

    fn close(&mut self, _session: usize, _reason: CloseReason) {}
}
