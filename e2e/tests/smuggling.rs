//! Client input to `holdall route` never becomes another command at a server, and a server's
//! refusal costs no other client a request.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::process::free_port;
use testkit::wire::End;
use testkit::{Kind, Launch, Router, Server, Wire};

/// Contents of a data block that a server must not execute.
const BLOCKS: [&str; 3] = [
    "flush_all",
    "set victim 0 0 3\r\nBAD",
    "delete victim\r\nmd other\r\nset victim 0 0 3\r\nBAD\r\nflush_all",
];

/// Bytes that end words, lines and strings for some parser, or start a packet.
const ODD: [&str; 7] = ["\0", "\r", "\t", "\x01", "\x7f", "\u{80}", "\u{0}\r"];

/// Lines of this command, without their ends, that announce a block of `len` bytes: correct and
/// wrong ones.
fn lines(op: client::Command, len: usize) -> Vec<String> {
    let word = match op {
        client::Command::Add => "add",
        client::Command::Append => "append",
        client::Command::Cas => return storage("cas", " 7", len),
        client::Command::LeaseSet => return lease_sets(len),
        client::Command::MetaSet => return meta_sets(len),
        client::Command::Prepend => "prepend",
        client::Command::Replace => "replace",
        client::Command::Set => "set",
        // These have no data block.
        client::Command::Decr
        | client::Command::Delete
        | client::Command::FlushAll
        | client::Command::Gat
        | client::Command::Gats
        | client::Command::Get
        | client::Command::Gets
        | client::Command::Incr
        | client::Command::LeaseGet
        | client::Command::MetaArithmetic
        | client::Command::MetaDebug
        | client::Command::MetaDelete
        | client::Command::MetaGet
        | client::Command::MetaInfo
        | client::Command::Touch
        | client::Command::Version => return Vec::new(),
    };
    storage(word, "", len)
}

/// Keys that some servers may not parse as one word.
fn keys() -> Vec<String> {
    let odd = ODD.iter().map(|odd| format!("k{odd}k"));
    ["k".to_owned(), "k".repeat(250), "k".repeat(251)].into_iter().chain(odd).collect()
}

fn storage(word: &str, end: &str, len: usize) -> Vec<String> {
    let times = [0, -1, 1 << 31, -(1_i64 << 40), i64::MAX, i64::MIN];
    let keys = keys().into_iter().map(|key| format!("{word} {key} 0 0 {len}{end}"));
    let times = times.iter().map(|time| format!("{word} k 0 {time} {len}{end}"));
    let numbers = ["4294967295", "4294967296", "-1", "x", "18446744073709551616"];
    let flags = numbers.iter().map(|flags| format!("{word} k {flags} 0 {len}{end}"));
    let late = numbers.iter().map(|time| format!("{word} k 0 {time} {len}{end}"));
    keys.chain(times).chain(flags).chain(late).collect()
}

fn lease_sets(len: usize) -> Vec<String> {
    let keys = keys().into_iter().map(|key| format!("lease-set {key} 5 0 0 {len}"));
    keys.chain([format!("lease-set k 0 0 -1 {len}"), format!("lease-set k x 0 0 {len}")]).collect()
}

fn meta_sets(len: usize) -> Vec<String> {
    let many = "b c f h k l s t u v x I C1 D1 E1 F1 J1 L P M T0 N0 R0 O";
    let most: Vec<String> = (0..24)
        .map(|count| many.split(' ').skip(1).take(count).collect::<Vec<_>>().join(" "))
        .collect();
    let flags = [
        "T9999999999",
        "T99999999999999999999",
        "Tx",
        "F4294967296",
        "G",
        "G7",
        "H7",
        "A",
        "U",
        "a a a",
        "MX",
        "MAPPEND",
        "MA",
        "k k",
        "v\0",
        "\0",
        "\u{1}",
        "O\u{1}",
        "q",
        "W",
        "noreply",
        "b",
    ];
    let long = format!("O{}", "x".repeat(1900));
    let flags = flags.iter().map(ToString::to_string).chain(most).chain([long]);
    let flags = flags.map(|flags| format!("ms k {len} {flags}"));
    let keys = keys().into_iter().map(|key| format!("ms {key} {len}"));
    // 186, 189 and 250 bytes in base64, and invalid base64.
    let encoded = ["AQID".repeat(62), "AQID".repeat(63), "AQID".repeat(84), "!!!!".to_owned()];
    let encoded = encoded.iter().map(|key| format!("ms {key} {len} b"));
    flags.chain(keys).chain(encoded).collect()
}

/// Waits until all requests have replies, or the proxy has closed the connection.
fn settle(wire: &mut Wire) {
    wire.send(b"version\r\n");
    let (_, end) = wire.read_until_or_end(b"VERSION ", Duration::from_secs(60));
    assert_ne!(end, End::TimedOut);
}

fn proxied(kind: Kind) -> (Server, Router) {
    let server = Launch::new(kind).start();
    let proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &["--num-proxies", "1"]);
    (server, proxy)
}

#[test]
fn data_blocks_are_never_executed() {
    for kind in [Kind::Memcached, Kind::Holdall] {
        let (server, proxy) = proxied(kind);
        let mut direct = server.connect();
        for key in ["victim", "other"] {
            direct.expect(format!("set {key} 0 0 4\r\ngood\r\n").as_bytes(), b"STORED\r\n");
        }
        for (op, block) in
            client::Command::ALL.iter().flat_map(|op| BLOCKS.map(|block| (*op, block)))
        {
            for line in lines(op, block.len()) {
                let mut wire = proxy.connect();
                wire.send(format!("{line}\r\n{block}\r\n").as_bytes());
                settle(&mut wire);
                for key in ["victim", "other"] {
                    let value = format!("VALUE {key} 0 4\r\ngood\r\nEND\r\n");
                    direct.send(format!("get {key}\r\n").as_bytes());
                    let found = direct.read_until(b"END\r\n");
                    let shown = line.escape_debug().to_string();
                    assert_eq!(
                        testkit::wire::show(&found),
                        testkit::wire::show(value.as_bytes()),
                        "{kind:?}: {shown}"
                    );
                }
            }
        }
        assert_eq!(server.stat("cmd_flush"), 0);
    }
}

/// A packet of the binary protocol: a set of this key.
fn packet(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 0x01];
    bytes.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
    bytes.extend([8, 0, 0, 0]);
    bytes.extend(u32::try_from(8 + key.len() + value.len()).unwrap().to_be_bytes());
    bytes.extend([0; 12 + 8]);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

#[test]
fn binary_values_are_never_executed() {
    let (server, proxy) = proxied(Kind::Memcached);
    let mut direct = server.connect();
    direct.expect(b"set victim 0 0 4\r\ngood\r\n", b"STORED\r\n");
    let block = b"set victim 0 0 3\r\nBAD\r\nflush_all";
    let keys: [Vec<u8>; 6] = [
        b"k".to_vec(),
        b"k k".to_vec(),
        [&b"k\r\n"[..], block].concat(),
        [&[b' '; 186][..]].concat(),
        [&[b' '; 187][..]].concat(),
        [&[0; 250][..]].concat(),
    ];
    for key in keys {
        let mut wire = proxy.connect();
        wire.send(&packet(&key, block));
        let answer = wire.read_exact(24);
        assert_eq!(answer[..2], [0x81, 0x01], "{}", key.escape_ascii());
        direct.expect(b"get victim\r\n", b"VALUE victim 0 4\r\ngood\r\nEND\r\n");
    }
}

/// Requests that some servers refuse, or that once caused a closed connection.
fn refused() -> Vec<Vec<u8>> {
    let many = "ms k 9 b c f h k l s t u v I F1 L P T0 O1 D1 J1";
    let lines = [
        "ms k 1 H1\r\na",
        "ms k 1 G5\r\na",
        "ms k 9 MX\r\nflush_all",
        "lease-set k 5 0 0 9\r\nflush_all",
        "lease-get k",
        "delete k 10",
        "md k H10",
        "mg k A",
        "flush_prefix k",
        "flush_all",
        "metaget k",
        "gat 0 k",
        "mg k v",
        "me k",
        "ma k",
        "get k\0k",
        "set k\0k 0 0 9\r\nflush_all",
        "set k 0 9999999999 1\r\na",
        "incr text 1",
        // For an item that `mg N` created, memcached prints the raw key: a line end, and the bytes
        // after it.
        "mg YQ0KU1RPUkVEDQo= b N30 k v",
        "me YQ0KU1RPUkVEDQo= b",
    ];
    let lines = lines.iter().map(|line| format!("{line}\r\n").into_bytes());
    let long = format!("ms {} 9 b\r\nflush_all\r\n", "AQID".repeat(63)).into_bytes();
    lines.chain([long, format!("{many}\r\nflush_all\r\n").into_bytes()]).collect()
}

/// Requests an existing key, eight times at once, until the end; returns the number of gets.
fn bystander(proxy: SocketAddr, key: &str, ends: &AtomicBool) -> usize {
    let mut wire = Wire::connect(proxy);
    let mut count = 0;
    while !ends.load(Ordering::SeqCst) {
        wire.send(format!("get {key}\r\n").repeat(8).as_bytes());
        for _ in 0..8 {
            assert_eq!(wire.line(), format!("VALUE {key} 0 1"));
            assert_eq!((wire.line(), wire.line()), ("x".to_owned(), "END".to_owned()));
            count += 1;
        }
    }
    count
}

/// Three clients read present keys while a fourth sends refused requests, `rounds` times.
fn check_bystanders(proxy: &Router, rounds: usize) {
    let mut wire = proxy.connect();
    wire.expect(b"set bystander 0 0 1\r\nx\r\n", b"STORED\r\n");
    wire.expect(b"set text 0 0 1\r\nt\r\n", b"STORED\r\n");
    let (ends, address) = (AtomicBool::new(false), proxy.addr());
    thread::scope(|scope| {
        let bystanders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| bystander(address, "bystander", &ends))).collect();
        let offender = scope.spawn(|| {
            for _ in 0..rounds {
                for request in refused() {
                    // If the rest of a refused line is in doubt, the proxy closes the client's
                    // connection.
                    let mut wire = proxy.connect();
                    wire.send(&request);
                    settle(&mut wire);
                }
            }
        });
        let offended = offender.join();
        ends.store(true, Ordering::SeqCst);
        for bystander in bystanders {
            assert!(bystander.join().unwrap() > 0);
        }
        offended.unwrap();
    });
}

#[test]
fn refused_requests_affect_no_other_client() {
    for kind in [Kind::Memcached, Kind::Holdall] {
        let (_server, proxy) = proxied(kind);
        check_bystanders(&proxy, 20);
    }
}

/// A server that allows the proxy's user only some keys refuses whole lines, including the keys of
/// other clients.
#[test]
fn requests_beyond_the_proxys_rights_affect_no_other_client() {
    let folder = std::env::temp_dir().join(format!("rights-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (users, rights) = (file("users", "app:pw\n"), file("rights", "app readwrite app:\n"));
    let rights = format!("rights={rights}");
    let server = Launch::new(Kind::Holdall).args(&["-Y", &users, "-o", &rights]).start();
    let args = ["--num-proxies", "1", "--server-auth-file", &users];
    let proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &args);
    let mut offender = proxy.connect();
    // The first refusal of a data block closes the connection; from then on the proxy knows the
    // kind of server.
    offender.expect(b"set other 0 0 9\r\nflush_all\r\n", DENIED);
    offender.expect(b"set app:k 0 0 1\r\nx\r\n", b"STORED\r\n");
    let (ends, address) = (AtomicBool::new(false), proxy.addr());
    thread::scope(|scope| {
        let bystanders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| bystander(address, "app:k", &ends))).collect();
        for _ in 0..300 {
            offender.send(b"set other 0 0 9\r\nflush_all\r\nget other\r\nms other 1\r\na\r\n");
            (0..3).for_each(|_| assert_eq!(offender.line().as_bytes(), DENIED.trim_ascii_end()));
        }
        ends.store(true, Ordering::SeqCst);
        bystanders.into_iter().for_each(|one| assert!(one.join().unwrap() > 0));
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

const DENIED: &[u8] = b"CLIENT_ERROR permission denied\r\n";

/// Through a second proxy, which knows all commands, whatever its servers know.
#[test]
fn chained_proxies_are_as_safe() {
    for kind in [Kind::Memcached, Kind::Holdall] {
        let (_server, inner) = proxied(kind);
        let outer = Router::over(&[inner.addr()], r#""PoolRoute|all""#, &["--num-proxies", "1"]);
        check_bystanders(&outer, 5);
        if kind == Kind::Holdall {
            let mut wire = outer.connect();
            wire.send(b"lease-get leased\r\n");
            let reply = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
            let token = reply.split(' ').nth(2).unwrap();
            let set = format!("lease-set leased {token} 0 0 1\r\nv\r\n");
            wire.expect(set.as_bytes(), b"STORED\r\n");
        }
    }
}

/// Kills the process on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// twemproxy closes the connection on every unknown command.
#[test]
fn twemproxy_behind_the_proxy_stays_usable() {
    let server = Launch::new(Kind::Memcached).start();
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let folder = std::env::temp_dir().join(format!("smuggling-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("nutcracker.yml");
    let pool = format!("p:\n  listen: {listen}\n  servers:\n    - {}:1\n", server.addr());
    std::fs::write(&config, pool).unwrap();
    let _nutcracker = Running(
        Command::new("nutcracker")
            .env("PATH", "/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin")
            .args(["-a", "127.0.0.1", "-s", &free_port().to_string(), "-c"])
            .arg(&config)
            .arg("-o")
            .arg(folder.join("log"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let end = Instant::now() + Duration::from_secs(60);
    while Wire::try_connect(listen).is_err() {
        assert!(Instant::now() < end, "twemproxy does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    let proxy = Router::over(&[listen], r#""PoolRoute|all""#, &["--num-proxies", "1"]);
    check_bystanders(&proxy, 5);
    let mut wire = proxy.connect();
    wire.expect(b"lease-get k\r\n", b"CLIENT_ERROR the server has no leases\r\n");
    wire.expect(b"mg k v\r\n", b"CLIENT_ERROR the server has no meta commands\r\n");
    std::fs::remove_dir_all(&folder).unwrap();
}
