//! Clients that must log in, and have only the rights of their users.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use testkit::wire::End;
use testkit::{Server, Wire};

const USERS: &str = "app:secret\nreport:r\nops:o\nall:a\n";
const RIGHTS: &str = "\
app     readwrite  app: session:
app     read       shared:
report  read       *
ops     admin
all     readwrite  *
all     admin
";

const DENIED: &str = "CLIENT_ERROR permission denied\r\n";
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";

/// A server, a proxy in front of it whose clients must log in, and the folder of its files.
struct Guarded {
    folder: PathBuf,
    server: Server,
    proxy: SocketAddr,
}

impl Guarded {
    fn start(name: &str, more: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("logins-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (users, rights) = (file("users", USERS), file("rights", RIGHTS));
        let (rights, server) = (format!("rights={rights}"), Server::memcached(&[]));
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": ["{}"]}}}}, "route": "PoolRoute|A"}}"#,
            server.addr()
        );
        let words = ["--config-str", &config, "-Y", &users, "-o", &rights];
        let proxy = common::proxy(&[&words, more].concat()).unwrap();
        Self { folder, server, proxy }
    }

    /// A connection logged in as this user.
    fn user(&self, token: &str) -> Wire {
        let mut wire = Wire::connect(self.proxy);
        wire.expect(login(token).as_bytes(), b"STORED\r\n");
        wire
    }

    fn stat(&self, name: &str) -> u64 {
        let mut wire = self.user("all a");
        wire.send(b"stats\r\n");
        let lines = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
        let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {lines}")).parse().unwrap()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn login(token: &str) -> String {
    format!("set login 0 0 {}\r\n{token}\r\n", token.len())
}

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = extras.len() + key.len() + value.len();
    let mut bytes = vec![0x80, opcode];
    bytes.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
    bytes.extend([u8::try_from(extras.len()).unwrap(), 0, 0, 0]);
    bytes.extend(u32::try_from(body).unwrap().to_be_bytes());
    bytes.extend([0; 12]);
    [&bytes[..], extras, key, value].concat()
}

/// Sends a packet; its reply's status and value.
fn ask(wire: &mut Wire, request: &[u8]) -> (u16, Vec<u8>) {
    wire.send(request);
    let head = wire.read_exact(24);
    let number = |from: usize, to: usize| {
        head[from..to].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let body = wire.read_exact(number(8, 12));
    let value = body[number(2, 4) + number(4, 5)..].to_vec();
    (u16::try_from(number(6, 8)).unwrap(), value)
}

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const NO_OP: u8 = 0x0a;
const STAT: u8 = 0x10;
const SASL_LIST: u8 = 0x20;
const SASL_AUTH: u8 = 0x21;

const OK: u16 = 0;
const AUTH_FAILURE: u16 = 0x20;
const ACCESS_DENIED: u16 = 0x24;

#[test]
fn no_request_is_served_before_the_login() {
    let guarded = Guarded::start("before", &["-S"]);
    let mut wire = Wire::connect(guarded.proxy);
    for line in [
        "get k",
        "delete k",
        "get __mcrouter__.version",
        "stats",
        "watch proxyreqs",
        "mg k v",
        "config get cluster",
        "version",
        "nonsense",
    ] {
        wire.expect(format!("{line}\r\n").as_bytes(), UNAUTHENTICATED.as_bytes());
    }
    let began = Instant::now();
    wire.expect(login("app wrong").as_bytes(), b"CLIENT_ERROR authentication failure\r\n");
    assert!(began.elapsed() > Duration::from_millis(900), "guessing takes time");
    wire.expect(b"get k\r\n", UNAUTHENTICATED.as_bytes());
    // Requests behind a login wait for its answer.
    wire.expect(format!("{}get app:k\r\n", login("app secret")).as_bytes(), b"STORED\r\nEND\r\n");
    for opcode in [GET, SET, STAT, NO_OP] {
        let extras: &[u8] = if opcode == SET { &[0; 8] } else { b"" };
        let key: &[u8] = if opcode == NO_OP { b"" } else { b"k" };
        let mut wire = Wire::connect(guarded.proxy);
        assert_eq!(ask(&mut wire, &packet(opcode, extras, key, b"")).0, AUTH_FAILURE, "{opcode}");
        assert_eq!(wire.read_until_or_end(b"never", Duration::from_secs(60)).1, End::Closed);
    }
    assert_eq!(guarded.server.stat("cmd_get"), 1);
    assert_eq!(guarded.server.stat("cmd_set"), 0);
    assert_eq!(guarded.stat("auth_errors"), 1);
}

#[test]
fn binary_clients_log_in_by_sasl() {
    let guarded = Guarded::start("sasl", &["-S"]);
    let mut wire = Wire::connect(guarded.proxy);
    let (status, mechanisms) = ask(&mut wire, &packet(SASL_LIST, b"", b"", b""));
    assert_eq!((status, &mechanisms[..]), (OK, &b"SCRAM-SHA-256 SCRAM-SHA-1 PLAIN"[..]));
    let plain = |token: &[u8]| packet(SASL_AUTH, b"", b"PLAIN", token);
    assert_eq!(ask(&mut wire, &plain(b"\0app\0wrong")).0, AUTH_FAILURE);
    assert_eq!(ask(&mut wire, &plain(b"\0app\0secret")).0, OK);
    assert_eq!(ask(&mut wire, &packet(SET, &[0; 8], b"app:k", b"v")).0, OK);
    // Another login replaces the first, and a refused one leaves no login.
    assert_eq!(ask(&mut wire, &plain(b"\0report\0r")).0, OK);
    assert_eq!(ask(&mut wire, &packet(SET, &[0; 8], b"app:k", b"w")).0, ACCESS_DENIED);
    assert_eq!(ask(&mut wire, &packet(GET, b"", b"app:k", b"")), (OK, b"v".to_vec()));
    assert_eq!(ask(&mut wire, &plain(b"\0report\0wrong")).0, AUTH_FAILURE);
    assert_eq!(ask(&mut wire, &packet(GET, b"", b"app:k", b"")).0, AUTH_FAILURE);
}

#[test]
fn each_protocol_has_the_login_of_its_flag() {
    let only_text = Guarded::start("text", &[]);
    let mut wire = Wire::connect(only_text.proxy);
    wire.send(&packet(SASL_LIST, b"", b"", b""));
    assert_eq!(wire.read_until_or_end(b"never", Duration::from_secs(60)).1, End::Closed);
    for (words, want) in [
        (&["-S"][..], "-S: name the file of users by MEMCACHED_SASL_PWDB or -Y"),
        (&["-o", "rights=/dev/null"], "-o rights: needs users, by -Y or -S"),
        (&["-Y", "/nonexistent/users"], "/nonexistent/users: No such file"),
    ] {
        let config = ["--config-str", r#"{"route": "NullRoute"}"#];
        let why = common::proxy(&[&config, words].concat()).unwrap_err();
        assert!(why.starts_with(want), "{why}");
    }
}

/// Keys under each of the prefixes that user `app` has rights to, and under none, with the value
/// `v`.
const KEYS: [&str; 3] = ["app:a", "shared:s", "other"];

fn store_keys(guarded: &Guarded) -> Wire {
    let mut direct = guarded.server.connect();
    for key in KEYS {
        direct.expect(format!("set {key} 0 0 1\r\nv\r\n").as_bytes(), b"STORED\r\n");
    }
    direct
}

#[test]
fn a_user_has_the_granted_rights() {
    let guarded = Guarded::start("rights", &[]);
    store_keys(&guarded);
    let mut app = guarded.user("app secret");
    let served = [
        ("get app:a shared:s", "VALUE app:a 0 1\r\nv\r\nVALUE shared:s 0 1\r\nv\r\nEND\r\n"),
        ("set app:n 0 0 1\r\n1", "STORED\r\n"),
        ("incr app:n 1", "2\r\n"),
        ("gat 0 app:a", "VALUE app:a 0 1\r\nv\r\nEND\r\n"),
        ("touch session:none 0", "NOT_FOUND\r\n"),
        ("mg app:a v", "VA 1\r\nv\r\n"),
        ("mg c2hhcmVkOnM= b v", "VA 1\r\nv\r\n"),
        ("ms session:x 1\r\nx", "HD\r\n"),
        ("md session:x", "HD\r\n"),
        ("mn", "MN\r\n"),
        ("config get cluster", "ERROR\r\n"),
    ];
    for (request, want) in served {
        app.expect(format!("{request}\r\n").as_bytes(), want.as_bytes());
    }
    // The keys before the forbidden one are answered; the rest of the line is skipped.
    app.expect(
        b"get app:a other app:a\r\nget shared:s other\r\nversion\r\n",
        format!(
            "VALUE app:a 0 1\r\nv\r\n{DENIED}VALUE shared:s 0 1\r\nv\r\n{DENIED}VERSION {}\r\n",
            proto::COMPATIBLE_VERSION
        )
        .as_bytes(),
    );
}

/// Text, meta and admin requests, each with its data block.
#[test]
fn a_user_has_no_other_right() {
    let guarded = Guarded::start("denied", &["--enable-flush-cmd"]);
    let mut direct = store_keys(&guarded);
    let mut app = guarded.user("app secret");
    let long = "x".repeat(100_000);
    let denied = [
        "get other".to_owned(),
        "get __mcrouter__.version".to_owned(),
        "get __mcrouter__.options".to_owned(),
        "get /././app:a".to_owned(),
        "gets shared".to_owned(),
        "gat 0 shared:s".to_owned(),
        "lease-get shared:s".to_owned(),
        "set shared:s 0 0 9\r\nflush_all".to_owned(),
        format!("set other 0 0 100000\r\n{long}"),
        "cas other 0 0 9 1\r\nflush_all".to_owned(),
        "append other 0 0 1\r\nx".to_owned(),
        "delete shared:s".to_owned(),
        "incr other 1".to_owned(),
        "touch shared:s 0".to_owned(),
        "mg other v".to_owned(),
        "mg shared:s v T30".to_owned(),
        "mg shared:s v N30".to_owned(),
        "me other".to_owned(),
        "ms other 9\r\nflush_all".to_owned(),
        format!("ms other 100000\r\n{long}"),
        "md b3RoZXI= b".to_owned(),
        "ma other".to_owned(),
        "flush_all".to_owned(),
        "flush_prefix app".to_owned(),
        "md app U".to_owned(),
        "stats".to_owned(),
        "verbosity 1".to_owned(),
        "watch proxyreqs".to_owned(),
    ];
    let count = guarded.stat("access_denied");
    for request in &denied {
        app.send(format!("{request}\r\n").as_bytes());
        assert_eq!(format!("{}\r\n", app.line()), DENIED, "{}", &request[..request.len().min(40)]);
    }
    assert_eq!(guarded.stat("access_denied") - count, denied.len() as u64);
    // No request is answered or executed.
    app.expect(b"delete shared:s noreply\r\nset other 0 0 1 noreply\r\nx\r\nmn\r\n", b"MN\r\n");
    for key in KEYS {
        let value = format!("VALUE {key} 0 1\r\nv\r\nEND\r\n");
        direct.expect(format!("get {key}\r\n").as_bytes(), value.as_bytes());
    }
    assert_eq!(guarded.server.stat("cmd_flush"), 0);
}

#[test]
fn rights_apply_to_binary_requests() {
    let guarded = Guarded::start("packets", &["-S"]);
    let mut wire = Wire::connect(guarded.proxy);
    let plain = packet(SASL_AUTH, b"", b"PLAIN", b"\0app\0secret");
    assert_eq!(ask(&mut wire, &plain).0, OK);
    let long = vec![b'x'; 100_000];
    for (opcode, extras, key, value) in [
        (GET, &b""[..], &b"other"[..], &b""[..]),
        (GET, b"", b"__mcrouter__.version", b""),
        (SET, &[0; 8], b"shared:s", b"x"),
        (SET, &[0; 8], b"other", &long),
        (0x04, b"", b"shared:s", b""),
        (0x05, &[0; 20], b"shared:s", b""),
        (0x08, b"", b"", b""),
        (0x0e, b"", b"other", b"x"),
        (0x1c, &[0; 4], b"shared:s", b""),
        (0x1d, &[0; 4], b"shared:s", b""),
        (STAT, b"", b"", b""),
    ] {
        let got = ask(&mut wire, &packet(opcode, extras, key, value));
        assert_eq!(got.0, ACCESS_DENIED, "{opcode:#x} {}", key.escape_ascii());
    }
    // Quiet gets of forbidden keys are misses.
    for (opcode, extras) in [(0x09, &b""[..]), (0x0d, b""), (0x1e, &[0; 4]), (0x24, &[0; 4])] {
        wire.send(&packet(opcode, extras, b"other", b""));
        wire.send(&packet(opcode, extras, b"__mcrouter__.version", b""));
    }
    assert_eq!(ask(&mut wire, &packet(NO_OP, b"", b"", b"")).0, OK);
    assert_eq!(ask(&mut wire, &packet(SET, &[0; 8], b"app:k", &long)).0, OK);
    assert_eq!(ask(&mut wire, &packet(GET, b"", b"app:k", b"")).1, long);
    assert_eq!(guarded.server.stat("cmd_set"), 1);
}

#[test]
fn admin_requests_and_watchers_need_the_right() {
    let guarded = Guarded::start("admin", &[]);
    let mut ops = guarded.user("ops o");
    ops.send(b"get __mcrouter__.version\r\n");
    assert!(ops.line().starts_with("VALUE __mcrouter__.version "));
    ops.read_until(b"END\r\n");
    ops.expect(b"get k\r\nverbosity 0\r\n", format!("{DENIED}OK\r\n").as_bytes());
    ops.send(b"stats\r\n");
    ops.read_until(b"END\r\n");
    ops.expect(b"watch proxyreqs\r\n", b"OK\r\n");
    let mut report = guarded.user("report r");
    report.expect(b"watch proxyreqs\r\n", DENIED.as_bytes());
    report.expect(b"get k\r\n", b"END\r\n");
    // The watcher receives lines from then on.
    loop {
        report.expect(b"get k\r\n", b"END\r\n");
        let (line, _) = ops.read_until_or_end(b"\n", Duration::from_millis(50));
        if !line.is_empty() {
            assert!(String::from_utf8(line).unwrap().contains("cmd=get key=k "));
            break;
        }
    }
}

/// Requests from before the login are answered during its check. A connection that only sends
/// logins does not delay the others.
#[test]
fn refused_logins_delay_no_other_client() {
    let guarded = Guarded::start("waiting", &["--num-proxies", "1"]);
    let mut app = guarded.user("app secret");
    let mut guessing: Vec<Wire> = (0..100).map(|_| Wire::connect(guarded.proxy)).collect();
    let began = Instant::now();
    for wire in &mut guessing {
        wire.send(format!("get k\r\n{}", login("app guess")).as_bytes());
    }
    for wire in &mut guessing {
        wire.expect(b"", UNAUTHENTICATED.as_bytes());
    }
    let mut count = 0;
    while began.elapsed() < Duration::from_millis(900) {
        app.expect(b"get app:k\r\n", b"END\r\n");
        count += 1;
    }
    assert!(count > 0);
    for wire in &mut guessing {
        wire.expect(b"get k\r\n", b"CLIENT_ERROR authentication failure\r\n");
        wire.expect(b"", UNAUTHENTICATED.as_bytes());
    }
}
