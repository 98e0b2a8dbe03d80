//! Logins: popular clients, comparison with Debian's memcached, refusals that do not delay other
//! clients, reload.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::wire::{End, show};
use testkit::{Kind, Launch, Server, Wire};

use crate::{Folder, output, python};

/// The output of `holdall passwd`.
pub(crate) fn passwd(user: &str, password: &str) -> String {
    passwd_with("", user, password)
}

fn passwd_with(flag: &str, user: &str, password: &str) -> String {
    let program = holdall();
    let program = program.display();
    let script = format!("printf '%s\\n' '{password}' | '{program}' passwd {flag} {user}");
    output(Command::new("sh").args(["-c", &script]))
}

fn holdall() -> std::path::PathBuf {
    testkit::server::holdall_path()
}

pub(crate) fn login(token: &str) -> Vec<u8> {
    format!("set auth 0 0 {}\r\n{token}\r\n", token.len()).into_bytes()
}

#[test]
fn sasl_with_popular_clients() {
    let folder = Folder::new();
    let text = format!("plain:secret\n{}", passwd("hashed", "secret"));
    let users = folder.write("users", &text);
    let server = Launch::new(Kind::Holdall).args(&["-S"]);
    let mut server = server.env("MEMCACHED_SASL_PWDB", &users).start();
    let address = server.addr().to_string();
    python("check_sasl.py", &[&address]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/check_sasl_pylibmc.py");
    let text = output(Command::new("/usr/bin/python3").args([script, &address]));
    assert!(text.ends_with("6 checks passed\n"), "{text}");
    assert!(server.is_alive());
    server.wait_for_log(": a login was refused");
}

#[test]
fn a_verifier_printed_as_json_allows_the_login() {
    let printed = passwd_with("--json", "app", "secret");
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let [user, verifier] = ["user", "verifier"].map(|name| printed[name].as_str().unwrap());
    let folder = Folder::new();
    let users = folder.write("users", &format!("{user}:{verifier}\n"));
    let server = Server::holdall(&["-Y", &users]);
    let mut wire = server.connect();
    wire.expect(&login("app secret"), b"STORED\r\n");
    wire.expect(b"get k\r\n", b"END\r\n");
    let mut wire = server.connect();
    wire.expect(&login("app secreT"), b"CLIENT_ERROR authentication failure\r\n");
}

/// Debian's memcached and holdall give the same replies, before and after a login, to correct and
/// to wrong requests. The part after a bar is sent after the reply to the part before: Debian's
/// keeps only the last reply to several requests that arrive at once before a login.
#[test]
fn token_login_replies_match_memcached() {
    const CASES: &[&str] = &[
        "get k\r\n|get k\n|mn\r\n|version\r\n|stats\r\n|flush_all\r\n|mg k v\r\n|quit\r\n|gets a b c\r\n",
        "set k 0 0\r\n|set k 0 0 x\r\n|set k 0 0 -1\r\n|add k 0 0 9\r\n|me secret\r\n|set\r\n|\r\n",
        "set k x y 9\r\nme secret\r\n|get a\r\n",
        "set k 0 0 9 noreply\r\nme secret\r\n|get a\r\n",
        "set k 0 0 2\r\nme\r\n|set k 0 0 0\r\n\r\n|set k 0 0 9\r\nme secretxx|get k\r\n",
        "set k 0 0 15\r\nme secret extra\r\n|get a\r\n",
        "set k 0 0 10\r\nme  secret\r\n|get a\r\n",
        "set k 0 0 13\r\nyou pass:word\r\n|get a\r\n",
        "set k 0 0 9\r\nme secret\r\n|set k 0 0 1\r\nx\r\n|get k\r\n|mg k v\r\n|delete k\r\n|set auth 0 0 9\r\n\
         me secret\r\n|get auth\r\n|delete auth\r\n",
        "set k 0 0 8\r\nme wrong\r\n|get k\r\n|set k 0 0 13\r\nnobody secret\r\n|set k 0 0 8\r\nme secre\r\n|\
         set k 0 0 10\r\nme secrett\r\n|set k 0 0 9\r\nME secret\r\n|set k 0 0 8\r\nyou pass\r\n|\
         set k 0 0 9\r\nme secret\r\n|get k\r\n",
    ];
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\nyou:pass:word\n");
    let theirs = Server::memcached(&["-Y", &users]);
    let ours = Server::holdall(&["-Y", &users]);
    let answers = |server: &Server, case: &str| {
        let mut wire = server.connect();
        let steps = case.split('|').map(|step| {
            wire.send(step.as_bytes());
            // holdall delays the reply to a refused login by a second.
            let mut got = wire.read_until_or_end(b"\r\n", Duration::from_secs(5)).0;
            got.extend(wire.read_for(Duration::from_millis(20)));
            format!("{step:?}: {}", show(&got))
        });
        steps.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        for case in CASES {
            let (ours, theirs, answers) = (&ours, &theirs, &answers);
            scope.spawn(move || assert_eq!(answers(ours, case), answers(theirs, case)));
        }
    });
    for name in ["auth_cmds", "auth_errors"] {
        let counts = [&ours, &theirs].map(|server| {
            let mut wire = server.connect();
            wire.expect(&login("me secret"), b"STORED\r\n");
            wire.send(b"stats\r\n");
            let text = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
            line.unwrap().parse::<u64>().unwrap()
        });
        assert!(counts[0] > 5 && counts[0] == counts[1], "{name}: {counts:?}");
    }
}

/// Hundreds of refused logins at once, some with hashed passwords, do not affect a client on the
/// same worker.
#[test]
fn refused_logins_do_not_delay_others() {
    let folder = Folder::new();
    let users = folder.write("users", &format!("me:secret\n{}", passwd("hashed", "secret")));
    let server = Server::holdall(&["-Y", &users, "-t", "1"]);
    let mut bystander = server.connect();
    bystander.expect(&login("me secret"), b"STORED\r\n");
    let mut guessing: Vec<Wire> = (0..300).map(|_| server.connect()).collect();
    let begun = Instant::now();
    for wire in &mut guessing {
        wire.send(&login("hashed guess"));
        wire.send(b"get k\r\n");
    }
    let mut served = 0;
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(900) {
        let asked = Instant::now();
        bystander.expect(b"get k\r\n", b"END\r\n");
        slowest = slowest.max(asked.elapsed());
        served += 1;
    }
    eprintln!("{served} gets served beside 300 guesses, the slowest in {slowest:?}");
    assert!(served > 20, "{served} gets in {:?}", begun.elapsed());
    for wire in &mut guessing {
        let want = b"CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\n";
        wire.expect(b"", want);
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// A password stored as a verifier takes milliseconds to check, and one thread checks all. A client
/// of another address waits for one guess, not for all.
#[test]
fn password_guesses_delay_no_login_from_another_address() {
    const GUESSES: usize = 200;
    let folder = Folder::new();
    let users = folder.write("users", &passwd("hashed", "secret"));
    let server = Server::holdall(&["-Y", &users, "-t", "1"]);
    let mut owner = Wire::connect_from(Ipv4Addr::new(127, 0, 0, 2), server.addr());
    let mut guessing: Vec<Wire> = (0..GUESSES).map(|_| server.connect()).collect();
    for wire in &mut guessing {
        wire.send(&login("hashed guess"));
    }
    owner.expect(&login("hashed secret"), b"STORED\r\n");
    owner.send(b"stats\r\n");
    let stats = String::from_utf8(owner.read_until(b"END\r\n")).unwrap();
    let refused = stats.lines().find_map(|line| line.strip_prefix("STAT auth_errors ")).unwrap();
    let refused: usize = refused.parse().unwrap();
    assert!(refused < GUESSES, "the login was checked after {refused} guesses");
    for wire in &mut guessing {
        wire.expect(b"", b"CLIENT_ERROR authentication failure\r\n");
    }
}

/// A client without a login makes the server hold at most 16 KiB.
#[test]
fn unauthenticated_clients_use_little_memory() {
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\n");
    let mut server = Server::holdall(&["-S", "-Y", &users, "-c", "2000"]);
    let before = server.rss_bytes();
    let mut held: Vec<Wire> = (0..500).map(|_| server.connect()).collect();
    for (index, wire) in held.iter_mut().enumerate() {
        let sasl =
            [&[0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0x10, 5][..], &[0; 12], b"PLAIN", &[b'x'; 4000]];
        let sent = match index % 3 {
            0 => [&b"set x 0 0 16000\r\n"[..], &[b'x'; 15_900]].concat(),
            1 => vec![b'x'; 2040],
            _ => sasl.concat(),
        };
        wire.send_for(&sent, Duration::from_millis(500));
    }
    thread::sleep(Duration::from_millis(300));
    let each = server.rss_bytes().saturating_sub(before) / 500;
    eprintln!("an unauthenticated client holds {each} bytes");
    assert!(each <= 20 * 1024, "{each} bytes each");
    for (sent, want) in [
        (&b"set x 0 0 2147483646\r\n"[..], &b"CLIENT_ERROR auth token too long\r\n"[..]),
        (b"set x 0 0 16384\r\n", b"CLIENT_ERROR auth token too long\r\n"),
        (&[b'x'; 3000], b""),
    ] {
        let mut wire = server.connect();
        wire.send(sent);
        let (got, end) = wire.read_until_or_end(b"never", Duration::from_secs(5));
        assert_eq!((show(&got), end == End::TimedOut), (show(want), false));
    }
    let mut wire = server.connect();
    wire.send(&b"\n".repeat(15_000));
    wire.read_until(&b"CLIENT_ERROR unauthenticated\r\n".repeat(15_000));
    assert!(server.is_alive());
}

/// SIGHUP: a bad file changes nothing and is named; a good one admits new users and disconnects
/// removed ones.
#[test]
fn users_are_reloaded_without_a_restart() {
    let folder = Folder::new();
    let users = folder.write("users", "old:1\nstays:2\n");
    let rights = folder.write("rights", "* readwrite *\n* admin\n");
    let rights_option = format!("rights={rights}");
    let server = Server::holdall(&["-Y", &users, "-o", &rights_option]);
    let (mut old, mut stays) = (server.connect(), server.connect());
    old.expect(&login("old 1"), b"STORED\r\n");
    stays.expect(&login("stays 2"), b"STORED\r\n");
    folder.write("users", "no colon");
    stays.send(b"refresh_certs\r\n");
    let answer = stays.line();
    assert!(answer.ends_with("users: line 1: is not user:password"), "{answer}");
    old.expect(b"get k\r\n", b"END\r\n");
    folder.write("users", "new:3\nstays:2\n");
    folder.write("rights", "* read *\n");
    output(Command::new("kill").args(["-HUP", &server.pid().to_string()]));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut wire = server.connect();
        wire.send(&login("new 3"));
        if wire.line() == "STORED" {
            break;
        }
        assert!(Instant::now() < deadline, "{}", server.log());
    }
    old.send(b"get k\r\n");
    assert_eq!(old.read_until_or_end(b"never", Duration::from_secs(5)).1, End::Closed);
    stays.expect(b"get k\r\nset k 0 0 1\r\nx\r\n", b"END\r\nCLIENT_ERROR permission denied\r\n");
}

/// An address open to other hosts causes a warning, unless a login is required.
#[test]
fn an_open_address_causes_a_warning() {
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\n");
    let log = |args: &[&str]| Launch::new(Kind::Holdall).args(args).start().log();
    let port = testkit::process::free_port();
    let everywhere = format!("0.0.0.0:{port}");
    let open = log(&["-l", &everywhere]);
    assert!(open.contains("0.0.0.0") && open.contains("without authentication"), "{open}");
    let plain = log(&["-l", &everywhere, "-Y", &users]);
    assert!(plain.contains("without TLS") && !plain.contains("without authentication"), "{plain}");
    let local = log(&[]);
    assert!(!local.contains("without"), "{local}");
}
