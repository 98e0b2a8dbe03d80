//! Meta requests and their replies: every flag, every error, the order of return flags.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{single_bytes, text_events};
use proto::meta::reply::{
    DebugFacts, ItemFacts, Status, is_silent, write_debug, write_item, write_status,
    write_value_header,
};
use proto::meta::{Command, Options, Request};
use proto::text::{BadRequest, Parsed, parse};
use proto::{Error, KeyBuf, StoreMode, text};

/// Passes the meta request of `line` to `look`.
#[track_caller]
fn with_request<T>(line: &str, look: impl FnOnce(&Request<'_>) -> T) -> T {
    let (sent, mut key_buf) = (format!("{line}\r\n"), KeyBuf::new());
    match parse(sent.as_bytes(), &mut key_buf) {
        Parsed::Request { request: text::Request::Meta(meta), consumed } => {
            assert_eq!(consumed, sent.len());
            look(&meta)
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// Asserts the flags of `line`.
#[track_caller]
fn check_options(line: &str, want: Options<'_>) {
    with_request(line, |request| assert_eq!(request.options, want, "{line}"));
}

#[track_caller]
fn check_command(line: &str, want: Command) {
    with_request(line, |request| assert_eq!(request.command, want, "{line}"));
}

/// Asserts that `line` is refused, and its data block swallowed. No meta error is silent.
#[track_caller]
fn check_bad(line: &str, error: Error, swallow: u64) {
    let sent = format!("{line}\r\n");
    let consumed = sent.len();
    let is_unframed = line.starts_with("ms") && swallow == 0;
    let want = Parsed::Bad(BadRequest { error, consumed, swallow, silent: false, is_unframed });
    assert_eq!(parse(sent.as_bytes(), &mut KeyBuf::new()), want, "{line}");
}

/// Asserts that every command that reads flags refuses `flags`; `ma` has its own error.
#[track_caller]
fn check_bad_flags(flags: &str, error: Error, of_ma: Error) {
    for command in ["mg k", "md k", "me k", "mg k q"] {
        check_bad(&format!("{command} {flags}"), error, 0);
    }
    check_bad(&format!("ms k 5 {flags}"), error, 7);
    check_bad(&format!("ma k {flags}"), of_ma, 0);
}

fn set(mode: StoreMode) -> Command {
    Command::Set { mode, len: 5 }
}

#[test]
fn commands_and_keys() {
    check_command("mg k", Command::Get);
    check_command("md k", Command::Delete);
    check_command("me k", Command::Debug);
    check_command("ma k", Command::Arithmetic { decrement: false });
    check_command("ms k 5", set(StoreMode::Set));
    check_command("mn", Command::NoOp);
    check_command("mn what ever", Command::NoOp);
    with_request("mg  key  v ", |request| {
        assert_eq!(request.key, b"key");
        assert_eq!(request.flags.collect::<Vec<_>>(), [b"v"]);
    });
}

#[test]
fn too_few_words_and_bad_lengths() {
    for line in [
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "ms k",
        "ms k S5",
        "ms k x",
        "ms k -1",
        "ms k +5",
        "ms k 2147483646",
        "ms k 4294967296",
        "ms k T5 5",
    ] {
        check_bad(line, Error::Format, 0);
    }
}

#[test]
fn flags_with_and_without_arguments() {
    let none = Options::default();
    check_options("mg k q u v", Options { quiet: true, no_update: true, value: true, ..none });
    check_options("mg k c f h k l s t P L", Options { wants_cas: true, ..none });
    check_options("mg k Lany Phint", none);
    check_options("md k I x", Options { invalidate: true, drop_value: true, ..none });
    check_options(
        "mg k T30 N-1 R5 Oabc",
        Options {
            exptime: Some(30),
            autoviv_exptime: Some(-1),
            recache_secs: Some(5),
            opaque: Some(b"abc"),
            ..none
        },
    );
    check_options(
        "ms k 5 C18446744073709551615 E9 F4294967295 T0",
        Options {
            compare_cas: Some(u64::MAX),
            new_cas: Some(9),
            client_flags: Some(u32::MAX),
            exptime: Some(0),
            ..none
        },
    );
    check_options("ma k J3 D4", Options { initial: Some(3), delta: Some(4), ..none });
    // A command still accepts flags that it cannot use.
    check_options(
        "mg k D5 J5 I x F1",
        Options {
            delta: Some(5),
            initial: Some(5),
            invalidate: true,
            drop_value: true,
            client_flags: Some(1),
            ..none
        },
    );
    check_options("mg k O", Options { opaque: Some(b""), ..none });
}

/// Letters that memcached does not use.
#[test]
fn flags_that_memcached_does_not_have() {
    let none = Options::default();
    check_options("mg k v G", Options { value: true, lease: Some(0), ..none });
    check_options("mg k A", Options { accept_stale: true, ..none });
    check_options("ms k 1 G77", Options { lease: Some(77), ..none });
    check_options("md k H2", Options { hold_off_secs: Some(2), ..none });
    check_options("md user: U", Options { under: true, ..none });
    for flag in ["Gx", "G-1", "H", "H-1", "H3601"] {
        check_bad_flags(flag, Error::Token, Error::ArithmeticFlag);
    }
}

#[test]
fn a_flush_of_a_prefix_has_no_flags_of_a_delete() {
    for flag in ["C5", "C0", "E5", "E0", "H5", "I", "T5", "x"] {
        check_bad(&format!("md user: U {flag}"), Error::InvalidFlag, 0);
        check_bad(&format!("md user: {flag} q U"), Error::InvalidFlag, 0);
    }
    with_request("md user: U q k Oab Pnow F1 u", |request| assert!(request.options.under));
}

#[test]
fn a_base64_key_is_decoded() {
    check_bad("mg k b", Error::DecodingKey, 0);
    with_request("mg YQ== b", |request| {
        assert_eq!((request.key, request.options.base64), (b"a".as_slice(), true));
    });
    check_bad("ms !!!! 5 b", Error::DecodingKey, 7);
    check_bad("ma !!!! b", Error::ArithmeticFlag, 0);
}

#[test]
fn modes() {
    for (letter, mode) in [
        ("A", StoreMode::Append),
        ("E", StoreMode::Add),
        ("P", StoreMode::Prepend),
        ("R", StoreMode::Replace),
        ("S", StoreMode::Set),
        ("Append", StoreMode::Append),
    ] {
        check_command(&format!("ms k 5 M{letter}"), set(mode));
    }
    for (letter, decrement) in
        [("I", false), ("+", false), ("D", true), ("-", true), ("Decr", true)]
    {
        check_command(&format!("ma k M{letter}"), Command::Arithmetic { decrement });
    }
    for letter in ["", "s", "X", "I", "+"] {
        check_bad(&format!("ms k 5 M{letter}"), Error::StoreModeUnknown, 7);
    }
    for letter in ["", "i", "X", "S"] {
        check_bad(&format!("ma k M{letter}"), Error::ArithmeticMode, 0);
    }
    check_command("mg k Manything", Command::Get);
}

#[test]
fn refused_flags() {
    check_bad_flags("k v k", Error::DuplicateFlag, Error::ArithmeticFlag);
    check_bad_flags("T1 T2", Error::DuplicateFlag, Error::ArithmeticFlag);
    for unknown in ["y", "W", "X", "Z", "S5", "B", "1", "0x"] {
        check_bad_flags(unknown, Error::InvalidFlag, Error::ArithmeticFlag);
    }
    for odd in ["-", "^", "$k", "\t", "\0", "é"] {
        check_bad_flags(odd, Error::Format, Error::ArithmeticFlag);
    }
    for number in [
        "C",
        "C-1",
        "C+1",
        "C1x",
        "D",
        "Dx",
        "E",
        "E18446744073709551616",
        "Jx",
        "J",
        "N",
        "N+1",
        "R",
        "R1.5",
        "T",
        "Tx",
        "T9223372036854775808",
    ] {
        check_bad_flags(number, Error::Token, Error::ArithmeticFlag);
    }
    for flags in ["F", "F-1", "F4294967296"] {
        check_bad_flags(flags, Error::Format, Error::ArithmeticFlag);
    }
}

#[test]
fn an_opaque_has_at_most_32_bytes() {
    let (longest, long) = ("o".repeat(32), "o".repeat(33));
    check_options(
        &format!("mg k O{longest}"),
        Options { opaque: Some(longest.as_bytes()), ..Options::default() },
    );
    check_bad_flags(&format!("O{long}"), Error::OpaqueTooLong, Error::OpaqueTooLong);
}

#[test]
fn a_line_has_at_most_20_words() {
    // Every flag except v: 24 of them would be known.
    let flags = "c f h k l s t v q u x I O P L F1 T1 N1 R1 C1";
    let most = flags.rsplitn(3, ' ').last().unwrap();
    with_request(&format!("mg k {most}"), |request| assert_eq!(request.flags.count(), 18));
    check_bad(&format!("mg k {most} R1"), Error::ManyFlags, 0);
    check_bad(&format!("ma k {most} R1"), Error::ManyFlags, 0);
    check_bad(&format!("ms k 5 {most}"), Error::ManyFlags, 7);
}

#[test]
fn keys_of_maximum_length() {
    let (longest, long) = ("k".repeat(250), "k".repeat(251));
    with_request(&format!("mg {longest}"), |request| assert_eq!(request.key.len(), 250));
    check_bad(&format!("mg {long}"), Error::Format, 0);
    check_bad(&format!("ms {long} 5"), Error::Format, 7);
    check_bad(&format!("ma {long}"), Error::ArithmeticFlag, 0);
    let text = "AAAA".repeat(62);
    with_request(&format!("mg {text} b"), |request| assert_eq!(request.key, [0; 186]));
    check_bad(&format!("mg {text}AAAA b"), Error::Format, 0);
}

#[test]
fn split_input_is_parsed_the_same() {
    let sent =
        b"mg a v k\r\nms b 3 T0 b\r\nxyz\r\nms b 3 y\r\nx\nz\r\nms AA== 2 b\nhi\r\nmn\r\nmg a\n";
    let whole = text_events(&[sent]);
    assert_eq!(whole.len(), 7);
    for cut in 0..=sent.len() {
        let (first, second) = sent.split_at(cut);
        assert_eq!(text_events(&[first, second]), whole, "cut at {cut}");
    }
    assert_eq!(text_events(&single_bytes(sent)), whole);
}

const FACTS: ItemFacts = ItemFacts {
    cas: 7,
    flags: 30,
    hit_before: true,
    last_access_secs: 11,
    value_bytes: 2,
    ttl_secs_before: None,
    ttl_secs: Some(50),
    key_is_base64: false,
    win_sent: false,
    stale: false,
    won: false,
    lease: None,
};

/// Asserts the reply to `line` about an item of `facts`.
#[track_caller]
fn check_item(line: &str, facts: ItemFacts, want: &str) {
    let mut out = Vec::new();
    with_request(line, |request| write_item(&mut out, request, Status::Done, &facts));
    assert_eq!(String::from_utf8(out).unwrap(), format!("{want}\r\n"), "{line}");
}

/// Asserts the reply to `line` when there is no item.
#[track_caller]
fn check_status(line: &str, status: Status, want: &str) {
    let mut out = Vec::new();
    with_request(line, |request| write_status(&mut out, request, status));
    assert_eq!(String::from_utf8(out).unwrap(), format!("{want}\r\n"), "{line}");
}

#[test]
fn return_flags_come_in_request_order() {
    check_item("mg a", FACTS, "HD");
    check_item("mg a s f c h l t k Oxy", FACTS, "HD s2 f30 c7 h1 l11 t-1 ka Oxy");
    check_item("mg a Oxy k t l h c f s q u", FACTS, "HD Oxy ka t-1 l11 h1 c7 f30 s2");
    let mut out = Vec::new();
    with_request("mg a t v c", |request| write_value_header(&mut out, request, 2, &FACTS));
    assert_eq!(out, b"VA 2 t-1 c7\r\n");
}

#[test]
fn a_ttl_requested_before_the_t_flag_is_the_old_one() {
    check_item("mg a t T50", FACTS, "HD t-1");
    check_item("mg a T50 t", FACTS, "HD t50");
    check_item("mg a N50 t", FACTS, "HD t-1");
    check_item("ma a T50 t", FACTS, "HD t50");
}

#[test]
fn each_command_returns_only_its_own_flags() {
    check_item("ms a 2 c t f s k Oq h l", FACTS, "HD c7 s2 ka Oq");
    check_item("md a c t f s k Oq", FACTS, "HD ka Oq");
    check_item("ma a c t f s k Oq", FACTS, "HD c7 t-1 ka Oq");
}

#[test]
fn marks_come_last() {
    let stale = ItemFacts { stale: true, ..FACTS };
    check_item("mg a k", ItemFacts { won: true, ..stale }, "HD ka X W");
    check_item("mg a k", ItemFacts { win_sent: true, ..stale }, "HD ka Z X");
    check_item("mg a", ItemFacts { won: true, ..FACTS }, "HD W");
}

#[test]
fn a_lease_token_follows_the_marks() {
    let facts = ItemFacts { won: true, lease: Some(77), ..FACTS };
    check_item("mg k s G", facts, "HD s2 W G77");
}

#[test]
fn base64_keys_are_returned_in_base64() {
    check_item("mg YQ== b k c", FACTS, "HD kYQ== b c7");
    check_item("mg a k", ItemFacts { key_is_base64: true, ..FACTS }, "HD kYQ== b");
    check_status("mg YQ== k b", Status::Miss, "EN kYQ== b");
}

#[test]
fn replies_without_an_item_contain_only_key_and_opaque() {
    check_status("mg a k t Ox s v", Status::Miss, "EN ka Ox");
    check_status("md a q Ox k", Status::NotFound, "NF Ox ka");
    check_status("ms a 2 ME c k s", Status::NotStored, "NS c0 ka s2");
    check_status("ma a C5 c k", Status::Exists, "EX ka");
}

#[test]
fn quiet_suppresses_only_expected_replies() {
    let silent = |line: &str, status| with_request(line, |request| is_silent(request, status));
    assert!(silent("mg a q", Status::Miss) && !silent("mg a q", Status::Done));
    for line in ["ms a 2 q", "md a q", "ma a q"] {
        assert!(silent(line, Status::Done));
        for status in [Status::NotFound, Status::NotStored, Status::Exists] {
            assert!(!silent(line, status), "{line} {status:?}");
        }
    }
    assert!(!silent("md a", Status::Done) && !silent("mg a", Status::Miss));
}

#[test]
fn debug_line() {
    let facts = DebugFacts {
        last_access_secs: 3,
        cas: 4,
        class: 5,
        item_bytes: 66,
        ..DebugFacts::default()
    };
    let mut out = Vec::new();
    with_request("me a", |request| write_debug(&mut out, request, &facts));
    let rest = DebugFacts { ttl_secs: Some(9), fetched: true, ..facts };
    with_request("me YQ== b", |request| write_debug(&mut out, request, &rest));
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "ME a exp=-1 la=3 cas=4 fetch=no cls=5 size=66\r\n\
         ME YQ== exp=9 la=3 cas=4 fetch=yes cls=5 size=66\r\n"
    );
}
