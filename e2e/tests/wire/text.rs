//! Classic text commands.

use super::{Row, changed, check, closes, row};
use std::time::Duration;
use testkit::Server;

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";
const NOT_A_NUMBER: &str =
    "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

const LINES: &[Row] = &[
    row("get <k>\n", "END\r\n"),
    row("get   <k>   \r\n", "END\r\n"),
    row("nosuch\r\n", "ERROR\r\n"),
    row("GET <k>\r\n", "ERROR\r\n"),
    row("get <k>\r\nget <k>\r\nversion\r\n", "END\r\nEND\r\nVERSION <n>.<n>.<n>\r\n"),
    changed("\r\n", BAD, "ERROR\r\n"),
    changed("x\r\n", BAD, "ERROR\r\n"),
    changed(" get <k>\r\n", "ERROR\r\n", "END\r\n"),
    changed("get\r\n", BAD, "ERROR\r\n"),
    changed("gets\r\n", BAD, "ERROR\r\n"),
    changed("set <k>\r\n", BAD, "ERROR\r\n"),
    changed("incr <k>\r\n", BAD, "ERROR\r\n"),
    changed("touch <k>\r\n", BAD, "ERROR\r\n"),
    changed("delete\r\n", BAD, "ERROR\r\n"),
    row("verbosity 0\r\n", "OK\r\n"),
    row("verbosity 0 noreply\r\n", ""),
    row("verbosity x\r\n", BAD),
    changed(
        "shutdown\r\n",
        "SERVER_ERROR: shutdown not enabled\r\n",
        "ERROR: shutdown not enabled\r\n",
    ),
];

const STORAGE: &[Row] = &[
    row("set <k> 5 0 3\r\nabc\r\nget <k>\r\n", "STORED\r\nVALUE <k> 5 3\r\nabc\r\nEND\r\n"),
    row("set <k> 0 0 0\r\n\r\nget <k>\r\n", "STORED\r\nVALUE <k> 0 0\r\n\r\nEND\r\n"),
    row(
        "set <k> 0 0 6\r\na\r\nb\r\n\r\nget <k>\r\n",
        "STORED\r\nVALUE <k> 0 6\r\na\r\nb\r\n\r\nEND\r\n",
    ),
    row(
        "set <k> 4294967295 0 1\r\nx\r\nget <k>\r\n",
        "STORED\r\nVALUE <k> 4294967295 1\r\nx\r\nEND\r\n",
    ),
    row("set <k> 0 0 1 noreply\r\nx\r\nget <k>\r\n", "VALUE <k> 0 1\r\nx\r\nEND\r\n"),
    row(
        "add <k> 0 0 1\r\na\r\nadd <k> 0 0 1\r\nb\r\nget <k>\r\n",
        "STORED\r\nNOT_STORED\r\nVALUE <k> 0 1\r\na\r\nEND\r\n",
    ),
    row(
        "replace <k> 0 0 1\r\na\r\nset <k> 0 0 1\r\nb\r\nreplace <k> 1 0 1\r\nc\r\nget <k>\r\n",
        "NOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE <k> 1 1\r\nc\r\nEND\r\n",
    ),
    row(
        "append <k> 0 0 1\r\na\r\nset <k> 7 0 1\r\nb\r\nappend <k> 9 0 2\r\ncd\r\nprepend <k> 9 0 1\r\na\r\nget <k>\r\n",
        "NOT_STORED\r\nSTORED\r\nSTORED\r\nSTORED\r\nVALUE <k> 7 4\r\nabcd\r\nEND\r\n",
    ),
    row(
        "gets <k>\r\nset <k> 0 0 1\r\na\r\ngets <k>\r\n",
        "END\r\nSTORED\r\nVALUE <k> 0 1 <n>\r\na\r\nEND\r\n",
    ),
    row(
        "cas <k> 0 0 1 1\r\na\r\nset <k> 0 0 1\r\nb\r\ncas <k> 0 0 1 0\r\nc\r\ncas <k> 0 0 1 18446744073709551615\r\nd\r\nget <k>\r\n",
        "NOT_FOUND\r\nSTORED\r\nEXISTS\r\nEXISTS\r\nVALUE <k> 0 1\r\nb\r\nEND\r\n",
    ),
    changed(
        "set <k> 0 0 2\r\nfour\r\nget <k>\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nEND\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n",
    ),
    changed(
        "set <k> 0 0 1\r\na\r\nset <k> 0 0 2\r\nfour\r\nget <k>\r\n",
        "STORED\r\nCLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE <k> 0 1\r\na\r\nEND\r\n",
        "STORED\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nVALUE <k> 0 1\r\na\r\nEND\r\n",
    ),
    row("set <k> 0 0 x\r\n", BAD),
    row("set <k> 0 0 -1\r\n", BAD),
    changed("set <k> x 0 2\r\nhi\r\n", BAD, "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    changed("set <k> 0 x 2\r\nhi\r\n", BAD, "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    changed("set <k> -1 0 2\r\nhi\r\n", BAD, "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    changed("set <k> 4294967296 0 2\r\nhi\r\n", BAD, "STORED\r\n"),
    changed("cas <k> 0 0 2 x\r\nhi\r\n", BAD, "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
];

const RETRIEVAL: &[Row] = &[
    row(
        "set <k> 0 0 1\r\na\r\nget <k> no <k>\r\n",
        "STORED\r\nVALUE <k> 0 1\r\na\r\nVALUE <k> 0 1\r\na\r\nEND\r\n",
    ),
    row(
        "set <k> 3 0 1\r\na\r\ngat 100 <k> no\r\ngats 0 <k>\r\n",
        "STORED\r\nVALUE <k> 3 1\r\na\r\nEND\r\nVALUE <k> 3 1 <n>\r\na\r\nEND\r\n",
    ),
    row(
        "set <k> 0 0 1\r\na\r\ngat -1 <k>\r\nget <k>\r\n",
        "STORED\r\nVALUE <k> 0 1\r\na\r\nEND\r\nEND\r\n",
    ),
    row("gat x <k>\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    row(
        "touch <k> 0\r\nset <k> 0 0 1\r\na\r\ntouch <k> 0\r\ntouch <k> x\r\n",
        "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nCLIENT_ERROR invalid exptime argument\r\n",
    ),
    row("set <k> 0 0 1\r\na\r\ntouch <k> -1 noreply\r\nget <k>\r\n", "STORED\r\nEND\r\n"),
    row("set <k> 0 -1 1\r\na\r\nget <k>\r\n", "STORED\r\nEND\r\n"),
    row("set <k> 0 1000000000 1\r\na\r\nget <k>\r\n", "STORED\r\nEND\r\n"),
    row("set <k> 0 2000000000 1\r\na\r\nget <k>\r\n", "STORED\r\nVALUE <k> 0 1\r\na\r\nEND\r\n"),
];

const REMOVAL: &[Row] = &[
    row(
        "delete <k>\r\nset <k> 0 0 1\r\na\r\ndelete <k>\r\nget <k>\r\n",
        "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\n",
    ),
    row("set <k> 0 0 1\r\na\r\ndelete <k> 0\r\n", "STORED\r\nDELETED\r\n"),
    row("set <k> 0 0 1\r\na\r\ndelete <k> noreply\r\nget <k>\r\n", "STORED\r\nEND\r\n"),
    row(
        "set <k> 0 0 1\r\na\r\nflush_all\r\nget <k>\r\nset <k> 0 0 1\r\nb\r\nget <k>\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE <k> 0 1\r\nb\r\nEND\r\n",
    ),
    row(
        "flush_all noreply\r\nflush_all 0\r\nflush_all x\r\n",
        "OK\r\nCLIENT_ERROR invalid exptime argument\r\n",
    ),
];

const ARITHMETIC: &[Row] = &[
    row(
        "incr <k> 1\r\nset <k> 0 0 2\r\n10\r\nincr <k> 5\r\ndecr <k> 7\r\ndecr <k> 99\r\n",
        "NOT_FOUND\r\nSTORED\r\n15\r\n8\r\n0\r\n",
    ),
    row("set <k> 0 0 20\r\n18446744073709551615\r\nincr <k> 1\r\n", "STORED\r\n0\r\n"),
    row("set <k> 0 0 2\r\n10\r\nincr <k> 1 noreply\r\nincr <k> 1\r\n", "STORED\r\n12\r\n"),
    row("set <k> 0 0 3\r\nabc\r\nincr <k> 1\r\n", NOT_A_NUMBER),
    row("set <k> 0 0 2\r\n-1\r\ndecr <k> 1\r\n", NOT_A_NUMBER),
    row(
        "incr <k> x\r\nincr <k> -1\r\ndecr <k> 18446744073709551616\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n",
    ),
    row(
        "set <k> 6 0 2\r\n99\r\nincr <k> 1\r\nget <k>\r\n",
        "STORED\r\n100\r\nVALUE <k> 6 3\r\n100\r\nEND\r\n",
    ),
];

#[test]
fn line_endings_and_unknown_commands() {
    check(&Server::under_test(&[]), LINES);
}

#[test]
fn storage_commands() {
    check(&Server::under_test(&[]), STORAGE);
}

#[test]
fn retrieval_commands() {
    check(&Server::under_test(&[]), RETRIEVAL);
}

#[test]
fn delete_and_flush_all() {
    check(&Server::under_test(&[]), REMOVAL);
}

#[test]
fn incr_and_decr() {
    check(&Server::under_test(&[]), ARITHMETIC);
}

#[test]
fn a_padded_shorter_number_remains_countable() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    wire.expect(b"set n 0 0 3\r\n100\r\ndecr n 1\r\n", b"STORED\r\n99\r\n");
    wire.send(b"get n\r\n");
    let reply = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
    assert!(
        ["VALUE n 0 2\r\n99\r\nEND\r\n", "VALUE n 0 3\r\n99 \r\nEND\r\n"].contains(&reply.as_str()),
        "{reply}"
    );
    wire.expect(b"incr n 1\r\n", b"100\r\n");
}

#[test]
fn quit_sends_pending_replies_and_closes() {
    let server = Server::under_test(&[]);
    closes(&server, b"get a\r\nquit\r\n", b"END\r\n");
}

#[test]
fn an_unterminated_line_closes_after_2048_bytes() {
    let server = Server::under_test(&[]);
    closes(&server, &[b'x'; 5000], b"");
    closes(&server, &[b"set ".as_slice(), &[b'k'; 5000]].concat(), b"");
}

#[test]
fn a_get_line_may_be_long() {
    let server = Server::under_test(&[]);
    let keys: Vec<String> = (0..5000).map(|i| format!("key-number-{i}")).collect();
    let mut wire = server.connect();
    wire.expect(b"set key-number-4999 0 0 1\r\nx\r\n", b"STORED\r\n");
    let request = format!("get {}\r\n", keys.join(" "));
    wire.expect(request.as_bytes(), b"VALUE key-number-4999 0 1\r\nx\r\nEND\r\n");
    let request = format!("gets {}\r\n", keys[..4999].join(" "));
    wire.expect(request.as_bytes(), b"END\r\n");
}

#[test]
fn http_requests_are_closed_silently() {
    closes(&Server::under_test(&[]), b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"");
}

#[test]
fn keys_have_at_most_250_bytes() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let (fits, long) = ("k".repeat(250), "k".repeat(251));
    wire.expect(format!("set {fits} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    wire.expect(
        format!("get {fits}\r\n").as_bytes(),
        format!("VALUE {fits} 0 1\r\nx\r\nEND\r\n").as_bytes(),
    );
    for line in ["get", "gets", "delete", "touch KEY 0", "incr KEY 1", "gat 0 KEY"] {
        let line = if line.contains("KEY") {
            line.replace("KEY", &long)
        } else {
            format!("{line} {long}")
        };
        wire.expect(format!("{line}\r\n").as_bytes(), BAD.as_bytes());
    }
    wire.expect(b"version\r\n", b"VERSION ");
}

#[test]
fn a_too_large_value_is_discarded_and_removes_the_old_one() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let large = [vec![b'x'; 1_049_600], b"\r\n".to_vec()].concat();
    let refused = b"SERVER_ERROR object too large for cache\r\n";
    wire.expect(b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    wire.expect(&[b"set a 0 0 1049600\r\n".as_slice(), &large].concat(), refused);
    wire.expect(b"get a\r\n", b"END\r\n");
    wire.expect(&[b"add b 0 0 1049600\r\n".as_slice(), &large].concat(), refused);
    wire.expect(b"get b\r\n", b"VALUE b 0 1\r\nx\r\nEND\r\n");
    wire.expect(&[b"set b 0 0 1049600 noreply\r\n".as_slice(), &large].concat(), b"");
    wire.expect(b"mn\r\nget b\r\n", b"MN\r\nEND\r\n");
}

#[test]
fn the_largest_value_that_fits_is_stored() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let data = vec![b'y'; 1_047_552];
    wire.expect(&[b"set a 0 0 1047552\r\n".as_slice(), &data, b"\r\n"].concat(), b"STORED\r\n");
    wire.expect(
        b"get a\r\n",
        &[b"VALUE a 0 1047552\r\n".as_slice(), &data, b"\r\nEND\r\n"].concat(),
    );
}

#[test]
fn an_item_expires_within_its_second() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    wire.expect(b"set a 0 2 1\r\nx\r\nset b 0 100 1\r\nx\r\n", b"STORED\r\nSTORED\r\n");
    wire.expect(b"get a b\r\n", b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n");
    std::thread::sleep(Duration::from_millis(3100));
    wire.expect(b"get a b\r\n", b"VALUE b 0 1\r\nx\r\nEND\r\n");
    wire.expect(b"add a 0 0 1\r\ny\r\n", b"STORED\r\n");
}

#[test]
fn a_delayed_flush_happens_at_its_time() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    wire.expect(
        b"set a 0 0 1\r\nx\r\nflush_all 2\r\nget a\r\n",
        b"STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    std::thread::sleep(Duration::from_millis(3200));
    wire.expect(
        b"get a\r\nset a 0 0 1\r\ny\r\nget a\r\n",
        b"END\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n",
    );
}
