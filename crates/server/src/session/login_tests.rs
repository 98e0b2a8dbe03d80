//! Logins and rights, bytes in and bytes out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Worker;
use super::tests::{Client, check, worker};
use net::Service;

/// A file with this text, removed at the end.
pub(super) struct File(PathBuf);

impl File {
    pub(super) fn new(text: &str) -> Self {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdall-login-{}-{turn}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(super) fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[track_caller]
fn expect(worker: &mut Worker, client: &mut Client, sent: &[u8], want: &[u8]) {
    let got = client.send(worker, sent);
    assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string());
}

const DENIED: &str = "CLIENT_ERROR permission denied\r\n";

#[test]
fn no_request_is_served_before_the_token_login() {
    let users = File::new("me:secret\n");
    check(
        &["-Y", users.text()],
        b"get k\r\n\r\nversion\r\nset k 0 0 x\r\nset x 0 0 2\r\nme\r\nset x 0 0 9\r\nme secrets\n\
          set x 0 0 8\r\nme wrong\r\nset a b c 9\r\nme secret\r\nset k 0 0 1\r\nv\r\nget k\r\n",
        b"CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\n\
          CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR bad authentication token format\r\n\
          CLIENT_ERROR bad command line termination\r\nCLIENT_ERROR authentication failure\r\n\
          STORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
    );
}

/// A client that is not logged in may not stay: the loop checks this.
#[test]
fn a_client_is_unauthenticated_until_it_logs_in() {
    let users = File::new("me:secret\n");
    let mut with_users = worker(&["-Y", users.text()]);
    let mut client = Client::new(&mut with_users);
    assert!(with_users.is_unauthenticated(&client.session));
    expect(&mut with_users, &mut client, b"get k\r\n", b"CLIENT_ERROR unauthenticated\r\n");
    assert!(with_users.is_unauthenticated(&client.session));
    expect(&mut with_users, &mut client, b"set a 0 0 9\r\nme secret\r\n", b"STORED\r\n");
    assert!(!with_users.is_unauthenticated(&client.session));
    let mut open = worker(&[]);
    let client = Client::new(&mut open);
    assert!(!open.is_unauthenticated(&client.session));
}

/// Otherwise a client could stay by attempting one login after another.
#[test]
fn after_the_time_for_the_login_no_attempt_is_begun() {
    let users = File::new("me:secret\n");
    let mut worker = worker(&["-Y", users.text()]);
    let mut client = Client::new(&mut worker);
    let right = b"set a 0 0 9\r\nme secret\r\n";
    worker.end_login_time(&mut client.session);
    expect(&mut worker, &mut client, right, b"");
    assert!(worker.is_unauthenticated(&client.session) && !client.is_closed);
    assert!(!worker.has_pending_replies(&client.session), "the loop may close it");
}

#[test]
fn an_overlong_login_closes_the_connection() {
    let users = File::new("me:secret\n");
    let mut worker = worker(&["-Y", users.text()]);
    for (sent, want) in [
        (b"set x 0 0 2147483646\r\n".to_vec(), &b"CLIENT_ERROR auth token too long\r\n"[..]),
        (b"set x 0 0 16384\r\n".to_vec(), b"CLIENT_ERROR auth token too long\r\n"),
        (vec![b'x'; 2049], b""),
    ] {
        let mut client = Client::new(&mut worker);
        expect(&mut worker, &mut client, &sent, want);
        assert!(client.is_closed);
    }
    let mut client = Client::new(&mut worker);
    let token = [b"set x 0 0 16300\r\n".to_vec(), vec![b'x'; 16300], b"\r\n".to_vec()].concat();
    expect(&mut worker, &mut client, &token, b"CLIENT_ERROR bad authentication token format\r\n");
    assert!(!client.is_closed);
}

fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode, 0, u8::try_from(key.len()).unwrap(), 0, 0, 0, 0];
    bytes.extend_from_slice(&u32::try_from(key.len() + value.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

fn status(reply: &[u8]) -> u16 {
    u16::from_be_bytes([reply[6], reply[7]])
}

/// CVE-2013-7239 and similar: after a refused login nobody is logged in, even if a user was before.
#[test]
fn a_refused_sasl_login_ends_the_previous_login() {
    let users = File::new("me:secret\n");
    let mut worker = worker(&["-S", "-Y", users.text()]);
    let mut client = Client::new(&mut worker);
    let list = client.send(&mut worker, &packet(0x20, b"", b""));
    assert!(list.ends_with(b"SCRAM-SHA-256 SCRAM-SHA-1 PLAIN"));
    let good = client.send(&mut worker, &packet(0x21, b"PLAIN", b"\0me\0secret"));
    assert!(status(&good) == 0 && good.ends_with(b"Authenticated"));
    assert_eq!(status(&client.send(&mut worker, &packet(0x0a, b"", b""))), 0);
    for bad in [
        packet(0x21, b"PLAIN", b"\0me\0Secret"),
        packet(0x21, b"PLAIN", b"me"),
        packet(0x21, b"CRAM-MD5", b""),
        packet(0x22, b"PLAIN", b"\0me\0secret"),
        packet(0x22, b"SCRAM-SHA-256", b""),
    ] {
        assert_eq!(status(&client.send(&mut worker, &bad)), 0x20);
        assert!(client.session.login.is_missing());
    }
    assert_eq!(status(&client.send(&mut worker, &packet(0x0b, b"", b""))), 0, "version is free");
    assert_eq!(status(&client.send(&mut worker, &packet(0x00, b"k", b""))), 0x20);
    assert!(client.is_closed);
}

#[test]
fn rights_apply_to_every_text_command() {
    let users = File::new("app:1\nreport:2\nops:3\n");
    let rights = File::new("app readwrite app:\nreport read *\nops admin\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-Y", users.text(), "-o", &flags]);
    let mut app = Client::new(&mut worker);
    expect(&mut worker, &mut app, b"set x 0 0 5\r\napp 1\r\n", b"STORED\r\n");
    let sent = b"set app:a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nset b 0 0 1 noreply\r\n2\r\nget app:a\r\n\
        get app:a b app:a\r\ngets b\r\ngat 0 b\r\nmg b v\r\nmg app:a v\r\nms b 1\r\n2\r\nmd b\r\nma b\r\nme b\r\n\
        mg Yg== b v\r\nincr b 1\r\nincr app:a 1\r\ntouch b 0\r\ndelete b\r\nadd b 0 0 1\r\n2\r\nlease-get b\r\nflush_prefix b\r\nflush_prefix ap\r\nflush_prefix app:none\r\n\
        cas b 0 0 1 1\r\n2\r\nappend b 0 0 1\r\n2\r\nflush_all\r\nstats\r\nwatch\r\nslabs automove 1\r\n\
        lru_crawler metadump all\r\nshutdown\r\nverbosity 1\r\nverbosity 1 noreply\r\ncache_memlimit 9\r\nrefresh_certs\r\n\
        lru mode flat\r\nmn\r\nversion\r\n";
    let want = format!(
        "STORED\r\n{DENIED}VALUE app:a 0 1\r\n1\r\nEND\r\nVALUE app:a 0 1\r\n1\r\n{}VA 1\r\n1\r\n{}2\r\n{}OK\r\n{}MN\r\n\
         VERSION 1.6.45\r\n",
        DENIED.repeat(4),
        DENIED.repeat(6),
        DENIED.repeat(6),
        DENIED.repeat(12),
    );
    expect(&mut worker, &mut app, sent, want.as_bytes());

    let mut report = Client::new(&mut worker);
    expect(&mut worker, &mut report, b"set x 0 0 8\r\nreport 2\r\n", b"STORED\r\n");
    let sent = b"get app:a b\r\nmg app:a v\r\nmg app:a v T30\r\nmg b v N30\r\ngat 30 app:a\r\nincr app:a 1\r\n";
    let want = format!("VALUE app:a 0 1\r\n2\r\nEND\r\nVA 1\r\n2\r\n{}", DENIED.repeat(4));
    expect(&mut worker, &mut report, sent, want.as_bytes());

    let mut ops = Client::new(&mut worker);
    expect(&mut worker, &mut ops, b"set x 0 0 5\r\nops 3\r\n", b"STORED\r\n");
    let want = format!("OK\r\n{DENIED}");
    expect(&mut worker, &mut ops, b"verbosity 1\r\nget app:a\r\n", want.as_bytes());
    let denied = worker.context.shared.engine.totals().get(engine::Counter::AccessDenied);
    assert_eq!(denied, 36, "the silent one included");
}

#[test]
fn rights_apply_to_every_binary_command() {
    let users = File::new("app:1\n");
    let rights = File::new("app readwrite app:\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-S", "-Y", users.text(), "-o", &flags]);
    let mut app = Client::new(&mut worker);
    let login = app.send(&mut worker, &packet(0x21, b"PLAIN", b"\0app\x001"));
    assert_eq!(status(&login), 0);
    for opcode in [0x00, 0x04, 0x0c, 0x0e, 0x0f, 0x14, 0x19] {
        let value: &[u8] = if matches!(opcode, 0x0e | 0x0f | 0x19) { b"get x\r\n" } else { b"" };
        let reply = app.send(&mut worker, &packet(opcode, b"other", value));
        assert_eq!((status(&reply), reply.len()), (0x24, 24 + 17), "opcode {opcode:#x}");
    }
    for opcode in [0x09, 0x0d, 0x1e, 0x24] {
        let extras: &[u8] = if opcode < 0x10 { b"" } else { &[0; 4] };
        let get = super::tests::packet(opcode, extras, b"other", b"", 0, 0);
        let reply = app.send(&mut worker, &get);
        assert!(reply.is_empty(), "opcode {opcode:#x}: {}", reply.escape_ascii());
    }
    let denied = worker.context.shared.engine.totals().get(engine::Counter::AccessDenied);
    assert_eq!(denied, 11, "misses are counted as refused");
    assert_eq!(status(&app.send(&mut worker, &packet(0x08, b"", b""))), 0x24, "flush");
    assert_eq!(status(&app.send(&mut worker, &packet(0x10, b"", b""))), 0x24, "stat");
    assert_eq!(status(&app.send(&mut worker, &packet(0x00, b"app:x", b""))), 0x01);
    assert_eq!(status(&app.send(&mut worker, &packet(0x0a, b"", b""))), 0, "in step");
}

/// Only a client that may store a value wins the right to renew it. A client that may not read
/// learns nothing of an item by writing.
#[test]
fn readers_win_no_item_and_writers_see_no_metadata() {
    let users = File::new("app:1\nreport:2\nfeed:3\n");
    let rights = File::new("app readwrite *\nreport read *\nfeed write *\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-Y", users.text(), "-o", &flags]);
    let [mut app, mut report, mut feed] = ["app 1", "report 2", "feed 3"].map(|token| {
        let mut client = Client::new(&mut worker);
        let login = format!("set x 0 0 {}\r\n{token}\r\n", token.len());
        expect(&mut worker, &mut client, login.as_bytes(), b"STORED\r\n");
        client
    });
    expect(&mut worker, &mut app, b"ms k 1 T9\r\n5\r\nmd k I\r\n", b"HD\r\nHD\r\n");
    expect(&mut worker, &mut report, b"mg k v\r\nmg k R30\r\n", b"VA 1 X\r\n5\r\nHD X\r\n");
    expect(&mut worker, &mut app, b"mg k\r\n", b"HD X W\r\n");
    expect(&mut worker, &mut report, b"mg k\r\n", b"HD Z X\r\n");
    let want = format!("{DENIED}{DENIED}{DENIED}HD\r\n");
    let sent = b"ms k 0 MA s\r\n\r\nms k 0 MP k s\r\n\r\nms k 0 MA s1\r\n\r\nms k 0 MA\r\n\r\n";
    expect(&mut worker, &mut feed, sent, want.as_bytes());
    expect(&mut worker, &mut app, b"ms k 0 MA s\r\n\r\n", b"HD s1\r\n");
}

#[test]
fn a_binary_touch_returns_metadata_only_to_readers() {
    let users = File::new("app:1\nfeed:2\n");
    let rights = File::new("app readwrite *\nfeed write *\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-S", "-Y", users.text(), "-o", &flags]);
    let touched = [&b"\0app\x001"[..], b"\0feed\x002"].map(|token| {
        let mut client = Client::new(&mut worker);
        assert_eq!(status(&client.send(&mut worker, &packet(0x21, b"PLAIN", token))), 0);
        let set = super::tests::packet(0x01, b"\0\0\0\x07\0\0\0\0", b"k", b"v", 0, 0);
        assert_eq!(status(&client.send(&mut worker, &set)), 0);
        client.send(&mut worker, &super::tests::packet(0x1c, &[0; 4], b"k", b"", 0, 0))
    });
    let facts =
        touched.map(|reply| (status(&reply), reply[16..24] != [0; 8], reply[24..].to_vec()));
    assert_eq!(facts, [(0, true, vec![0, 0, 0, 7]), (0, false, vec![0; 4])]);
}

/// The rights count when the value is stored, not when its request began.
#[test]
fn a_value_that_began_before_a_reload_is_judged_again() {
    let users = File::new("lim:1\n");
    let rights = File::new("lim readwrite no: ok:\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-Y", users.text(), "-o", &flags]);
    let cases: [(&[u8], &str); 6] = [
        (b"set no:z 0 0 10\r\n123", DENIED),
        (b"set no:z 0 0 10 noreply\r\n123", ""),
        (b"append no:z 0 0 10\r\n123", DENIED),
        (b"ms no:z 10\r\n123", DENIED),
        (b"set no:z 0 0 40000\r\n123", DENIED),
        (b"set ok:z 0 0 10\r\n123", "STORED\r\n"),
    ];
    let mut clients = cases.map(|(began, _)| {
        let mut client = Client::new(&mut worker);
        expect(&mut worker, &mut client, b"set x 0 0 5\r\nlim 1\r\n", b"STORED\r\n");
        expect(&mut worker, &mut client, began, b"");
        client
    });
    fs::write(&rights.0, "lim readwrite ok:\n").unwrap();
    worker.context.shared.auth.clone().unwrap().reload(|_| {}).unwrap();
    for (client, (began, want)) in clients.iter_mut().zip(cases) {
        let len = if began.windows(5).any(|part| part == b"40000") { 40_000 } else { 10 };
        let rest = [&vec![b'7'; len - 3][..], b"\r\nmn\r\n"].concat();
        expect(&mut worker, client, &rest, format!("{want}MN\r\n").as_bytes());
    }
    let denied = worker.context.shared.engine.totals().get(engine::Counter::AccessDenied);
    assert_eq!(denied, 5);
}

#[test]
fn a_packet_that_began_before_a_reload_is_judged_again() {
    let users = File::new("lim:1\n");
    let rights = File::new("lim readwrite no:\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-S", "-Y", users.text(), "-o", &flags]);
    let mut client = Client::new(&mut worker);
    assert_eq!(status(&client.send(&mut worker, &packet(0x21, b"PLAIN", b"\0lim\x001"))), 0);
    let set = super::tests::packet(0x01, &[0; 8], b"no:z", b"value", 0, 0);
    let (began, rest) = set.split_at(set.len() - 2);
    expect(&mut worker, &mut client, began, b"");
    fs::write(&rights.0, "lim readwrite ok:\n").unwrap();
    worker.context.shared.auth.clone().unwrap().reload(|_| {}).unwrap();
    assert_eq!(status(&client.send(&mut worker, rest)), 0x24);
    assert_eq!(status(&client.send(&mut worker, &packet(0x0a, b"", b""))), 0, "in step");
}

#[test]
fn a_reload_changes_rights_and_ends_logins() {
    let users = File::new("a:1\nb:2\n");
    let rights = File::new("* readwrite *\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker(&["-Y", users.text(), "-o", &flags]);
    let (mut a, mut b) = (Client::new(&mut worker), Client::new(&mut worker));
    expect(&mut worker, &mut a, b"set x 0 0 3\r\na 1\r\nget k\r\n", b"STORED\r\nEND\r\n");
    expect(&mut worker, &mut b, b"set x 0 0 3\r\nb 2\r\n", b"STORED\r\n");
    let auth = worker.context.shared.auth.clone().unwrap();
    fs::write(&users.0, "nonsense").unwrap();
    let why = auth.reload(|_| {}).unwrap_err().to_string();
    assert!(why.ends_with("line 1: is not user:password"), "{why}");
    expect(&mut worker, &mut b, b"get k\r\n", b"END\r\n");
    fs::write(&users.0, "a:1\nb:3\n").unwrap();
    fs::write(&rights.0, "a read k\n").unwrap();
    auth.reload(|_| {}).unwrap();
    let want = format!("END\r\n{DENIED}");
    expect(&mut worker, &mut a, b"get k\r\nset k 0 0 1\r\nx\r\n", want.as_bytes());
    expect(&mut worker, &mut b, b"get k\r\n", b"");
    assert!(b.is_closed, "the password has changed");
}
