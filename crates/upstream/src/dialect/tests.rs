//! Requests by the dialect that they need, and servers by the dialect that they show.

use super::*;
use proto::answer::{Parsed, parse};

/// The dialect shown by these answers to the probe.
fn seen(answers: &str) -> Dialect {
    let (mut heard, mut rest) = (ProbeAnswers::default(), answers.as_bytes());
    while let Parsed::Answer { answer, consumed } = parse(rest, 0) {
        assert!(heard.take(&answer), "{answers}");
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty(), "{answers}");
    heard.dialect()
}

#[test]
fn the_reply_to_the_probe_determines_the_dialect() {
    let ours = "MN leases\r\nCLIENT_ERROR invalid mode for ms M token\r\n";
    assert_eq!(seen(ours), Dialect::Holdall);
    // From before spans existed, or without a collector: it does not repeat the third word.
    let tracing = "MN leases traceparent\r\nCLIENT_ERROR invalid mode for ms M token\r\n";
    assert_eq!(seen(tracing), Dialect::Tracing);
    let other = "MN leases others\r\nCLIENT_ERROR invalid mode for ms M token\r\n";
    assert_eq!(seen(other), Dialect::Holdall);
    assert_eq!(seen("MN\r\nCLIENT_ERROR invalid mode for ms M token\r\n"), Dialect::Meta);
    // 1.6.9 takes the length for a flag, and the block for empty lines.
    assert_eq!(seen("MN\r\nCLIENT_ERROR invalid flag\r\nERROR\r\nERROR\r\n"), Dialect::Classic);
    assert_eq!(seen("ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"), Dialect::Classic);
    // A server that skips empty lines.
    assert_eq!(seen("ERROR\r\nERROR\r\n"), Dialect::Classic);
    // A server that stores it knows a mode unknown to us.
    let stored = parse(b"HD\r\n", 0);
    let Parsed::Answer { answer, .. } = stored else { panic!("{stored:?}") };
    assert!(!ProbeAnswers::default().take(&answer));
}

/// The line of each command with the lowest requirements, and the dialect for it.
#[test]
fn each_command_has_its_minimum_dialect() {
    for op in Command::ALL {
        let key: &[u8] = if op == Command::Version { b"" } else { b"k" };
        let plain = needs(&Request::new(op, key)).unwrap();
        let dialect = match op {
            Command::Add
            | Command::Append
            | Command::Cas
            | Command::Decr
            | Command::Delete
            | Command::Get
            | Command::Gets
            | Command::Incr
            | Command::Prepend
            | Command::Replace
            | Command::Set
            | Command::Touch
            | Command::Version => Dialect::Basic,
            Command::Gat | Command::Gats | Command::MetaInfo => Dialect::Classic,
            Command::MetaArithmetic
            | Command::MetaDebug
            | Command::MetaDelete
            | Command::MetaGet
            | Command::MetaSet => Dialect::Meta,
            Command::FlushAll | Command::LeaseGet | Command::LeaseSet => Dialect::Holdall,
        };
        assert_eq!(plain, dialect, "{op:?}");
        // In commands without a block, a refused expiry time does no harm.
        let late = Request { exptime: 1 << 31, ..Request::new(op, key) };
        let is_storage = op.has_value() && !op.is_meta();
        let needed = match op {
            Command::Delete => Dialect::Holdall,
            _ if is_storage => dialect.max(Dialect::Meta),
            _ => dialect,
        };
        assert_eq!(needs(&late), Ok(needed), "{op:?}");
    }
    assert_eq!(needs(&Request::new(Command::FlushAll, b"")), Ok(Dialect::Classic));
}

#[test]
fn keys_that_are_not_one_word_are_refused() {
    let long = [b'k'; 251];
    let bad: [&[u8]; 8] = [b"", b"a b", b"a\0b", b"a\rb", b"a\nb", b"\t", b"\x7f", &long];
    for op in
        Command::ALL.into_iter().filter(|op| !matches!(op, Command::FlushAll | Command::Version))
    {
        for key in bad {
            assert!(needs(&Request::new(op, key)).is_err(), "{op:?} {}", key.escape_ascii());
        }
        assert!(needs(&Request::new(op, &long[..250])).is_ok());
        assert!(needs(&Request::new(op, "ключ".as_bytes())).is_ok());
    }
    assert!(needs(&Request::new(Command::FlushAll, b"a\r\nb")).is_err());
    // In base64, 186 bytes become 248, and 187 become 252.
    let encoded =
        |key| Request { base64: true, words: b"b", ..Request::new(Command::MetaSet, key) };
    assert_eq!(needs(&encoded(&[0; 186])), Ok(Dialect::Meta));
    assert_eq!(needs(&encoded(&[0; 187])), Err(BAD_KEY));
    assert_eq!(needs(&encoded(b"")), Err(BAD_KEY));
}

/// The dialect of an `ms` with these words.
fn of(words: &[u8]) -> Option<Dialect> {
    needs(&Request { words, ..Request::new(Command::MetaSet, b"k") }).ok()
}

#[test]
fn meta_flags_have_their_minimum_dialects() {
    for words in ["", "b c f h k l s t u v x I", "C5 D1 E7 J0 F9 N-1 R30 T0 MS Oabc Lx P/x"] {
        assert_eq!(of(words.as_bytes()), Some(Dialect::Meta), "{words}");
    }
    for words in ["A", "U", "G", "G7", "H1", "T0 H1 c"] {
        assert_eq!(of(words.as_bytes()), Some(Dialect::Holdall), "{words}");
    }
    for words in ["q", "a", "W", "T", "Tx", "F4294967296", "C-1", "M", "Gx", "H", "k\0", "Oa\rb"] {
        assert_eq!(of(words.as_bytes()), None, "{words}");
    }
    assert_eq!(of(&[b'O'; 33]), Some(Dialect::Meta));
    assert_eq!(of(&[b'O'; 34]), None);
    assert_eq!(of(&[&b"L"[..], &[b'x'; 2030]].concat()), None, "the line is too long");
    // memcached counts words before it looks at the block.
    assert_eq!(of(&b"k ".repeat(16)), Some(Dialect::Meta));
    assert_eq!(of(&b"k ".repeat(17)), Some(Dialect::Holdall));
    assert_eq!(of(&b"k ".repeat(18)), None);
}

#[test]
fn a_key_unfit_for_a_line_is_not_requested_from_memcached() {
    let asked = |op, key| Request { base64: true, words: b"b k", ..Request::new(op, key) };
    for op in [Command::MetaGet, Command::MetaSet, Command::MetaDelete, Command::MetaArithmetic] {
        let (raw, plain) = (asked(op, b"a\r\nb"), asked(op, b"ab"));
        assert_eq!((needs(&raw), needs(&plain)), (Ok(Dialect::Meta), Ok(Dialect::Meta)));
        let adds = |request: &Request<'_>| adds_key(op, request.key, request.words);
        assert!(adds(&raw) && !adds(&plain) && !adds(&Request { words: b"b v", ..raw }), "{op:?}");
    }
    // The reply to `me` starts with the key.
    let debug = asked(Command::MetaDebug, b"a b");
    assert_eq!(needs(&debug), Ok(Dialect::Holdall));
    assert!(lacking(&debug, Dialect::Holdall).contains("raw"));
    assert_eq!(needs(&asked(Command::MetaDebug, b"ab")), Ok(Dialect::Meta));
}

#[test]
fn an_error_keeps_the_connection_only_if_the_block_was_read() {
    let (client, unknown) = (Answer::ClientError(b"bad"), Answer::Error(b""));
    let stays = stays_in_step;
    for op in Command::ALL {
        let has_block = op.has_value();
        assert_eq!(stays(op, &client, None), !has_block, "{op:?}");
        assert_eq!(stays(op, &unknown, Some(Dialect::Holdall)), !has_block, "{op:?}");
        assert!(stays(op, &client, Some(Dialect::Holdall)), "{op:?}");
        assert!(stays(op, &Answer::ServerError(b"object too large for cache"), None), "{op:?}");
        let is_dropped = !has_block || op == Command::MetaSet;
        assert_eq!(stays(op, &client, Some(Dialect::Meta)), is_dropped, "{op:?}");
        let nobody = Answer::ClientError(b"unauthenticated");
        assert_eq!(stays(op, &nobody, Some(Dialect::Holdall)), !has_block, "{op:?}");
    }
}
