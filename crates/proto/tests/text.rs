//! Classic text requests: line rules, every command, exact errors. Each case runs with every split.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{single_bytes, text_events};
use proto::text::{
    Admin, AdminCommand, Arithmetic, BadRequest, GetLine, KeyToken, Parsed, Request, Store, Words,
    parse,
};
use proto::{Error, KeyBuf, StoreMode};

const FORMAT: &str = r"CLIENT_ERROR bad command line format\r\n silent=false swallow=0";
const ERROR: &str = r"ERROR\r\n silent=false swallow=0";

/// Asserts the events of `sent`, for every split in two, and byte by byte.
#[track_caller]
fn check(sent: &[u8], want: &[&str]) {
    for cut in 0..=sent.len() {
        let (first, second) = sent.split_at(cut);
        assert_eq!(text_events(&[first, second]), want, "{} cut at {cut}", sent.escape_ascii());
    }
    assert_eq!(text_events(&single_bytes(sent)), want, "{} by bytes", sent.escape_ascii());
}

/// Asserts the one request of `line`.
#[track_caller]
fn check_request(line: &[u8], want: Request<'_>) {
    for end in [b"\r\n".as_slice(), b"\n", b"   \r\n", b" \n"] {
        let sent = [line, end].concat();
        let consumed = sent.len();
        let want = Parsed::Request { request: want.clone(), consumed };
        assert_eq!(parse(&sent, &mut KeyBuf::new()), want, "{}", sent.escape_ascii());
    }
}

/// Asserts that `line` is refused.
#[track_caller]
fn check_bad(line: &[u8], error: Error, swallow: u64, silent: bool) {
    let sent = [line, b"\r\n"].concat();
    let consumed = sent.len();
    let mut key_buf = KeyBuf::new();
    let parsed = parse(&sent, &mut key_buf);
    let is_unframed = matches!(parsed, Parsed::Bad(BadRequest { is_unframed: true, .. }));
    assert!(!is_unframed || swallow == 0, "{}", sent.escape_ascii());
    let want = Parsed::Bad(BadRequest { error, consumed, swallow, silent, is_unframed });
    assert_eq!(parsed, want, "{}", sent.escape_ascii());
}

fn get(exptime: Option<i64>, with_cas: bool) -> String {
    format!(
        "Get(GetLine {{ exptime: {exptime:?}, with_cas: {with_cas}, with_lease: false, with_info: false, state: NoKey }})"
    )
}

const STORE: Store<'_> = Store {
    mode: StoreMode::Set,
    key: b"k",
    flags: 1,
    exptime: 2,
    len: 3,
    cas: None,
    lease: None,
    noreply: false,
};

#[test]
fn storage_commands() {
    let modes: [(&[u8], StoreMode); 5] = [
        (b"set", StoreMode::Set),
        (b"add", StoreMode::Add),
        (b"replace", StoreMode::Replace),
        (b"append", StoreMode::Append),
        (b"prepend", StoreMode::Prepend),
    ];
    for (command, mode) in modes {
        let line = [command, b" k 1 2 3"].concat();
        check_request(&line, Request::Store(Store { mode, ..STORE }));
        let quiet = [command, b" k 1 2 3 noreply"].concat();
        check_request(&quiet, Request::Store(Store { mode, noreply: true, ..STORE }));
    }
    let cas = Store { cas: Some(u64::MAX), ..STORE };
    check_request(b"cas k 1 2 3 18446744073709551615", Request::Store(cas));
    let quiet = Store { noreply: true, ..cas };
    check_request(b"cas k 1 2 3 18446744073709551615 noreply", Request::Store(quiet));
}

#[test]
fn storage_numbers_at_their_limits() {
    let store = Store { flags: u32::MAX, exptime: i64::MIN, len: 0x7fff_fffd, ..STORE };
    check_request(b"set k 4294967295 -9223372036854775808 2147483645", Request::Store(store));
    let late = Store { exptime: 1 << 32, ..STORE };
    check_request(b"set k 1 4294967296 3", Request::Store(late));
    check_request(b"set k 01 002 0003", Request::Store(STORE));
    // A client's -1 as a number of 32 bits.
    let dead = Store { exptime: -1, ..STORE };
    check_request(b"set k 1 4294967295 3", Request::Store(dead));
    check_request(
        b"lease-set k 7 1 4294967295 3",
        Request::Store(Store { lease: Some(7), ..dead }),
    );
}

/// CVE-2009-2415 and the wrap in mcrouter d6ab87fa: a length fits into its number type, or the line
/// is refused.
#[test]
fn an_invalid_length_is_reported_despite_noreply() {
    for len in [
        "x",
        "-1",
        "+3",
        "3.0",
        "0x3",
        "2147483646",
        "2147483647",
        "2147483648",
        "4294967293",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        check_bad(format!("set k 1 2 {len}").as_bytes(), Error::Format, 0, false);
        check_bad(format!("set k 1 2 {len} noreply").as_bytes(), Error::Format, 0, false);
        check_bad(format!("cas k 1 2 {len} 5").as_bytes(), Error::Format, 0, false);
    }
}

#[test]
fn an_invalid_line_with_a_valid_length_skips_its_data() {
    for words in ["k x 2 3", "k 4294967296 2 3", "k -1 2 3", "k +1 2 3", "k 1 x 3", "k 1 + 3"] {
        check_bad(format!("set {words}").as_bytes(), Error::Format, 5, false);
        check_bad(format!("set {words} noreply").as_bytes(), Error::Format, 5, true);
        check_bad(format!("cas {words} 9").as_bytes(), Error::Format, 5, false);
    }
    check_bad(b"cas k 1 2 3 x", Error::Format, 5, false);
    check_bad(b"cas k 1 2 3 -1 noreply", Error::Format, 5, true);
    // 1.6.45 also swallows the data of a cas without its unique.
    check_bad(b"cas k 1 2 3", Error::Format, 5, false);
    check_bad(b"cas k 1 2 3 noreply", Error::Format, 5, true);
    let long = "k".repeat(251);
    check_bad(format!("set {long} 1 2 3").as_bytes(), Error::Format, 5, false);
    check_bad(format!("add {long} 1 2 3 noreply").as_bytes(), Error::Format, 5, true);
    check(
        b"set k x 0 8\r\nversion\n\r\nversion\r\n",
        &[r"CLIENT_ERROR bad command line format\r\n silent=false swallow=10", "Version"],
    );
}

#[test]
fn lines_with_too_few_words_are_refused() {
    for line in [
        "set",
        "set k",
        "set k 1",
        "set k 1 2",
        "add k 1 2",
        "cas k 1 2",
        "get",
        "gets",
        "gat",
        "gats",
        "touch",
        "touch k",
        "incr",
        "incr k",
        "decr k",
        "delete",
    ] {
        check_bad(line.as_bytes(), Error::Format, 0, false);
    }
    // Here `noreply` is in place of a missing word.
    check_bad(b"set k 1 2 noreply", Error::Format, 0, false);
    let swallowed = r"CLIENT_ERROR bad command line format\r\n silent=false swallow=8";
    check(b"cas foo 0 0 6 \r\nbarva2\r\n", &[swallowed]);
}

#[test]
fn extra_words_are_ignored_and_noreply_must_be_last() {
    check_request(b"set k 1 2 3 4 5 6", Request::Store(STORE));
    check_request(b"set k 1 2 3 x noreply", Request::Store(Store { noreply: true, ..STORE }));
    check_request(b"set k 1 2 3 noreply x", Request::Store(STORE));
    let incr = Arithmetic { key: b"k", decrement: false, delta: 5, noreply: false };
    check_request(b"incr k 5 9", Request::Arithmetic(incr));
    check_request(b"version 1 2", Request::Version);
    check_request(b"quit now", Request::Quit);
}

fn delete(key: &[u8], secs: u32, noreply: bool) -> Request<'_> {
    Request::Delete { key, secs, tells_kept: false, noreply }
}

#[test]
fn a_delete_can_request_a_distinct_reply_if_executed() {
    let told = |key, secs, noreply| {
        let tells_kept = true;
        Request::Delete { key, secs, tells_kept, noreply }
    };
    check_request(b"delete k executed", told(b"k", 0, false));
    check_request(b"delete k 5 executed noreply", told(b"k", 5, true));
    check_request(b"delete executed", delete(b"executed", 0, false));
    check_bad(b"delete k executed 5", Error::Format, 0, false);
}

#[test]
fn leases() {
    let get = "Get(GetLine { exptime: None, with_cas: false, with_lease: true, with_info: false, state: NoKey })";
    check(b"lease-get a b\r\n", &[get, "key a", "key b", "end"]);
    let store = Store { lease: Some(u64::MAX), ..STORE };
    check_request(b"lease-set k 18446744073709551615 1 2 3", Request::Store(store));
    let store = Store { noreply: true, ..store };
    check_request(b"lease-set k 18446744073709551615 1 2 3 noreply", Request::Store(store));
    check_bad(b"lease-get", Error::Format, 0, false);
    check_bad(b"lease-set k 5 1 2", Error::Format, 0, false);
    check_bad(b"lease-set k 5 1 2 x", Error::Format, 0, false);
    for mistake in ["lease-set k -5 1 2 3", "lease-set k 5 x 2 3", "lease-set k 5 1 x 3"] {
        check_bad(mistake.as_bytes(), Error::Format, 5, false);
    }
    check_bad(&[b"lease-set ", &[b'k'; 251][..], b" 5 1 2 3"].concat(), Error::Format, 5, false);
}

#[test]
fn flush_prefix_takes_one_word() {
    let flush = |noreply| Request::FlushPrefix { prefix: b"user:", noreply };
    check_request(b"flush_prefix user:", flush(false));
    check_request(b"flush_prefix user: noreply", flush(true));
    for mistake in ["flush_prefix", "flush_prefix noreply"] {
        check_bad(mistake.as_bytes(), Error::Format, 0, false);
    }
    check_bad(b"flush_prefix a b", Error::Format, 0, false);
    check_bad(&[b"flush_prefix ", &[b'k'; 251][..]].concat(), Error::Format, 0, false);
}

#[test]
fn a_key_may_be_named_noreply() {
    let store = Store { key: b"noreply", ..STORE };
    check_request(b"set noreply 1 2 3", Request::Store(store));
    check_request(b"delete noreply", delete(b"noreply", 0, true));
    check(b"get noreply\r\n", &[&get(None, false), "key noreply", "end"]);
}

#[test]
fn delete_accepts_a_number_and_refuses_other_words() {
    check_request(b"delete k", delete(b"k", 0, false));
    check_request(b"delete k 0", delete(b"k", 0, false));
    check_request(b"delete k 5 noreply", delete(b"k", 5, true));
    check_request(b"delete k 4294967295", delete(b"k", u32::MAX, false));
    check_request(b"delete k noreply", delete(b"k", 0, true));
    check_bad(b"delete k 4294967296", Error::Format, 0, false);
    check_bad(b"delete k a b c d e", Error::Format, 0, false);
    check_bad(b"delete k x", Error::Format, 0, false);
    check_bad(b"delete k 0 0", Error::Format, 0, false);
    check_bad(b"delete k -1 noreply", Error::Format, 0, true);
}

#[test]
fn arithmetic() {
    let decr = Arithmetic { key: b"k", decrement: true, delta: u64::MAX, noreply: true };
    check_request(b"decr k 18446744073709551615 noreply", Request::Arithmetic(decr));
    for delta in ["-1", "+1", "1.5", "x", "18446744073709551616"] {
        check_bad(format!("incr k {delta}").as_bytes(), Error::Delta, 0, false);
        check_bad(format!("decr k {delta} noreply").as_bytes(), Error::Delta, 0, true);
    }
}

#[test]
fn touch_and_flush() {
    check_request(b"touch k -1", Request::Touch { key: b"k", exptime: -1, noreply: false });
    let dead = Request::Touch { key: b"k", exptime: -1, noreply: false };
    check_request(b"touch k 4294967295", dead);
    check_request(b"touch k 9 noreply", Request::Touch { key: b"k", exptime: 9, noreply: true });
    check_bad(b"touch k x", Error::Exptime, 0, false);
    check_bad(b"touch k 9223372036854775808 noreply", Error::Exptime, 0, true);
    check_request(b"flush_all", Request::FlushAll { exptime: None, noreply: false });
    check_request(b"flush_all noreply", Request::FlushAll { exptime: None, noreply: true });
    check_request(b"flush_all -1", Request::FlushAll { exptime: Some(-1), noreply: false });
    check_request(b"flush_all 9 noreply", Request::FlushAll { exptime: Some(9), noreply: true });
    check_bad(b"flush_all x", Error::Exptime, 0, false);
}

#[test]
fn admin_commands_keep_their_words() {
    let commands = [
        ("cache_memlimit", AdminCommand::CacheMemlimit),
        ("extstore", AdminCommand::Extstore),
        ("lru", AdminCommand::Lru),
        ("lru_crawler", AdminCommand::LruCrawler),
        ("refresh_certs", AdminCommand::RefreshCerts),
        ("shutdown", AdminCommand::Shutdown),
        ("slabs", AdminCommand::Slabs),
        ("stats", AdminCommand::Stats),
        ("verbosity", AdminCommand::Verbosity),
        ("watch", AdminCommand::Watch),
    ];
    for (name, command) in commands {
        let line = format!("{name}  one two noreply\r\n");
        let mut key_buf = KeyBuf::new();
        let parsed = parse(line.as_bytes(), &mut key_buf);
        let Parsed::Request { request: Request::Admin(admin), consumed } = parsed else {
            panic!("{name}: {parsed:?}");
        };
        // stats has no noreply: there it is an ordinary word.
        let is_stats = command == AdminCommand::Stats;
        let words: &[&[u8]] = &[b"one", b"two", b"noreply"];
        let want = if is_stats { words } else { &words[..2] };
        assert_eq!((admin.command, admin.noreply, consumed), (command, !is_stats, line.len()));
        assert_eq!(admin.words.collect::<Vec<_>>(), want);
        let (bare, mut key_buf) = (format!("{name}\n"), KeyBuf::new());
        let admin = Admin { command, words: Words::default(), noreply: false };
        let want = Parsed::Request { request: Request::Admin(admin), consumed: bare.len() };
        assert_eq!(parse(bare.as_bytes(), &mut key_buf), want);
    }
}

#[test]
fn retrieval_keys_are_parsed_one_at_a_time() {
    check(b"get a\r\n", &[&get(None, false), "key a", "end"]);
    check(b"bget a\n", &[&get(None, false), "key a", "end"]);
    check(b"gets a bb a\n", &[&get(None, true), "key a", "key bb", "key a", "end"]);
    check(
        b"get    a   b  \r\nversion\r\n",
        &[&get(None, false), "key a", "key b", "end", "Version"],
    );
    check(b"gat 10 a b\r\n", &[&get(Some(10), false), "key a", "key b", "end"]);
    check(b"gats   -1   a\n", &[&get(Some(-1), true), "key a", "end"]);
    check(
        b"get a\nget b\n",
        &[&get(None, false), "key a", "end", &get(None, false), "key b", "end"],
    );
}

#[test]
fn a_retrieval_without_a_key_is_an_error() {
    check(b"get\r\n", &[FORMAT]);
    check(b"gat\n", &[FORMAT]);
    check(b"gats \r\n", &[FORMAT]);
    check(b"get \r\nmn\r\n", &[&get(None, false), "bad Format", MN]);
    check(b"gets    \n", &[&get(None, true), "bad Format"]);
    check(b"gat 4294967295 a\r\n", &[&get(Some(-1), false), "key a", "end"]);
    check(b"gat 10\r\n", &[&get(Some(10), false), "bad Format"]);
}

const MN: &str = "Meta(Request { command: NoOp, key: [], options: Options { base64: false, \
    invalidate: false, quiet: false, wants_cas: false, no_update: false, value: false, drop_value: false, \
    compare_cas: None, new_cas: None, delta: None, client_flags: None, initial: None, \
    autoviv_exptime: None, opaque: None, tells_kept: false, unkept: false, recache_secs: None, accept_stale: false, lease: None, \
    hold_off_secs: None, under: false, exptime: None }, \
    flags: Words { rest: [] } })";

#[test]
fn a_bad_exptime_refuses_the_whole_retrieval() {
    let refused = "Get(GetLine { exptime: None, with_cas: false, with_lease: false, with_info: false, \
        state: Refused(Exptime) })";
    check(b"gat x a b\r\nversion\r\n", &[refused, "bad Exptime", "Version"]);
    check(b"gat +5 a\n", &[refused, "bad Exptime"]);
}

#[test]
fn a_long_key_ends_a_retrieval_with_an_error() {
    let (longest, long) = ("k".repeat(250), "k".repeat(251));
    let (key, head) = (format!("key {longest}"), get(None, false));
    check(format!("get {longest}\r\n").as_bytes(), &[&head, &key, "end"]);
    check(format!("get {longest} {longest}\n").as_bytes(), &[&head, &key, &key, "end"]);
    check(format!("get {long}\r\nversion\r\n").as_bytes(), &[&head, "bad Format", "Version"]);
    check(format!("get a {long} b\r\n").as_bytes(), &[&head, "key a", "bad Format"]);
    check(format!("get {longest}\r b\n").as_bytes(), &[&head, "bad Format"]);
}

/// CVE-2018-1000127 and CVE-2023-46852: the length of a line of keys, or of the spaces in it, costs
/// nothing.
#[test]
fn a_retrieval_has_no_length_limit() {
    let line = format!("get{}{}\r\n", " ".repeat(70_000), " a".repeat(70_000));
    for size in [1, 7, 2048, 65_536] {
        let events = text_events(&line.as_bytes().chunks(size).collect::<Vec<_>>());
        assert_eq!(events.len(), 70_002);
        assert_eq!(events.last().unwrap(), "end");
    }
}

#[test]
fn only_spaces_separate_keys() {
    check(b"get a\tb\r\n", &[&get(None, false), r"key a\tb", "end"]);
    check(b"get \0\x7f\xff\r \r\n", &[&get(None, false), r"key \x00\x7f\xff\r", "end"]);
    check(b"get \r\r\n", &[&get(None, false), r"key \r", "end"]);
    check(b"get\ta\r\n", &[ERROR]);
}

#[test]
fn lines_without_a_valid_command() {
    check(b"\r\n", &[FORMAT]);
    check(b"\nx\n \n", &[FORMAT, FORMAT, FORMAT]);
    check(b"   \r\n", &[ERROR]);
    check(b" get a\r\n", &[ERROR]);
    check(b"GET a\r\nnope\r\nsetx k 0 0 1\r\n\0\0\r\n", &[ERROR; 4]);
}

/// An attacker can make a browser send chosen lines, but it always sends HTTP first.
#[test]
fn http_requests_are_recognized() {
    check(b"GET / HTTP/1.1\r\nset k 0 0 1\r\n", &["Http"]);
    check(b"POST /x HTTP/2 \nversion\r\n", &["Http"]);
    check(b"GET / FTP/1.1\r\n", &[ERROR]);
    // A valid command stays a command.
    check(b"get HTTP/1.1\r\n", &[&get(None, false), "key HTTP/1.1", "end"]);
}

#[test]
fn lines_have_at_most_2048_bytes() {
    let words = format!("version {}", "x".repeat(2040));
    check(format!("{words}\n").as_bytes(), &["Version"]);
    check(format!("{words}x\n").as_bytes(), &["LineTooLong"]);
    check(&[0; 2049], &["LineTooLong"]);
    check(&[0; 2048], &[]);
    check(format!("gat {}1 k\r\n", " ".repeat(2044)).as_bytes(), &["LineTooLong"]);
}

#[test]
fn values_are_not_parsed_as_lines() {
    check(
        b"set k 1 2 3\r\na\nb\r\nversion\r\n",
        &[&format!("{:?}", Request::Store(STORE)), r"data a\nb\r\n", "Version"],
    );
}

#[test]
fn words_from_both_ends() {
    let words = Words::new(b"  a bb   noreply  ");
    assert_eq!(words.collect::<Vec<_>>(), [b"a".as_slice(), b"bb", b"noreply"]);
    let (before, last) = words.split_last().unwrap();
    assert_eq!(
        (before.collect::<Vec<_>>(), last),
        (vec![b"a".as_slice(), b"bb"], b"noreply".as_slice())
    );
    assert_eq!(Words::new(b"   ").split_last(), None);
    assert!(Words::new(b"   ").is_empty() && !words.is_empty());
}

/// The data after the line of a request, and whether the client reads an answer.
#[test]
fn data_block_lengths_and_noreply() {
    let requests: [(&str, u64, bool); 22] = [
        ("set k 0 0 3", 5, false),
        ("set k 0 0 3 noreply", 5, true),
        ("add k 0 0 0", 2, false),
        ("append k 0 0 1 noreply", 3, true),
        ("cas k 0 0 4 9 noreply", 6, true),
        ("lease-set k 7 0 0 3", 5, false),
        ("ms k 2", 4, false),
        ("ms k 2 q", 4, false),
        ("mg k v", 0, false),
        ("mn", 0, false),
        ("get k", 0, false),
        ("incr k 1", 0, false),
        ("incr k 1 noreply", 0, true),
        ("delete k", 0, false),
        ("delete k noreply", 0, true),
        ("touch k 1 noreply", 0, true),
        ("flush_all noreply", 0, true),
        ("flush_prefix k noreply", 0, true),
        ("verbosity 1 noreply", 0, true),
        ("stats", 0, false),
        ("version", 0, false),
        ("quit", 0, false),
    ];
    for (line, data_bytes, noreply) in requests {
        let (sent, mut key_buf) = (format!("{line}\r\n"), KeyBuf::new());
        let Parsed::Request { request, .. } = parse(sent.as_bytes(), &mut key_buf) else {
            panic!("{line}: no request")
        };
        assert_eq!((request.data_bytes(), request.noreply()), (data_bytes, noreply), "{line}");
    }
}

/// Every command reads the longest key, and none reads one byte more.
#[test]
fn every_command_accepts_keys_of_at_most_250_bytes() {
    let lines = [
        "set {} 0 0 3",
        "cas {} 0 0 3 9",
        "lease-set {} 7 0 0 3",
        "incr {} 1",
        "decr {} 1 noreply",
        "delete {}",
        "touch {} 1",
        "flush_prefix {}",
        "ms {} 2",
        "mg {} v",
    ];
    for line in lines {
        for (len, is_read) in [(250, true), (251, false)] {
            let sent = line.replace("{}", &"k".repeat(len)) + "\r\n";
            let mut key_buf = KeyBuf::new();
            let parsed = parse(sent.as_bytes(), &mut key_buf);
            assert_eq!(matches!(parsed, Parsed::Request { .. }), is_read, "{line} {len}");
            assert_eq!(matches!(parsed, Parsed::Bad(_)), !is_read, "{line} {len}");
        }
    }
}

#[test]
fn metaget_is_a_retrieval_of_item_information() {
    let (mut line, consumed) = GetLine::metaget(b"metaget k\r\n").unwrap();
    assert!(line.with_info && !line.with_cas && !line.with_lease);
    assert_eq!(
        line.next_key(&b"metaget k\r\n"[consumed..]),
        KeyToken::Key { key: b"k", consumed: 1 }
    );
    assert_eq!(line.next_key(b"\r\n"), KeyToken::End { consumed: 2 });
    assert_eq!(GetLine::metaget(b"metaget\r\n"), None);
    assert_eq!(GetLine::metaget(b"get k\r\n"), None);
}

/// Keys that a caller found itself, and a line that it refuses at one of them.
#[test]
fn a_caller_can_take_keys_and_refuse_the_rest() {
    let (mut line, _) = GetLine::metaget(b"metaget k\r\n").unwrap();
    assert!(line.take_key());
    assert_eq!(line.next_key(b"\r\n"), KeyToken::End { consumed: 2 });
    line.refuse_rest(Error::Format);
    assert!(!line.take_key());
    let bad = KeyToken::Bad { error: Error::Format, consumed: 8 };
    assert_eq!(line.next_key(b" a b c\r\nget d\r\n"), bad);
}
