//! Classic text lines that broke servers.

use super::{Input, LENGTHS, Want, any, refused};

/// All inputs.
#[must_use]
pub fn inputs() -> Vec<Input> {
    let mut inputs = lengths();
    inputs.extend(line_ends());
    inputs.extend(many_words());
    inputs.extend(values());
    inputs.extend(other_protocols());
    inputs
}

/// CVE-2009-2415, CVE-2019-11923 and mcrouter d6ab87fa: lengths that wrap or are trusted.
fn lengths() -> Vec<Input> {
    let verbs = ["set k 0 0 LEN", "append k 0 0 LEN", "cas k 0 0 LEN 1", "set k 0 0 LEN noreply"];
    let mut inputs = Vec::new();
    for verb in verbs {
        for len in LENGTHS {
            let line = format!("{}\r\nversion\r\n", verb.replace("LEN", len));
            inputs.push(refused(format!("text-len-{len} {verb}"), line));
        }
    }
    for number in LENGTHS {
        inputs.push(any(
            format!("text-number-{number}"),
            format!(
                "incr k {number}\r\ndecr k {number}\r\ntouch k {number}\r\ngat {number} k\r\n\
             set k {number} 0 1\r\nx\r\nset k 0 {number} 1\r\nx\r\ncas k 0 0 1 {number}\r\nx\r\n\
             verbosity {number}\r\ncache_memlimit {number}\r\n"
            ),
        ));
    }
    // A later store of one byte needs the limit that the lines above may have changed.
    inputs.push(any("cache_memlimit-back", "cache_memlimit 64\r\nverbosity 0\r\n"));
    inputs
}

/// CVE-2010-1152, CVE-2023-46853, af05c9302, e8364b58b, d4fd459d6: endless or empty lines.
fn line_ends() -> Vec<Input> {
    vec![
        any("text-noeol-1m", vec![b'x'; 1 << 20]),
        any("text-noeol-nul-1m", vec![0; 1 << 20]),
        any("text-noeol-get-4m", [b"get ".as_slice(), &vec![b'k'; 4 << 20]].concat()),
        any("text-spaces-noeol-64k", vec![b' '; 64 << 10]),
        any("text-spaces-line", [vec![b' '; 1000], b"\r\n".to_vec()].concat()),
        any("text-spaces-line-64k", [vec![b' '; 64 << 10], b"\r\n".to_vec()].concat()),
        any("text-newline-only", vec![b'\n'; 100_000]),
        any("text-empty-lines", b"\r\n".repeat(50_000)),
        any("text-empty-9", [0_u8; 9]),
        any("text-cr-only", vec![b'\r'; 5000]),
        any("text-nul-in-line", b"get a\0b\r\nset \0 0 0 1\r\nx\r\nget \0\r\n".to_vec()),
        any("text-high-bytes", (128..=255).rev().chain(*b"\r\n").collect::<Vec<u8>>()),
        any("text-quit-then-no-newline", "quit\r\nversion"),
        any("text-newline-after-cr-cut", "get k\r"),
        any("text-half-data", "set k 0 0 100\r\nhalf"),
    ]
}

/// CVE-2018-1000127 and CVE-2023-46852; mcrouter #95; twemproxy #357; Dragonfly 0c3012d5b.
fn many_words() -> Vec<Input> {
    let spaces = " ".repeat(5000);
    let long_list: String = (0..300).map(|i| format!(" key-number-{i}")).collect();
    let key251 = "k".repeat(251);
    vec![
        any("text-multiget-70000", format!("get{}\r\n", " k".repeat(70_000))),
        any("text-multiget-70000-gets", format!("gets{}\r\n", " k".repeat(70_000))),
        any("text-get-spaces", format!("get {spaces}k {spaces}k\r\n")),
        any("text-get-spaces-only", format!("get {spaces}\r\n")),
        any("text-set-spaces", format!("set k {spaces} 0 0 1\r\nx\r\n")),
        any("text-many-words", format!("set{}\r\n", " k".repeat(900))),
        any("text-get-without-key", "get \r\ngets \r\nget\r\ngat\r\ngat 1\r\ngat 1 \r\ngats\r\n"),
        any("text-mcrouter-95", format!("get{long_list} a\x01b\x7f{long_list}\r\n")),
        any("text-key-251-in-list", format!("get{long_list} {key251}{long_list}\r\n")),
        any("text-key-251-first", format!("get {key251} k\r\n").repeat(50)),
        any("text-ctrlkey", "set \x01\x02 0 0 1\r\nx\r\nget \x01\x02\r\ndelete \x01\x02\r\n"),
        any(
            "text-utf8-key",
            "set schl\u{fc}ssel\u{1f511} 0 0 1\r\nx\r\nget schl\u{fc}ssel\u{1f511}\r\n",
        ),
        any("text-format-key", "set %s%n%x 0 0 1\r\nx\r\nget %s%n%x %d\r\n"),
        any(
            "text-key-named-noreply",
            "set noreply 0 0 1\r\nx\r\nget noreply\r\ndelete noreply\r\n",
        ),
    ]
}

/// memcached #1306: a large value with a wrong end; aborted stores.
fn values() -> Vec<Input> {
    let large = |len: usize, end: &str| {
        [format!("set big 0 0 {len}\r\n").into_bytes(), vec![b'v'; len], end.as_bytes().to_vec()]
            .concat()
    };
    let in_body = "version\r\n".repeat(200_000);
    vec![
        refused("text-chunked-bad-end", large(600_000, "xy\r\nversion\r\n")),
        refused("text-chunked-bad-end-1000000", large(1_000_000, "\n\n\r\n")),
        any("text-bad-end-small", large(10, "xy\r\nversion\r\n")),
        any("text-huge-promised-nothing-sent", "set big 0 0 1000000\r\n"),
        Input {
            name: "text-too-large-body-is-not-commands".into(),
            bytes: format!("set big 0 0 {}\r\n{in_body}\r\n", in_body.len()).into_bytes(),
            want: Want::BodyUnread,
        },
        any("text-append-until-too-large", {
            let piece =
                [b"append grow 0 0 100000\r\n".as_slice(), &vec![b'g'; 100_000], b"\r\n"].concat();
            [b"set grow 0 0 1\r\nx\r\n".to_vec(), piece.repeat(15)].concat()
        }),
    ]
}

/// Input from scanners and misdirected clients.
fn other_protocols() -> Vec<Input> {
    vec![
        any("http-get", "GET / HTTP/1.1\r\nHost: cache\r\nAccept: */*\r\n\r\n"),
        any(
            "http-post-smuggle",
            "POST / HTTP/1.1\r\nContent-Length: 30\r\n\r\nset k 0 0 1\r\nx\r\n",
        ),
        any("tls-hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(40)),
        any("redis", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nx\r\n"),
        any("mcrouter-caret", b"^\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff".repeat(10)),
        any("proxy-v1", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nget k\r\n"),
        any("proxy-v2", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c".to_vec()),
    ]
}
