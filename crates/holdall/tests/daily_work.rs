//! `ping`, `latency`, `keys`, `bigkeys`, `dump`, `restore` and `cp`, with holdall and with Debian's
//! memcached.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use common::{Running, Scratch, holdall, output, stderr, stdout};
use serde_json::json;
use testkit::{Server, eventually};

/// Items of every kind: bytes of all values in keys and values, flags, large, empty, with and
/// without an expiry time.
fn items() -> Vec<(Vec<u8>, Vec<u8>, u32, u64)> {
    // memcached's times end in 2038.
    let far = 2_000_000_000;
    let strange: Vec<u8> = (33..=250).filter(|byte| *byte != 127).collect();
    let mut items = vec![
        (b"empty".to_vec(), Vec::new(), 0, 0),
        (b"lines".to_vec(), b"a\r\nEND 5\r\nkey=x\n\0".to_vec(), 7, 0),
        (strange, (0..=255).collect(), u32::MAX, far),
        (b"large".to_vec(), vec![b'v'; 300_000], 0, far),
    ];
    items.extend((0..1000_u32).map(|number| {
        let value = number.to_string().repeat(number as usize % 50);
        (format!("user:{number}").into_bytes(), value.into_bytes(), number, 0)
    }));
    items
}

fn fill(wire: &mut testkit::Wire) {
    for (key, value, flags, expires) in items() {
        let mut request = b"set ".to_vec();
        request.extend_from_slice(&key);
        request.extend(format!(" {flags} {expires} {}\r\n", value.len()).bytes());
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        wire.expect(&request, b"STORED\r\n");
    }
}

fn assert_filled(wire: &mut testkit::Wire) {
    for (key, value, flags, expires) in items() {
        let mut request = b"mg ".to_vec();
        request.extend_from_slice(&key);
        request.extend_from_slice(b" f v\r\n");
        let mut reply = format!("VA {} f{flags}\r\n", value.len()).into_bytes();
        reply.extend_from_slice(&value);
        reply.extend_from_slice(b"\r\n");
        wire.expect(&request, &reply);
        let is_forever = wire_ttl(wire, &key) == "-1";
        assert_eq!(is_forever, expires == 0, "{}", String::from_utf8_lossy(&key));
    }
}

fn wire_ttl(wire: &mut testkit::Wire, key: &[u8]) -> String {
    let mut request = b"mg ".to_vec();
    request.extend_from_slice(key);
    request.extend_from_slice(b" t\r\n");
    wire.send(&request);
    wire.line().trim().strip_prefix("HD t").unwrap().to_owned()
}

/// Runs to a good end; its stdout.
fn said(arguments: &[&str]) -> String {
    let output = output(&mut holdall(arguments));
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// The reason of a bad end, with status 1.
fn refused(arguments: &[&str]) -> String {
    let output = output(&mut holdall(arguments));
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stdout(&output));
    stderr(&output)
}

fn address(running: &Running) -> String {
    format!("127.0.0.1:{}", running.port("TCP INET"))
}

#[test]
fn items_are_dumped_and_restored_across_servers() {
    let (ours, theirs) = (Running::serve(&[]), Server::memcached(&[]));
    let (ours_at, theirs_at) = (address(&ours), theirs.addr().to_string());
    fill(&mut ours.connect());
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    // From ours through a file into memcached, from there into another of ours.
    said(&["dump", &ours_at, "-o", &file]);
    said(&["restore", &theirs_at, &file, "--rate", "0"]);
    assert_filled(&mut theirs.connect());
    let other = Running::serve(&[]);
    said(&["cp", &theirs_at, &address(&other), "--rate", "0"]);
    assert_filled(&mut other.connect());
    assert_filled(&mut ours.connect());
}

#[test]
fn cp_with_prefix_and_add_leaves_other_items_unchanged() {
    let (from, to) = (Running::serve(&[]), Running::serve(&[]));
    fill(&mut from.connect());
    to.connect().expect(b"set user:5 0 0 3\r\nold\r\n", b"STORED\r\n");
    let done = output(&mut holdall(&[
        "cp",
        &address(&from),
        &address(&to),
        "--prefix",
        "user:",
        "--add",
        "--rate",
        "0",
    ]));
    assert!(stderr(&done).contains("999 items stored"), "{}", stderr(&done));
    assert!(stderr(&done).contains("1 there already"), "{}", stderr(&done));
    to.connect()
        .expect(b"get user:5\r\nget empty\r\n", b"VALUE user:5 0 3\r\nold\r\nEND\r\nEND\r\n");
}

#[test]
fn dump_and_restore_counts_are_printed_as_json() {
    let (from, to) = (Running::serve(&[]), Running::serve(&[]));
    let (from_at, to_at) = (address(&from), address(&to));
    from.connect().expect(b"set a 0 0 3\r\nabc\r\nset b 0 0 2\r\nab\r\n", b"STORED\r\nSTORED\r\n");
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = output(&mut holdall(arguments));
        assert_eq!(stderr(&output), "", "{arguments:?}");
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let dumped = json(&["dump", &from_at, "-o", &file, "--json"]);
    assert_eq!(dumped, json!({"items": 2, "bytes": 5, "gone": 0, "stale": 0, "left_out": 0}));
    let mut stored = json!({
        "items": 2, "bytes": 5, "expired": 0, "present": 0, "refused": 0, "first_refusal": null
    });
    assert_eq!(json(&["restore", &to_at, &file, "--json"]), stored);
    stored["stale"] = 0.into();
    stored["left_out"] = 0.into();
    assert_eq!(json(&["cp", &from_at, &to_at, "--json"]), stored);
    let mixed = output(&mut holdall(&["dump", &from_at, "--json"]));
    assert_eq!(mixed.status.code(), Some(64), "stdout is the dump: {}", stderr(&mixed));
}

/// A list of keys says that an item never expires; until its value is read, it is another.
#[test]
fn a_dumped_value_has_its_current_time_to_live() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(&stream.unwrap(), b"VA 3 f0 t20 c1\r\nNEW\r\n"));
        }
    });
    let dumped = said(&["dump", &at]);
    let expires = dumped.split("exp=").nth(1).unwrap().split(' ').next().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let left = expires.parse::<u64>().unwrap() - now;
    assert!((1..=20).contains(&left), "{dumped}");
}

/// holdall keeps no cas unique of an item that nobody has asked for one, which saves eight bytes.
#[test]
fn a_dump_adds_nothing_to_items() {
    let (server, scratch) = (Server::holdall(&[]), Scratch::new());
    fill(&mut server.connect());
    let before = server.stat("bytes");
    said(&["dump", &server.addr().to_string(), "-o", &scratch.text("dump")]);
    assert_eq!(server.stat("bytes"), before);
}

/// `md KEY I` marks an item stale: it is served until one client has renewed it.
#[test]
fn stale_items_are_not_copied_or_claimed() {
    let (ours, theirs, to) = (Running::serve(&[]), Server::memcached(&[]), Running::serve(&[]));
    for (mut wire, at) in
        [(ours.connect(), address(&ours)), (theirs.connect(), theirs.addr().to_string())]
    {
        wire.expect(b"set new 0 0 3\r\nnew\r\n", b"STORED\r\n");
        for key in ["old", "won", "a b"] {
            let encoded = if key == "a b" { "YSBi b" } else { key };
            let word = encoded.split(' ').next().unwrap();
            let flag = &encoded[word.len()..];
            wire.expect(format!("ms {word} 3{flag} T400\r\nold\r\n").as_bytes(), b"HD\r\n");
            wire.expect(format!("md {word}{flag} I T300\r\n").as_bytes(), b"HD\r\n");
        }
        let mut renewal = |request: &str| {
            wire.send(format!("{request}\r\n").as_bytes());
            let line = wire.line();
            let has = |mark: &str| line.split_whitespace().any(|word| word == mark);
            assert_eq!((has("X"), has("W")), (true, !has("Z")), "{request}: {line}");
            has("W")
        };
        // One client renews this one already, and another makes an item that was not there.
        assert!(renewal("mg won"));
        make_empty(&at);
        for _ in 0..2 {
            let told = stderr(&copied(&at, &address(&to)));
            assert!(told.contains("1 items stored, 3 bytes"), "{told}");
            assert!(told.contains("; 4 left out, which clients are to renew"), "{told}");
        }
        to.connect()
            .expect(b"get old won made\r\nget new\r\n", b"END\r\nVALUE new 0 3\r\nnew\r\nEND\r\n");
        assert!(!renewal("mg won"), "another client renews it");
        assert!(renewal("mg old") && !renewal("mg old"));
        assert!(renewal("mg YSBi b") && !renewal("mg YSBi b"));
        wire.send(b"mg old t\r\n");
        let line = wire.line();
        assert!(line.starts_with("HD t2") || line.starts_with("HD t300"), "{line}");
    }
}

/// memcached makes one list of keys at a time, and ends the one before when it likes.
fn copied(from: &str, to: &str) -> Output {
    let mut copied = None;
    eventually("a copy", || {
        let done = output(&mut holdall(&["cp", from, to]));
        let is_good = done.status.success();
        copied = Some(done);
        is_good
    });
    copied.unwrap()
}

/// An empty item, for whoever asked first.
fn make_empty(at: &str) {
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.write_all(b"mg made N60 v\r\n").unwrap();
    let mut line = String::new();
    std::io::BufReader::new(stream).read_line(&mut line).unwrap();
    assert_eq!(line, "VA 0 W\r\n");
}

/// In base64 it has more than 250 bytes, so that only the binary protocol names it.
#[test]
fn a_key_too_long_for_commands_is_skipped() {
    let key = "a b".repeat(83);
    let mut request = vec![0x80, 1, 0, 249, 8, 0, 0, 0];
    request.extend_from_slice(&(8 + 249 + 1_u32).to_be_bytes());
    request.extend_from_slice(&[0; 12]);
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(key.as_bytes());
    request.push(b'v');
    let (ours, theirs, to) = (Running::serve(&[]), Server::memcached(&[]), Running::serve(&[]));
    for (mut wire, at) in
        [(ours.connect(), address(&ours)), (theirs.connect(), theirs.addr().to_string())]
    {
        wire.expect(b"set short 0 0 1\r\nv\r\n", b"STORED\r\n");
        let mut stream = std::net::TcpStream::connect(&at).unwrap();
        stream.write_all(&request).unwrap();
        let mut reply = [0; 24];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[6..8], [0, 0], "{reply:?}");
        let told = stderr(&copied(&at, &address(&to)));
        assert!(told.contains("1 items stored"), "{told}");
        assert!(told.contains("; 1 left out, whose value is no string or whose key"), "{told}");
    }
}

#[test]
fn a_failed_dump_keeps_the_previous_file() {
    let server = Running::serve(&[]);
    let (at, nowhere) = (address(&server), testkit::process::free_port().to_string());
    let nowhere = format!("127.0.0.1:{nowhere}");
    server.connect().expect(b"set a 0 0 3\r\nabc\r\n", b"STORED\r\n");
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    said(&["dump", &at, "-o", &file]);
    let kept = fs::read(&file).unwrap();
    for from in [nowhere.clone(), format!("redis://{nowhere}")] {
        assert!(refused(&["dump", &from, "-o", &file]).contains(&nowhere));
        assert_eq!(fs::read(&file).unwrap(), kept);
    }
    let login = scratch.text("login");
    fs::write(&login, "app:secret\n").unwrap();
    let why = refused(&["dump", &at, "-o", &login, "--login", &login]);
    assert!(why.contains("it is an input as well"), "{why}");
    assert_eq!(fs::read(&login).unwrap(), b"app:secret\n");
    // Nothing half is left behind.
    let mut names: Vec<_> = fs::read_dir(scratch.path("")).unwrap().collect();
    names.retain(|entry| entry.as_ref().unwrap().path().extension().is_some());
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn an_incomplete_or_invalid_dump_is_an_error() {
    let server = Running::serve(&[]);
    let at = address(&server);
    fill(&mut server.connect());
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    said(&["dump", &at, "-o", &file]);
    let whole = fs::read(&file).unwrap();
    let cut = scratch.text("cut");
    for len in [0, 5, 40, whole.len() / 2, whole.len() - 3] {
        fs::write(&cut, &whole[..len]).unwrap();
        let why = refused(&["restore", &at, &cut, "--rate", "0"]);
        assert!(why.contains("the dump: "), "{len}: {why}");
    }
    for (text, wanted) in [
        ("hello\n", "its first line"),
        ("holdall-dump 1\nkey=a exp=-1 flags=0 bytes=99999999999\n", "unknown line"),
        ("holdall-dump 1\nkey=a exp=-1 flags=0 bytes=1\nxy\nEND 1\n", "within a value"),
        ("holdall-dump 1\nkey=a exp=-1 flags=0 bytes=1\nx\nEND 2\n", "it has 1 items and says 2"),
    ] {
        fs::write(&cut, text).unwrap();
        let why = refused(&["restore", &at, &cut]);
        assert!(why.contains(wanted), "{text}: {why}");
    }
}

#[test]
fn items_expired_since_the_dump_are_skipped() {
    let server = Running::serve(&[]);
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    let text = "holdall-dump 1\nkey=old exp=1000000000 flags=0 bytes=1\nx\n\
                key=new exp=2000000000 flags=0 bytes=1\ny\nEND 2\n";
    fs::write(&file, text).unwrap();
    let done = output(&mut holdall(&["restore", &address(&server), &file]));
    assert!(stderr(&done).contains("1 items stored") && stderr(&done).contains("1 expired"));
    server.connect().expect(b"get old new\r\n", b"VALUE new 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn refused_items_are_reported_and_far_expirations_are_kept() {
    let (ours, theirs) = (Running::serve(&[]), Server::memcached(&[]));
    let scratch = Scratch::new();
    let file = scratch.text("dump");
    let text = format!(
        "holdall-dump 1\nkey=large exp=-1 flags=0 bytes=2000000\n{}\n\
         key={} exp=-1 flags=0 bytes=1\nx\n\
         key=far exp=4795996602 flags=0 bytes=1\ny\nEND 3\n",
        "v".repeat(2_000_000),
        "%20".repeat(250)
    );
    fs::write(&file, text).unwrap();
    for (mut wire, at) in
        [(ours.connect(), address(&ours)), (theirs.connect(), theirs.addr().to_string())]
    {
        let done = output(&mut holdall(&["restore", &at, &file]));
        let told = stderr(&done);
        assert_eq!(done.status.code(), Some(2), "{told}");
        assert!(told.starts_with("1 items stored") && told.contains("2 refused (the first: "));
        wire.expect(b"get far\r\n", b"VALUE far 0 1\r\ny\r\nEND\r\n");
    }
}

#[test]
fn keys_and_sizes_are_listed_with_keys_encoded() {
    let (ours, theirs) = (Running::serve(&[]), Server::memcached(&[]));
    for (mut wire, at) in
        [(ours.connect(), address(&ours)), (theirs.connect(), theirs.addr().to_string())]
    {
        fill(&mut wire);
        let mut keys = String::new();
        // memcached's crawler begins when it likes, and has one dump at a time.
        eventually("all keys", || {
            keys = stdout(&output(&mut holdall(&["keys", &at])));
            keys.lines().count() == items().len()
        });
        assert!(keys.lines().any(|key| key == "user:17"), "{keys}");
        assert!(keys.bytes().all(|byte| byte.is_ascii_graphic() || byte == b'\n'), "{keys}");
        let some = said(&["keys", &at, "--prefix", "user:99", "--limit", "3", "--json"]);
        assert_eq!(some.lines().count(), 3, "{some}");
        let first: serde_json::Value = serde_json::from_str(some.lines().next().unwrap()).unwrap();
        assert!(first["size"].as_u64().unwrap() > 40, "{first}");
        let big = said(&["bigkeys", &at, "--count", "2", "--json"]);
        let big: serde_json::Value = serde_json::from_str(&big).unwrap();
        assert_eq!(big["largest"][0]["key"], "large");
        assert_eq!(big["prefixes"].as_array().unwrap().len(), 2);
        assert!(said(&["bigkeys", &at]).contains("user:"));
    }
}

#[test]
fn ping_distinguishes_answering_servers_from_others() {
    let (ours, theirs) = (Running::serve(&[]), Server::memcached(&[]));
    let (ours_at, theirs_at) = (address(&ours), theirs.addr().to_string());
    let both = said(&["ping", &ours_at, &theirs_at]);
    assert_eq!(both.lines().count(), 2, "{both}");
    let free = testkit::process::free_port().to_string();
    let nowhere = format!("127.0.0.1:{free}");
    let one = output(&mut holdall(&["ping", &nowhere, &ours_at, "--json"]));
    assert_eq!(one.status.code(), Some(1));
    let lines: Vec<serde_json::Value> =
        stdout(&one).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["error"].is_string() && lines[1]["version"].is_string(), "{lines:?}");
    let times = said(&["latency", &theirs_at, "--count", "50", "--interval", "0"]);
    assert!(times.starts_with("50 round trips, mean"), "{times}");
    for command in ["latency", "keys", "bigkeys", "dump"] {
        assert!(refused(&[command, &nowhere]).contains(&nowhere), "{command}");
    }
}

/// A list that was cut off looks whole to a script that has no status.
#[test]
fn a_full_disk_is_an_error() {
    let server = Running::serve(&[]);
    let at = address(&server);
    server.connect().expect(b"set a 0 0 3\r\nabc\r\n", b"STORED\r\n");
    for command in ["ping", "latency", "keys", "bigkeys", "dump"] {
        for more in [&[][..], &["--json"]] {
            if command == "dump" && !more.is_empty() {
                continue;
            }
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let mut line = holdall(&[&[command, &at], more].concat());
            let done = output(line.stdout(full));
            let why = stderr(&done);
            assert_eq!(done.status.code(), Some(1), "{command} {more:?}: {why}");
            assert!(why.contains("No space left"), "{command} {more:?}: {why}");
        }
    }
}

/// An authority, and a server's certificate of it for 127.0.0.1.
fn certify(scratch: &Scratch) {
    let file = |name: &str| scratch.text(name);
    fs::write(file("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let new_key = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x";
    let (ca, ca_key) = (file("ca.pem"), file("ca.key"));
    let lines = [
        format!("{new_key} -x509 -days 2 -keyout {ca_key} -out {ca}"),
        format!("{new_key} -keyout {} -out {}", file("key.pem"), file("request")),
        format!(
            "x509 -req -in {} -CA {ca} -CAkey {ca_key} -CAcreateserial -days 2 -extfile {} -out {}",
            file("request"),
            file("names"),
            file("chain.pem")
        ),
    ];
    for line in lines {
        let made = Command::new("openssl").args(line.split(' ')).output().expect("openssl");
        assert!(made.status.success(), "{line}: {}", stderr(&made));
    }
}

#[test]
fn commands_use_the_tls_and_logins_of_each_server() {
    let scratch = Scratch::new();
    let (ca, key, chain) =
        (scratch.text("ca.pem"), scratch.text("key.pem"), scratch.text("chain.pem"));
    certify(&scratch);
    fs::write(scratch.path("users"), "app:secret\n").unwrap();
    fs::write(scratch.path("login"), "app:secret\n").unwrap();
    fs::write(scratch.path("wrong"), "app:wrong\n").unwrap();
    for name in ["key.pem", "chain.pem", "users"] {
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let files = format!("ssl_key={key},ssl_chain_cert={chain}");
    let users = scratch.text("users");
    let server = Running::serve(&["-Z", "-o", &files, "-Y", &users]);
    let at = address(&server);
    let (login, wrong) = (scratch.text("login"), scratch.text("wrong"));
    said(&["ping", &at, "--tls-ca", &ca, "--login", &login]);
    said(&["cp", &at, &at, "--tls-insecure", "--login", &login]);
    assert!(refused(&["keys", &at, "--tls-ca", &ca, "--login", &wrong]).contains("the login"));
    assert!(refused(&["keys", &at, "--tls-ca", &ca]).contains("CLIENT_ERROR"));
    let plain = refused(&["keys", &at, "--timeout", "2"]);
    assert!(plain.contains(&at), "{plain}");
    // From a server without either, and back.
    let without = Running::serve(&[]);
    let (mut wire, other) = (without.connect(), address(&without));
    fill(&mut wire);
    said(&["cp", &other, &at, "--tls-ca", &ca, "--login", &login, "--from-plain"]);
    wire.expect(b"flush_all\r\n", b"OK\r\n");
    said(&["cp", &at, &other, "--from-tls-ca", &ca, "--from-login", &login]);
    let missing = refused(&["cp", &at, &other, "--from-tls-ca", "/nonexistent.pem"]);
    assert!(missing.contains("/nonexistent.pem"), "{missing}");
    let login = refused(&["cp", &at, &other, "--from-login", "/nonexistent"]);
    assert!(login.contains("/nonexistent"), "{login}");
    assert_filled(&mut wire);
}

/// A server that says what it likes: no length is believed, and no reply moves a cursor.
#[test]
fn a_hostile_server_gives_an_error_and_no_control_characters() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let reply = b"VA 18446744073709551615 f0\r\n";
            std::thread::spawn(move || answer(&stream.unwrap(), reply));
        }
    });
    let version = said(&["ping", &at]);
    assert!(version.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{version:?}");
    let why = refused(&["dump", &at]);
    assert!(why.contains("VA 18446744073709551615"), "{why}");
}

/// Answers as a server with one item; what is asked for values, by `values`.
fn answer(mut stream: &std::net::TcpStream, values: &[u8]) {
    let mut lines = std::io::BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let reply: &[u8] = match line.split(' ').next() {
            Some("version") => b"VERSION 1.6.45\x1b[2J\x07\r\n",
            Some("stats") => b"STAT curr_items 1\r\nEND\r\n",
            Some("lru_crawler") => b"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63\r\nEND\r\n",
            _ => values,
        };
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

/// How far it is, in a terminal, which `script` makes; a log gets the end alone.
#[test]
fn progress_is_shown_only_on_a_terminal() {
    let (from, to) = (Running::serve(&[]), Running::serve(&[]));
    fill(&mut from.connect());
    // Longer than a line of progress takes to be drawn.
    let words = ["cp", &address(&from), &address(&to), "--rate", "1000"];
    let line = format!("exec {} {}", env!("CARGO_BIN_EXE_holdall"), words.join(" "));
    let shown = output(Command::new("script").args(["-qefc", &line, "/dev/null"]));
    assert!(shown.status.success(), "{}", stdout(&shown));
    let is_progress = |text: &str| text.contains(" items  ") && text.contains("/s");
    assert!(is_progress(&stdout(&shown)), "{}", stdout(&shown));
    let logged = output(&mut holdall(&words));
    assert!(stderr(&logged).contains("1004 items stored"), "{}", stderr(&logged));
    assert!(!is_progress(&stderr(&logged)), "{}", stderr(&logged));
}
