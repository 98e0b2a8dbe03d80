//! Classic replies, byte for byte.

use proto::{Error, KEY_BYTES_MAX, reply};

#[test]
fn value_lines() {
    let mut out = Vec::new();
    reply::write_value_header(&mut out, b"k", u32::MAX, 0, None);
    reply::write_value_header(&mut out, b"key", 0, 1_048_576, Some(u64::MAX));
    assert_eq!(out, b"VALUE k 4294967295 0\r\nVALUE key 0 1048576 18446744073709551615\r\n");
}

#[test]
fn values_with_their_blocks() {
    let mut out = Vec::new();
    reply::write_value(&mut out, b"k", 3, b"ab", None);
    reply::write_value(&mut out, b"k", 0, b"", Some(7));
    reply::write_value(&mut out, b"k", u32::MAX, b"a\r\nb", Some(u64::MAX));
    assert_eq!(
        String::from_utf8_lossy(&out),
        "VALUE k 3 2\r\nab\r\nVALUE k 0 0 7\r\n\r\n\
         VALUE k 4294967295 4 18446744073709551615\r\na\r\nb\r\n"
    );
}

/// The longest key, and numbers of all digits.
#[test]
fn the_longest_lines() {
    let (key, value) = ([b'k'; KEY_BYTES_MAX], vec![b'v'; 100_000]);
    let (text, cas) = (String::from_utf8_lossy(&key), u64::MAX);
    let mut out = Vec::new();
    reply::write_value(&mut out, &key, u32::MAX, &value, Some(cas));
    let head = format!("VALUE {text} 4294967295 100000 {cas}\r\n");
    assert_eq!(out, [head.as_bytes(), &value, b"\r\n"].concat());
    out.clear();
    reply::write_value_header(&mut out, &key, u32::MAX, usize::MAX, Some(cas));
    let head = format!("VALUE {text} 4294967295 {} {cas}\r\n", usize::MAX);
    assert_eq!(String::from_utf8_lossy(&out), head);
    out.clear();
    reply::write_lease_header(&mut out, &key, cas, u32::MAX, usize::MAX);
    let head = format!("LVALUE {text} {cas} 4294967295 {}\r\n", usize::MAX);
    assert_eq!(String::from_utf8_lossy(&out), head);
}

#[test]
fn lease_lines() {
    let mut out = Vec::new();
    reply::write_lease_header(&mut out, b"k", 1, 0, 0);
    reply::write_lease_header(&mut out, b"key", 12_345, 10, 6);
    assert_eq!(String::from_utf8_lossy(&out), "LVALUE k 1 0 0\r\nLVALUE key 12345 10 6\r\n");
}

/// Short numbers take a short path: every length of both, at its limits.
#[test]
fn value_lines_with_short_numbers() {
    for flags in [0, 1, 9, 10, 99] {
        for bytes in [0, 1, 9, 10, 64, 99, 100, 999, 1000, 1024, 9999, 10_000] {
            let mut out = Vec::new();
            reply::write_value_header(&mut out, b"k", flags, bytes, None);
            assert_eq!(String::from_utf8_lossy(&out), format!("VALUE k {flags} {bytes}\r\n"));
        }
    }
}

#[test]
fn numbers_versions_and_statistics() {
    let mut out = Vec::new();
    reply::write_number(&mut out, u64::MAX);
    reply::write_version(&mut out, "1.6.45");
    reply::write_stat(&mut out, b"version", b"1.6.45");
    reply::write_stat_u64(&mut out, b"pid", 12);
    assert_eq!(
        out,
        b"18446744073709551615\r\nVERSION 1.6.45\r\nSTAT version 1.6.45\r\nSTAT pid 12\r\n"
    );
}

/// Clients compare whole lines; these are memcached's.
#[test]
fn error_lines_match_memcached() {
    let lines = [
        (Error::ArithmeticFlag, "CLIENT_ERROR invalid or duplicate flag"),
        (Error::ArithmeticMode, "CLIENT_ERROR invalid mode for ma M token"),
        (Error::Command, "ERROR"),
        (Error::DecodingKey, "CLIENT_ERROR error decoding key"),
        (Error::Delta, "CLIENT_ERROR invalid numeric delta argument"),
        (Error::DuplicateFlag, "CLIENT_ERROR duplicate flag"),
        (Error::Exptime, "CLIENT_ERROR invalid exptime argument"),
        (Error::Format, "CLIENT_ERROR bad command line format"),
        (Error::InvalidFlag, "CLIENT_ERROR invalid flag"),
        (Error::ManyFlags, "CLIENT_ERROR options flags are too long"),
        (Error::OpaqueTooLong, "CLIENT_ERROR opaque token too long"),
        (Error::StoreModeUnknown, "CLIENT_ERROR invalid mode for ms M token"),
        (Error::Token, "CLIENT_ERROR bad token in command line format"),
    ];
    for (error, line) in lines {
        assert_eq!(error.line(), format!("{line}\r\n").as_bytes(), "{error:?}");
    }
}
