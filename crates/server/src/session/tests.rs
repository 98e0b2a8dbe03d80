//! Bytes in, bytes out, over a real store and without a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use net::{CloseReason, DatagramFate, Flow, Input, Output, Peer, Service};
use options::{Environment, Invocation, Options, Style, parse};
use store::{Config, Store};

use super::{Session, Shared, Worker};
use crate::clock::Clock;
use crate::entry::Entry;
use crate::log::Log;

/// A service without requests: its loop lends its control to the worker under test.
struct Silent;

impl Service for Silent {
    type Session = ();
    fn begin_turn(&mut self, _: std::time::Instant) {}
    fn before_park(&mut self) {}
    fn open(&mut self, _: &Peer) {}
    fn serve(&mut self, (): &mut (), _: &mut Input<'_>, _: &mut Output<'_>) -> Flow {
        Flow::CloseNow
    }
    fn datagram(&mut self, _: &Peer, _: &[u8], _: &mut Vec<u8>) -> DatagramFate {
        DatagramFate::Dropped
    }
    fn close(&mut self, (): (), _: CloseReason) {}
}

/// The options of the command line `flags`.
pub(crate) fn options(flags: &[&str]) -> Options {
    let environment = Environment { cpus: 1, ..Environment::default() };
    let arguments = flags.iter().map(Into::into);
    let Ok(Invocation::Run { options, .. }) = parse(Style::Holdall, arguments, &environment) else {
        panic!("flags {flags:?} are refused");
    };
    *options
}

/// The control of a loop that has ended.
pub(crate) fn control() -> net::Control {
    let budget = Arc::new(net::Unbudgeted);
    let config = net::Config { workers: 1, ..net::Config::default() };
    let handle =
        net::start(net::Sockets::default(), &config, budget, |_, _| Silent).expect("threads");
    let control = handle.control().clone();
    handle.stop();
    handle.join();
    control
}

/// A worker with 64 MB for the command line `flags`.
pub(crate) fn worker(flags: &[&str]) -> Worker {
    let options = options(flags);
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: options.item_bytes_max,
        evict: options.evict,
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let control = control();
    let entry = Entry::open(&options, Vec::new(), &Log::new(&options)).unwrap();
    let shared = Shared::new(&options, &store, Clock::start(), &entry);
    if let Some(file) = &entry.namespaces {
        file.apply(&shared.engine).unwrap();
    }
    let mut worker = Worker::new(&shared, 0, &control);
    worker.begin_turn(std::time::Instant::now());
    worker
}

/// One connection: the bytes that were sent and not consumed, and the answers.
pub(crate) struct Client {
    pub(crate) session: Session,
    left: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Client {
    pub(crate) fn new(worker: &mut Worker) -> Self {
        Self { session: worker.open(&Peer::local()), left: Vec::new(), is_closed: false }
    }

    /// Sends bytes and returns the answer.
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
                Flow::NeedInput | Flow::Wait => return reply,
                Flow::Close | Flow::CloseNow => {
                    self.is_closed = true;
                    return reply;
                }
            }
        }
    }
}

/// Sends `sent` to fresh connections, whole and for every split into two reads, each over a fresh
/// engine state (keys are flushed), and asserts the exact reply.
#[track_caller]
pub(super) fn check(flags: &[&str], sent: &[u8], want: &[u8]) {
    let mut worker = worker(flags);
    for cut in 0..=sent.len() {
        let mut client = Client::new(&mut worker);
        let (first, second) = sent.split_at(cut);
        let mut got = client.send(&mut worker, first);
        got.append(&mut client.send(&mut worker, second));
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string(), "cut at {cut}");
        worker.close(client.session, CloseReason::Eof);
        worker.context.engine.flush_all(0).ok();
    }
}

#[test]
fn classic_commands_match_memcached() {
    check(
        &[],
        b"set k 5 0 3\r\nabc\r\nget k\r\nadd k 0 0 1\r\nx\r\nreplace k 7 0 2\r\nhi\r\nappend k 0 0 1\r\n!\r\n\
          prepend k 0 0 1\r\n<\r\nget k nope k\r\ndelete k\r\ndelete k\r\nget k\r\nversion\r\n",
        b"STORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\nNOT_STORED\r\nSTORED\r\nSTORED\r\nSTORED\r\n\
          VALUE k 7 4\r\n<hi!\r\nVALUE k 7 4\r\n<hi!\r\nEND\r\nDELETED\r\nNOT_FOUND\r\nEND\r\n\
          VERSION 1.6.45\r\n",
    );
}

/// A value may contain CRLF, and even commands: its length determines its end.
#[test]
fn values_are_never_executed() {
    check(
        &[],
        b"set k 0 0 15\r\na\r\nflush_all\r\n!\r\nget k\r\nset k 0 0 2\r\nabcdef\r\nget k\r\n",
        b"STORED\r\nVALUE k 0 15\r\na\r\nflush_all\r\n!\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\n\
          VALUE k 0 15\r\na\r\nflush_all\r\n!\r\nEND\r\n",
    );
}

#[test]
fn incr_and_decr() {
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
fn noreply_is_silent_and_quit_closes_after_the_replies() {
    check(
        &[],
        b"set k 0 0 1 noreply\r\nx\r\nadd k 0 0 1 noreply\r\ny\r\ndelete nope noreply\r\nget k\r\nquit\r\nget k\r\n",
        b"VALUE k 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn a_too_large_value_is_discarded_and_removes_the_old_one() {
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
fn meta_commands_store_read_claim_and_invalidate() {
    check(
        &[],
        b"mg k s v\r\nms k 3 F7 T0\r\nabc\r\nmg k f s v t k\r\nmg k\r\nmg nope q\r\nms k 2 ME q\r\nzz\r\n\
          md k I\r\nmg k v\r\nmg k v\r\nmd nope q\r\nmg new v N30 t\r\nmg new v\r\nma n N0 J13 v\r\nma n D2 v\r\n\
          ma n MD q\r\nmn\r\n",
        b"EN\r\nHD\r\nVA 3 f7 s3 t-1 kk\r\nabc\r\nHD\r\nNS\r\nHD\r\nVA 3 X W\r\nabc\r\nVA 3 Z X\r\nabc\r\n\
          NF\r\nVA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\nVA 2\r\n13\r\nVA 2\r\n15\r\nMN\r\n"
            .as_slice(),
    );
}

pub(super) fn packet(
    opcode: u8,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
    opaque: u32,
    cas: u64,
) -> Vec<u8> {
    let mut out = vec![0x80, opcode];
    out.extend_from_slice(&u16::try_from(key.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&[u8::try_from(extras.len()).unwrap(), 0, 0, 0]);
    let body = u32::try_from(extras.len() + key.len() + value.len()).unwrap();
    out.extend_from_slice(&body.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
    out
}

/// Status, opaque and body of each response.
fn responses(mut bytes: &[u8]) -> Vec<(u16, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<24>() {
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let body = rest[..word(8) as usize].to_vec();
        bytes = &rest[body.len()..];
        assert_eq!(header[0], 0x81);
        all.push((u16::from_be_bytes([header[6], header[7]]), word(12), body));
    }
    assert_eq!(bytes, b"", "half a response");
    all
}

#[test]
fn binary_replies_are_in_order_and_quiet_ones_are_omitted() {
    let mut worker = worker(&[]);
    let extras = [0, 0, 0, 5, 0, 0, 0, 0];
    let mut sent = packet(0x11, &extras, b"k", b"value", 1, 0);
    sent.extend(packet(0x09, b"", b"nope", b"", 2, 0));
    sent.extend(packet(0x0c, b"", b"k", b"", 3, 0));
    sent.extend(packet(0x0c, b"", b"nope", b"", 4, 0));
    sent.extend(packet(0x02, &extras, b"k", b"again", 5, 0));
    sent.extend(packet(0x01, &extras, b"k", b"other", 6, 999_999));
    sent.extend(packet(0x0e, b"", b"k", b"!", 7, 0));
    let counter = [0u64.to_be_bytes(), 7u64.to_be_bytes()].concat();
    sent.extend(packet(0x05, &[&counter[..], &[0; 4]].concat(), b"n", b"", 8, 0));
    sent.extend(packet(0x05, &[&counter[..], &[0; 4]].concat(), b"k", b"", 9, 0));
    sent.extend(packet(0x1c, &[0; 4], b"k", b"", 10, 0));
    sent.extend(packet(0x14, b"", b"k", b"", 11, 0));
    sent.extend(packet(0x00, b"", b"k", b"", 12, 0));
    sent.extend(packet(0x10, b"", b"conns", b"", 13, 0));
    sent.extend(packet(0x1b, &[0; 4], b"", b"", 14, 0));
    sent.extend(packet(0x0a, b"", b"", b"", 15, 0));
    for cut in 0..=sent.len() {
        let mut client = Client::new(&mut worker);
        let mut got = client.send(&mut worker, &sent[..cut]);
        got.append(&mut client.send(&mut worker, &sent[cut..]));
        let got: Vec<_> = responses(&got)
            .into_iter()
            .map(|(status, opaque, body)| (status, opaque, body.escape_ascii().to_string()))
            .collect();
        let want = [
            (0, 3, "\\x00\\x00\\x00\\x05kvalue"),
            (1, 4, "nope"),
            (2, 5, "Data exists for key."),
            (2, 6, "Data exists for key."),
            (0, 7, ""),
            (0, 8, "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07"),
            (6, 9, "Non-numeric server-side value for incr or decr"),
            (0, 10, "\\x00\\x00\\x00\\x05"),
            (1, 12, "Not found"),
            (1, 13, "Not found"),
            (0x81, 14, "Unknown command"),
            (0, 15, ""),
        ]
        .map(|(status, opaque, body)| (status, opaque, body.to_owned()));
        assert_eq!(got, want, "cut at {cut}");
        worker.context.engine.flush_all(0).unwrap();
    }
}

/// The server's view of the wall clock is at most one second old.
#[test]
fn absolute_times_follow_a_changed_wall_clock() {
    let mut worker = worker(&[]);
    let engine = Arc::clone(&worker.context.shared.engine);
    let right = engine.started_at_unix();
    // As if the clock had been an hour behind at the start, and corrected since.
    engine.set_started_at_unix(right - 3600);
    worker.begin_turn(std::time::Instant::now() + std::time::Duration::from_secs(1));
    assert!(engine.started_at_unix().abs_diff(right) <= 2);
    let mut client = Client::new(&mut worker);
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let set = format!("ms k 1 T{}\r\nv\r\nmg k t\r\n", unix.as_secs() + 100);
    let got = String::from_utf8(client.send(&mut worker, set.as_bytes())).unwrap();
    let left: i64 = got.trim_end().strip_prefix("HD\r\nHD t").unwrap().parse().unwrap();
    assert!((97..=102).contains(&left), "{got}");
}

/// More keys than the lookahead holds, hits and misses mixed, some twice: each answer belongs to
/// its key.
#[test]
fn lookahead_never_confuses_keys() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let (mut sets, mut want_sets) = (Vec::new(), Vec::new());
    for key in (0..200).step_by(2) {
        let value = format!("value-of-{key}");
        sets.extend_from_slice(
            format!("set key{key} {key} 0 {}\r\n{value}\r\n", value.len()).as_bytes(),
        );
        want_sets.extend_from_slice(b"STORED\r\n");
    }
    assert_eq!(client.send(&mut worker, &sets), want_sets);
    let keys: Vec<u32> = (0..200).chain([4, 5, 4]).collect();
    let hit = |key: u32| {
        let value = format!("value-of-{key}");
        format!("VALUE key{key} {key} {}\r\n{value}\r\n", value.len())
    };
    let found: String = keys.iter().filter(|key| *key % 2 == 0).map(|key| hit(*key)).collect();
    let names: Vec<_> = keys.iter().map(|key| format!("key{key}")).collect();
    let multiget = format!("get {}\r\n", names.join(" "));
    let got = client.send(&mut worker, multiget.as_bytes());
    assert_eq!(String::from_utf8(got).unwrap(), format!("{found}END\r\n"));
    let singles: String = names.iter().map(|key| format!("get {key}\r\n")).collect();
    let want: String = keys
        .iter()
        .map(|key| if key % 2 == 0 { hit(*key) + "END\r\n" } else { "END\r\n".to_owned() })
        .collect();
    assert_eq!(String::from_utf8(client.send(&mut worker, singles.as_bytes())).unwrap(), want);
}

#[test]
fn command_line_flags_take_effect() {
    check(&["-F"], b"flush_all\r\n", b"CLIENT_ERROR flush_all not allowed\r\n");
    check(&["-X"], b"lru_crawler metadump all\r\n", b"ERROR metadump not allowed\r\n");
    check(&["-W"], b"watch\r\n", b"CLIENT_ERROR watch commands not allowed\r\n");
    check(&["-C"], b"set k 0 0 1\r\nx\r\ngets k\r\n", b"STORED\r\nVALUE k 0 1 0\r\nx\r\nEND\r\n");
    check(&["-B", "ascii"], &packet(0x0a, b"", b"", b"", 0, 0), b"");
    check(&[], b"shutdown\r\n", b"SERVER_ERROR: shutdown not enabled\r\n");
}

#[test]
fn admin_commands_are_answered() {
    check(
        &[],
        b"verbosity 1\r\nverbosity\r\ncache_memlimit 1\r\ncache_memlimit x\r\nslabs automove 1\r\n\
          lru mode flat\r\nlru_crawler tocrawl 5\r\nstats nonsense\r\nstats r\r\nstats reset\r\n\
          stats detail\r\nstats cachedump 1\r\nstats cachedump 0 0\r\nwatch f\r\nstats proxy\r\n",
        b"OK\r\nCLIENT_ERROR bad command line format\r\n\
          MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nERROR\r\nOK\r\nOK\r\nOK\r\nERROR\r\n\
          ERROR\r\nRESET\r\nCLIENT_ERROR usage: stats detail on|off|dump\r\nCLIENT_ERROR bad command line\r\n\
          END\r\nERROR\r\nEND\r\n",
    );
}

#[test]
fn dumps_show_every_item_once() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let sets: String = (0..5000).map(|key| format!("set k{key} 0 0 1 noreply\r\nx\r\n")).collect();
    assert_eq!(client.send(&mut worker, sets.as_bytes()), b"");
    client.send(&mut worker, b"ms YSBi 1 b T100\r\nx\r\n");
    let got = client.send(&mut worker, b"lru_crawler mgdump all\r\nmn\r\n");
    let got = String::from_utf8(got).unwrap();
    let mut keys: Vec<_> = got.lines().collect();
    assert_eq!(keys.split_off(keys.len() - 2), ["EN", "MN"]);
    assert_eq!(keys.remove(0), "OK");
    assert_eq!(keys.len(), 5001);
    assert!(keys.contains(&"mg YSBi b"));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5001);
    let got = client.send(&mut worker, b"lru_crawler metadump all\r\n");
    let got = String::from_utf8(got).unwrap();
    assert_eq!(
        got.lines().filter(|line| line.starts_with("key=k") && line.contains(" exp=-1 ")).count(),
        5000
    );
    assert_eq!(got.lines().filter(|line| line.starts_with("key=a%20b exp=")).count(), 1);
    assert!(got.ends_with(" \nEND\r\n"), "{}", &got[got.len() - 80..]);
    let class =
        got.lines().nth(1).unwrap().split("cls=").nth(1).unwrap().split(' ').next().unwrap();
    let got = client.send(&mut worker, format!("stats cachedump {class} 7\r\n").as_bytes());
    let got = String::from_utf8(got).unwrap();
    assert_eq!(got.lines().count(), 8, "{got}");
    assert!(got.starts_with("ITEM k") && got.contains(" [1 b; 0 s]"), "{got}");
}

/// memcdump and other dumpers read the classes that memcached can have: 0 to 63.
#[test]
fn dumpers_of_memcacheds_classes_see_every_item_once() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let sizes = [1, 100, 1000, 3000, 5000, 20_000, 100_000, 500_000];
    for bytes in sizes {
        let set = format!("set k{bytes} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes));
        assert_eq!(client.send(&mut worker, set.as_bytes()), b"STORED\r\n");
    }
    let ids: String = (0..64).map(|id| format!("stats cachedump {id} 0\r\n")).collect();
    let got = String::from_utf8(client.send(&mut worker, ids.as_bytes())).unwrap();
    let mut shown: Vec<_> = got.lines().filter(|line| *line != "END").collect();
    assert_eq!(got.lines().count(), 64 + sizes.len());
    shown.sort_unstable();
    let mut want = sizes.map(|bytes| format!("ITEM k{bytes} [{bytes} b; 0 s]"));
    want.sort_unstable();
    assert_eq!(shown, want);
    let rest = client.send(&mut worker, b"stats cachedump 0 2\r\n");
    assert_eq!(String::from_utf8(rest).unwrap().lines().count(), 3, "two items and the end");
}

/// In the binary protocol, a key can contain any bytes. A printed key is either a key again or only
/// a word: replayed or read, it executes and shows nothing else.
#[test]
fn printed_keys_are_not_executable() {
    let mut worker = worker(&["-D", ":"]);
    let (mut binary, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    let keys: [&[u8]; 4] = [
        b"x\r\nflush_all\r\nget y",
        b"p\r\nSTAT fake 1\r\nEND\r\n:1",
        b"\x1b]0;title\x07\x1b[2J",
        b"a b:\xff",
    ];
    for key in keys {
        let key_bytes = u8::try_from(key.len()).unwrap();
        let head = [0x80, 1, 0, key_bytes, 8, 0, 0, 0, 0, 0, 0, key_bytes + 9];
        let set = [&head[..], &[0; 12 + 8], key, b"v"].concat();
        assert_eq!(binary.send(&mut worker, &set)[6..8], [0, 0]);
    }
    assert_eq!(client.send(&mut worker, b"set user:1 0 0 1\r\nv\r\n"), b"STORED\r\n");
    let dump = client.send(&mut worker, b"lru_crawler mgdump all\r\n");
    let dump = String::from_utf8(dump).unwrap();
    let gets = dump.strip_prefix("OK\r\n").unwrap().strip_suffix("EN\r\n").unwrap();
    assert!(gets.contains("mg user:1\r\n"), "{gets}");
    let replies = client.send(&mut worker, gets.as_bytes());
    assert_eq!(replies, b"HD\r\n".repeat(5), "{gets}");

    let lines = |bytes: Vec<u8>| {
        assert!(bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n')), "{bytes:?}");
        let mut lines: Vec<_> =
            String::from_utf8(bytes).unwrap().split("\r\n").map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let mut items = Vec::new();
    for class in 1..8 {
        let shown = client.send(&mut worker, format!("stats cachedump {class} 0\r\n").as_bytes());
        items.extend(lines(shown).into_iter().filter(|line| !line.is_empty() && line != "END"));
    }
    items.sort_unstable();
    assert_eq!(
        items,
        [
            "ITEM %1B%5D0%3Btitle%07%1B%5B2J [1 b; 0 s]",
            "ITEM a%20b%3A%FF [1 b; 0 s]",
            "ITEM p%0D%0ASTAT%20fake%201%0D%0AEND%0D%0A%3A1 [1 b; 0 s]",
            "ITEM user:1 [1 b; 0 s]",
            "ITEM x%0D%0Aflush_all%0D%0Aget%20y [1 b; 0 s]",
        ]
    );
    assert_eq!(
        lines(client.send(&mut worker, b"stats detail dump\r\n")),
        [
            "",
            "END",
            "PREFIX a%20b get 1 hit 1 set 1 del 0",
            "PREFIX p%0D%0ASTAT%20fake%201%0D%0AEND%0D%0A get 1 hit 1 set 1 del 0",
            "PREFIX user get 1 hit 1 set 1 del 0",
        ]
    );
}

#[test]
fn a_watcher_sees_requests_of_other_clients() {
    let mut worker = worker(&[]);
    let (mut watcher, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    client.session.peer.fd = 77;
    let ok = watcher.send(&mut worker, b"watch fetchers mutations deletions connevents\r\n");
    assert_eq!(ok, b"OK\r\n");
    worker.begin_turn(std::time::Instant::now());
    client.send(&mut worker, b"set a 0 0 1\r\nx\r\nget a nope\r\nmd a\r\n");
    worker.close(client.session, CloseReason::Eof);
    let seen = String::from_utf8(watcher.send(&mut worker, b"")).unwrap();
    let types: Vec<_> = seen.lines().map(|line| line.split(" type=").nth(1).unwrap()).collect();
    let begin = [
        "item_store key=a status=stored cmd=set",
        "item_get key=a status=found",
        "item_get key=nope status=not_found",
        "deleted key=a cmd=md",
        "conn_close rip=unix",
    ];
    assert_eq!(types.len(), begin.len(), "{seen}");
    assert!(types.iter().zip(begin).all(|(line, begin)| line.starts_with(begin)), "{seen}");
    let shown = |line: &str| {
        let words =
            line.split(' ').filter(|word| word.starts_with("clsid=") || word.starts_with("cfd="));
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(types[0]), "clsid=1 cfd=77");
    assert_eq!(shown(types[1]), shown(types[0]));
    assert_eq!(types[0], "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=77 size=1");
    assert_eq!(types[3], "deleted key=a cmd=md clsid=1 size=1");
}

/// Shows the remaining lifetime and the value's size.
/// Other workers may fill a watcher's buffer faster than this one empties it.
#[test]
fn a_watcher_gets_a_bounded_part_each_turn() {
    let mut worker = worker(&[]);
    let (mut watcher, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    watcher.send(&mut worker, b"watch fetchers\r\n");
    worker.begin_turn(std::time::Instant::now());
    let get = [&b"get "[..], &[b'k'; 200], b"\r\n"].concat();
    client.send(&mut worker, &get.repeat(1000));
    let mut parts = Vec::new();
    loop {
        let mut part = Vec::new();
        let (mut input, mut output) = (Input::new(b""), Output::collecting(&mut part));
        let flow = worker.serve(&mut watcher.session, &mut input, &mut output);
        parts.push(part.len());
        if flow == Flow::NeedInput {
            break;
        }
        assert_eq!(flow, Flow::Yield);
    }
    assert!(parts.iter().sum::<usize>() > 200_000 && parts.len() > 3, "{parts:?}");
    assert!(parts.iter().all(|bytes| *bytes <= 100_000), "{parts:?}");
}

#[test]
fn a_watcher_sees_evictions() {
    let mut worker = worker(&[]);
    let (mut watcher, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    assert_eq!(watcher.send(&mut worker, b"watch evictions\r\n"), b"OK\r\n");
    worker.begin_turn(std::time::Instant::now());
    let value = "v".repeat(10_000);
    let mut sets = (0..100_000).map(|item| format!("set k{item} 0 1000 10000\r\n{value}\r\n"));
    let seen = sets.find_map(|set| {
        client.send(&mut worker, set.as_bytes());
        Some(watcher.send(&mut worker, b"")).filter(|seen| !seen.is_empty())
    });
    let seen = String::from_utf8(seen.unwrap()).unwrap();
    let line = seen.lines().next().unwrap();
    assert!(line.contains(" type=eviction key=k") && line.ends_with(" size=10000"), "{line}");
    let ttl = line.split(' ').find_map(|word| word.strip_prefix("ttl=")).unwrap();
    assert!((990..=1000).contains(&ttl.parse::<i64>().unwrap()), "{line}");
}
