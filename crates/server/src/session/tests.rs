//! Bytes in, bytes out, over a real store and without a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use net::{CloseReason, DatagramReply, Flow, Input, Output, Peer, Service};
use store::{Config, Store};

use super::{Session, Shared, Worker};
use crate::options::{Invocation, Style, Surroundings, parse};
use crate::run::Clock;

/// A service that is never asked anything: its loop lends its control to the worker under test.
struct Silent;

impl Service for Silent {
    type Session = ();
    fn turn(&mut self, _: std::time::Instant) {}
    fn rest(&mut self) {}
    fn open(&mut self, _: &Peer) {}
    fn serve(&mut self, (): &mut (), _: &mut Input<'_>, _: &mut Output<'_>) -> Flow {
        Flow::CloseNow
    }
    fn datagram(&mut self, _: &Peer, _: &[u8], _: &mut DatagramReply) {}
    fn close(&mut self, (): (), _: CloseReason) {}
}

/// A worker as the command line `flags` make it, with 64 MB.
pub(crate) fn worker(flags: &[&str]) -> Worker {
    let surroundings = Surroundings { cpus: 1, port_file: None };
    let arguments = flags.iter().map(Into::into);
    let Ok(Invocation::Run { options, .. }) = parse(Style::Holdall, arguments, &surroundings)
    else {
        panic!("flags {flags:?} are refused");
    };
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: options.item_bytes_max,
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let budget = Arc::new(net::Unbudgeted);
    let config = net::Config { workers: 1, ..net::Config::default() };
    let handle =
        net::start(net::Sockets::default(), &config, budget, |_, _| Silent).expect("threads");
    let control = handle.control().clone();
    handle.stop();
    handle.join();
    let shared = Shared::new(&options, &store, Clock::start());
    let mut worker = Worker::new(&shared, 0, &control);
    worker.turn(std::time::Instant::now());
    worker
}

/// One connection: what was sent and not consumed, and what was answered.
pub(crate) struct Client {
    pub(crate) session: Session,
    left: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Client {
    pub(crate) fn new(worker: &mut Worker) -> Self {
        Self { session: worker.open(&Peer::local()), left: Vec::new(), is_closed: false }
    }

    /// Sends bytes and answers what comes back.
    pub(crate) fn send(&mut self, worker: &mut Worker, bytes: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        if self.is_closed {
            return reply;
        }
        self.left.extend_from_slice(bytes);
        loop {
            let left = std::mem::take(&mut self.left);
            let mut input = Input::new(&left);
            // A fresh scratch each time, as a socket that takes all would leave it.
            let mut scratch = Vec::new();
            let flow =
                worker.serve(&mut self.session, &mut input, &mut Output::collecting(&mut scratch));
            self.left = input.bytes().to_vec();
            reply.append(&mut scratch);
            match flow {
                Flow::Yield | Flow::Blocked => {}
                Flow::NeedInput => return reply,
                Flow::Close | Flow::CloseNow => {
                    self.is_closed = true;
                    return reply;
                }
            }
        }
    }
}

/// Sends `sent` to fresh connections, whole and for every way of cutting it into two reads, each over a fresh engine
/// state (keys are flushed), and asserts the exact reply.
#[track_caller]
fn check(flags: &[&str], sent: &[u8], want: &[u8]) {
    let mut worker = worker(flags);
    for cut in 0..=sent.len() {
        let mut client = Client::new(&mut worker);
        let (first, second) = sent.split_at(cut);
        let mut got = client.send(&mut worker, first);
        got.append(&mut client.send(&mut worker, second));
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string(), "cut at {cut}");
        worker.close(client.session, CloseReason::Eof);
        worker.engine.flush_all(0).ok();
    }
}

#[test]
fn classic_commands_answer_as_memcached_does() {
    check(
        &[],
        b"set k 5 0 3\r\nabc\r\nget k\r\nadd k 0 0 1\r\nx\r\nreplace k 7 0 2\r\nhi\r\nappend k 0 0 1\r\n!\r\n\
          prepend k 0 0 1\r\n<\r\nget k nope k\r\ndelete k\r\ndelete k\r\nget k\r\nversion\r\n",
        b"STORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\nNOT_STORED\r\nSTORED\r\nSTORED\r\nSTORED\r\n\
          VALUE k 7 4\r\n<hi!\r\nVALUE k 7 4\r\n<hi!\r\nEND\r\nDELETED\r\nNOT_FOUND\r\nEND\r\n\
          VERSION 1.6.45\r\n",
    );
}

/// A value may hold CRLF, and even commands: its length says where it stops.
#[test]
fn a_value_is_never_read_as_commands() {
    check(
        &[],
        b"set k 0 0 14\r\na\r\nflush_all\r\n!\r\nget k\r\nset k 0 0 2\r\nabcd\r\nget k\r\n",
        b"STORED\r\nVALUE k 0 14\r\na\r\nflush_all\r\n!\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\n\
          VALUE k 0 14\r\na\r\nflush_all\r\n!\r\nEND\r\n",
    );
}

#[test]
fn counters_count() {
    check(
        &[],
        b"incr n 1\r\nset n 9 0 2\r\n99\r\nincr n 1\r\ndecr n 1\r\nget n\r\ndecr n 200\r\nset n 0 0 20\r\n\
          18446744073709551615\r\nincr n 2\r\nset n 0 0 1\r\nx\r\nincr n 1\r\nincr n x\r\n",
        b"NOT_FOUND\r\nSTORED\r\n100\r\n99\r\nVALUE n 9 3\r\n99 \r\nEND\r\n0\r\nSTORED\r\n1\r\nSTORED\r\n\
          CLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
          CLIENT_ERROR invalid numeric delta argument\r\n",
    );
}

#[test]
fn noreply_is_silent_and_quit_closes_after_the_answers() {
    check(
        &[],
        b"set k 0 0 1 noreply\r\nx\r\nadd k 0 0 1 noreply\r\ny\r\ndelete nope noreply\r\nget k\r\nquit\r\nget k\r\n",
        b"VALUE k 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn a_refused_value_is_swallowed_and_the_old_one_goes() {
    let large = 1 << 20;
    let mut sent = b"set k 0 0 1\r\nx\r\nadd other 0 0 1\r\ny\r\n".to_vec();
    sent.extend_from_slice(format!("set k 0 0 {large}\r\n").as_bytes());
    sent.extend(std::iter::repeat_n(b'z', large));
    sent.extend_from_slice(b"\r\nget k other\r\n");
    let mut worker = worker(&[]);
    for part in [7, 1000, 65_535, sent.len()] {
        let mut client = Client::new(&mut worker);
        let got: Vec<u8> =
            sent.chunks(part).flat_map(|bytes| client.send(&mut worker, bytes)).collect();
        assert_eq!(
            String::from_utf8(got).unwrap(),
            "STORED\r\nSTORED\r\nSERVER_ERROR object too large for cache\r\nVALUE other 0 1\r\ny\r\nEND\r\n"
        );
        client.send(&mut worker, b"delete other\r\n");
    }
}

#[test]
fn large_values_come_and_go_in_pieces() {
    let value: Vec<u8> =
        (0..700_000u32).map(|byte| byte.to_le_bytes()[0] ^ byte.to_le_bytes()[1]).collect();
    let mut worker = worker(&[]);
    for part in [1usize << 20, 65_535, 1000] {
        let mut client = Client::new(&mut worker);
        let mut sent = format!("set k 1 0 {}\r\n", value.len()).into_bytes();
        sent.extend_from_slice(&value);
        sent.extend_from_slice(b"\r\nappend k 0 0 3\r\n123\r\nget k\r\nmg k s v\r\ndelete k\r\n");
        let got: Vec<u8> =
            sent.chunks(part).flat_map(|bytes| client.send(&mut worker, bytes)).collect();
        let mut want =
            format!("STORED\r\nSTORED\r\nVALUE k 1 {}\r\n", value.len() + 3).into_bytes();
        want.extend_from_slice(&value);
        want.extend_from_slice(b"123\r\nEND\r\n");
        want.extend_from_slice(format!("VA {0} s{0}\r\n", value.len() + 3).as_bytes());
        want.extend_from_slice(&value);
        want.extend_from_slice(b"123\r\nDELETED\r\n");
        assert!(got == want, "a value changed on its way, in parts of {part}");
    }
}

#[test]
fn meta_commands_store_find_claim_and_invalidate() {
    check(
        &[],
        b"mg k s v\r\nms k 3 F7 T0 c\r\nabc\r\nmg k f s v t k\r\nmg k\r\nmg nope q\r\nms k 2 ME q\r\nzz\r\n\
          md k I\r\nmg k v\r\nmg k v\r\nmd nope q\r\nmg new v N30 t\r\nmg new v\r\nma n N0 J13 v\r\nma n D2 v\r\n\
          ma n MD q\r\nmn\r\n",
        b"EN\r\nHD c1\r\nVA 3 f7 s3 t-1 kk\r\nabc\r\nHD\r\nNS\r\nHD\r\nVA 3 X W\r\nabc\r\nVA 3 Z X\r\nabc\r\n\
          NF\r\nVA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\nVA 2\r\n13\r\nVA 2\r\n15\r\nMN\r\n"
            .as_slice(),
    );
}
