//! The proxy in front of real servers, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use common::{SESSION, packet, proxy};
use tempfile::TempDir;
use testkit::{Server, eventually, replace_file};

/// A proxy in a thread of this test, which ends with the test's process.
struct Proxy {
    address: SocketAddr,
    config: PathBuf,
    _folder: TempDir,
}

impl Proxy {
    fn start(config: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, config).unwrap();
        let address = proxy(&[&["-f", path.to_str().unwrap()], arguments].concat()).unwrap();
        Self { address, config: path, _folder: folder }
    }

    /// Pools A, B, ... of one of these servers each, in the order of the names in `routes`.
    fn over(servers: &[SocketAddr], route: &str, arguments: &[&str]) -> Self {
        Self::start(&config(servers, route), arguments)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

fn config(servers: &[SocketAddr], route: &str) -> String {
    let pools = servers
        .iter()
        .zip('A'..)
        .map(|(server, name)| format!(r#""{name}": {{ "servers": ["{server}"] }}"#));
    let all = servers.iter().map(|server| format!(r#""{server}""#)).collect::<Vec<_>>().join(",");
    let pools = pools.collect::<Vec<_>>().join(",");
    format!(
        r#"// comments and trailing commas are fine
        {{ "pools": {{ "all": {{ "servers": [{all}] }}, {pools} }}, "route": {route}, }}"#
    )
}

/// Sends `request` and asserts the reply; no byte may follow it.
#[track_caller]
fn exact(stream: &mut TcpStream, request: &[u8], reply: &[u8]) {
    stream.write_all(request).unwrap();
    let (mut got, mut len) = (vec![0; reply.len()], 0);
    while len < got.len() {
        match stream.read(&mut got[len..]) {
            Ok(more @ 1..) => len += more,
            end => {
                panic!("{}: {end:?} after {}", request.escape_ascii(), got[..len].escape_ascii())
            }
        }
    }
    assert_eq!(got.escape_ascii().to_string(), reply.escape_ascii().to_string());
}

/// Everything until the proxy closes.
fn rest(mut stream: TcpStream) -> String {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn every_command_works_split_at_any_byte() {
    let servers: Vec<_> = (0..3).map(|_| Server::memcached(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let proxy = Proxy::over(&addresses, r#""PoolRoute|all""#, &["--num-proxies", "2"]);
    let mut stream = proxy.connect();
    for (request, reply) in SESSION {
        exact(&mut stream, request, reply);
    }
    // All at once, with the keys as before; then in two pieces, cut at each position.
    let clean = b"delete n noreply\r\ndelete m noreply\r\ndelete a noreply\r\nmn\r\n";
    let request: Vec<u8> = SESSION.iter().flat_map(|(request, _)| request.to_vec()).collect();
    let reply: Vec<u8> = SESSION.iter().flat_map(|(_, reply)| reply.to_vec()).collect();
    for cut in (0..request.len()).step_by(7) {
        exact(&mut stream, clean, b"MN\r\n");
        stream.write_all(&request[..cut]).unwrap();
        if cut % 3 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        exact(&mut stream, &request[cut..], &reply);
    }
}

#[test]
fn large_values_and_long_lines_are_forwarded() {
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&["-m", "200"])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let proxy = Proxy::over(&addresses, r#""PoolRoute|all""#, &[]);
    let mut stream = proxy.connect();
    for len in [16_000, 16_384, 65_536, 200_000, 1_000_000] {
        let value = "v".repeat(len);
        exact(
            &mut stream,
            format!("set k{len} 0 0 {len}\r\n{value}\r\n").as_bytes(),
            b"STORED\r\n",
        );
        let reply = format!("VALUE k{len} 0 {len}\r\n{value}\r\nEND\r\n");
        exact(&mut stream, format!("get k{len}\r\n").as_bytes(), reply.as_bytes());
    }
    exact(
        &mut stream,
        format!("set k 0 0 3000000\r\n{}\r\nmn\r\n", "v".repeat(3_000_000)).as_bytes(),
        b"SERVER_ERROR object too large for cache\r\nMN\r\n",
    );
    let line = (0..20_000).map(|key| format!(" key{key}")).collect::<String>();
    exact(&mut stream, format!("get{line} k16000\r\n").as_bytes(), b"VALUE k16000 0 16000\r\n");
}

#[test]
fn pipelined_replies_keep_their_order_across_servers() {
    let servers: Vec<_> = (0..4).map(|_| Server::memcached(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let both_serve = ["--num-proxies", "2", "--gather-below", "0"];
    let proxy = Proxy::over(&addresses, r#""PoolRoute|all""#, &both_serve);
    let clients = (0..8).map(|client| {
        let mut stream = proxy.connect();
        thread::spawn(move || {
            let keys: Vec<String> = (0..5000).map(|key| format!("c{client}k{key}")).collect();
            let sets: String = keys
                .iter()
                .map(|key| format!("set {key} 0 0 {}\r\n{key}\r\n", key.len()))
                .collect();
            let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
            let values: String = keys
                .iter()
                .map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len()))
                .collect();
            let mut writer = stream.try_clone().unwrap();
            let stored = "STORED\r\n".repeat(keys.len());
            let writing =
                thread::spawn(move || writer.write_all((sets + &gets).as_bytes()).unwrap());
            exact(&mut stream, b"", (stored + &values).as_bytes());
            writing.join().unwrap();
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().unwrap();
    }
}

/// Two workers: both serve, or, gathered, one that is far from busy. A request for several servers
/// keeps its order: a later request for one server, which needs no task, does not overtake it.
#[test]
fn requests_of_a_client_reach_a_server_in_order() {
    let servers: Vec<_> = (0..2).map(|_| Server::holdall(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let route = r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A",
        "operation_policies": {"set": {"type": "AllSyncRoute", "children": ["PoolRoute|B", "PoolRoute|A"]}}}"#;
    let proxy = Proxy::over(&addresses, route, &["--enable-flush-cmd"]);
    let mut stream = proxy.connect();
    // The first flush waits until the servers' dialects are known.
    exact(&mut stream, b"flush_all\r\n", b"OK\r\n");
    for turn in 0..20 {
        let requests = format!(
            "set k 0 0 2\r\n{turn:02}\r\nget k\r\nflush_all noreply\r\nadd k 0 0 1\r\nx\r\nget k\r\n"
        );
        let replies = format!(
            "STORED\r\nVALUE k 0 2\r\n{turn:02}\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"
        );
        exact(&mut stream, requests.as_bytes(), replies.as_bytes());
    }
}

/// `md` with `U` goes to every server, as `flush_prefix` does, if the operator allows flushes.
#[test]
fn a_prefix_is_flushed_on_every_server() {
    let servers: Vec<_> = (0..2).map(|_| Server::holdall(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let keys: Vec<_> = (0..20).map(|number| format!("app:{number}")).collect();
    let sets: String = keys.iter().map(|key| format!("set {key} 0 0 1\r\nx\r\n")).collect();
    let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    let hits: String = keys.iter().map(|key| format!("VALUE {key} 0 1\r\nx\r\nEND\r\n")).collect();
    let flushes = [
        ("flush_prefix app:\r\n", "OK\r\n"),
        ("md app: U\r\n", "HD\r\n"),
        ("md app: k O7 U\r\n", "HD kapp: O7\r\n"),
        ("md YXBwOg== U b\r\n", "HD\r\n"),
        ("md app: U q\r\nmn\r\n", "MN\r\n"),
    ];
    let disabled = "SERVER_ERROR Command disabled\r\n";
    let changed = ["C5", "E5", "H5", "I", "T5", "x"].map(|flag| format!("md app: U {flag}\r\n"));
    for flags in [&[][..], &["--enable-flush-cmd"]] {
        let proxy = Proxy::over(&addresses, r#""PoolRoute|all""#, flags);
        let mut stream = proxy.connect();
        exact(&mut stream, sets.as_bytes(), "STORED\r\n".repeat(20).as_bytes());
        for flush in &changed {
            exact(&mut stream, flush.as_bytes(), b"CLIENT_ERROR invalid flag\r\n");
        }
        exact(&mut stream, gets.as_bytes(), hits.as_bytes());
        for (flush, done) in flushes {
            exact(&mut stream, sets.as_bytes(), "STORED\r\n".repeat(20).as_bytes());
            if flags.is_empty() {
                let tail = if flush.ends_with("mn\r\n") { "MN\r\n" } else { "" };
                exact(&mut stream, flush.as_bytes(), format!("{disabled}{tail}").as_bytes());
                exact(&mut stream, gets.as_bytes(), hits.as_bytes());
            } else {
                exact(&mut stream, flush.as_bytes(), done.as_bytes());
                exact(&mut stream, gets.as_bytes(), "END\r\n".repeat(20).as_bytes());
            }
        }
    }
    let without = Proxy::over(&[], r#""NullRoute""#, &["--enable-flush-cmd"]);
    let mut stream = without.connect();
    exact(&mut stream, b"md app: U\r\n", b"HD\r\n");
    exact(&mut stream, b"md app: U k O7\r\n", b"HD kapp: O7\r\n");
    exact(&mut stream, b"md YXBwOg== U b O7 k\r\n", b"HD O7 kYXBwOg== b\r\n");
    exact(&mut stream, b"md app: U k O7 q\r\nmn\r\n", b"MN\r\n");
    exact(&mut stream, b"flush_prefix /a/b/app:\r\n", b"OK\r\n");
    exact(&mut stream, b"md /a/b/app: U k O7\r\n", b"HD k/a/b/app: O7\r\n");
    for flush in ["flush_prefix /a/b/", "md /a/b/ U k O7", "md /*/*/ U q"] {
        let refused = "CLIENT_ERROR a flush goes to all clusters and needs a prefix of keys\r\n";
        exact(&mut stream, format!("{flush}\r\n").as_bytes(), refused.as_bytes());
    }
}

#[test]
fn many_clients_share_one_connection_per_worker() {
    for (below, workers) in [("0", 2), ("65", 1)] {
        let server = Server::memcached(&[]);
        let before = server.stat("total_connections");
        let arguments = ["--num-proxies", "2", "--gather-below", below];
        let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &arguments);
        let mut clients: Vec<_> = (0..200).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            client.write_all(b"set k 0 0 1\r\nx\r\nget k\r\n").unwrap();
        }
        for client in &mut clients {
            exact(client, b"", b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
        }
        // In addition to the workers', the connection of this request.
        assert_eq!(server.stat("total_connections") - before, workers + 1, "below {below}");
    }
}

#[test]
fn pending_requests_are_answered_after_end_of_input_and_quit() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let mut stream = proxy.connect();
    stream.write_all(b"set k 0 0 1\r\nx\r\nget k\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(stream), "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let mut stream = proxy.connect();
    stream.write_all(b"get k\r\nquit\r\nget k\r\n").unwrap();
    assert_eq!(rest(stream), "VALUE k 0 1\r\nx\r\nEND\r\n");
    // A value that does not end at its length: the start of the next request is unknown.
    let mut stream = proxy.connect();
    stream.write_all(b"get k\r\nset k 0 0 1\r\nxyz\r\nget k\r\n").unwrap();
    assert_eq!(rest(stream), "VALUE k 0 1\r\nx\r\nEND\r\nCLIENT_ERROR bad data chunk\r\n");
}

#[test]
fn a_dead_server_affects_only_its_keys() {
    let server = Server::memcached(&[]);
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    let route = r#"{ "type": "PrefixSelectorRoute", "policies": { "dead": "PoolRoute|B" }, "wildcard": "PoolRoute|A" }"#;
    let proxy = Proxy::over(&[server.addr(), dead], route, &[]);
    let mut stream = proxy.connect();
    exact(&mut stream, b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    exact(&mut stream, b"get dead\r\n", b"SERVER_ERROR Connection error\r\n");
    // The error replaces END, after the hits.
    exact(&mut stream, b"get k dead k\r\nget k\r\n", b"VALUE k 0 1\r\nx\r\nVALUE k 0 1\r\nx\r\nSERVER_ERROR Server unavailable. Reason: tko\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let mut stats = proxy.connect();
    stats.write_all(b"stats suspect_servers\r\nquit\r\n").unwrap();
    let lines = rest(stats);
    assert!(lines.starts_with(&format!("STAT {dead} ")), "{lines}");
    assert!(
        lines.contains("status:tko num_failures:1") && !lines.contains(&server.addr().to_string()),
        "{lines}"
    );
}

#[test]
fn a_prefix_is_stripped_for_servers_and_kept_in_replies() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let mut stream = proxy.connect();
    exact(&mut stream, b"set /././k 0 0 1\r\nx\r\n", b"STORED\r\n");
    exact(
        &mut stream,
        b"get k /././k\r\n",
        b"VALUE k 0 1\r\nx\r\nVALUE /././k 0 1\r\nx\r\nEND\r\n",
    );
    exact(&mut stream, b"mg /././k v k\r\n", b"VA 1 k/././k\r\nx\r\n");
    exact(&mut stream, b"get /no/where/k\r\n", b"SERVER_ERROR RootRoute: No rh found\r\n");
}

/// The line ends of a decoded key would be read as the next replies.
#[test]
fn a_base64_key_is_returned_in_base64() {
    // "/x" and "mod:x", each followed by "\r\nVA 5\r\nWRONG\r\nHD"; and "/mc".
    let keys = ["L3gNClZBIDUNCldST05HDQpIRA==", "bW9kOngNClZBIDUNCldST05HDQpIRA==", "L21j"];
    let route = r#"{"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A", "policies":
        {"mod:": {"type": "ModifyKeyRoute", "ensure_key_prefix": "P.", "target": "PoolRoute|A"}}}"#;
    for server in [Server::holdall(&[]), Server::memcached(&[])] {
        let proxy = Proxy::over(&[server.addr()], route, &[]);
        let mut stream = proxy.connect();
        for key in keys {
            let requests = format!(
                "ms {key} 2 b k O1\r\nhi\r\nmg {key} b k v\r\nmd {key} k b\r\nmd {key} b k\r\nmn\r\n"
            );
            let (told, hit) = (format!("k{key} b"), "\r\nhi\r\n");
            let replies =
                format!("HD {told} O1\r\nVA 2 {told}{hit}HD {told}\r\nNF {told}\r\nMN\r\n");
            exact(&mut stream, requests.as_bytes(), replies.as_bytes());
        }
    }
}

/// memcached (1.6.18) writes the key of an item raw that was not created with base64.
#[test]
fn a_key_that_the_server_writes_raw_is_returned_in_base64() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let mut direct = TcpStream::connect(server.addr()).unwrap();
    direct.write_all(&packet(SET, b"a b", &[0; 8], b"x", 0)).unwrap();
    assert_eq!(answer(&mut direct).1, 0);
    let mut stream = proxy.connect();
    exact(&mut stream, b"mg YSBi v k b s\r\n", b"VA 1 kYSBi b s1\r\nx\r\n");
    exact(&mut stream, b"mg YSBi b k t q\r\nmn\r\n", b"HD kYSBi b t-1\r\nMN\r\n");
    let refused = b"CLIENT_ERROR the server may write this key raw in the reply to me\r\n";
    exact(&mut stream, b"me YSBi b\r\n", refused);
    exact(&mut stream, b"md YSBi b k\r\nmg YSBi b k\r\n", b"HD kYSBi b\r\nEN kYSBi b\r\n");
}

#[test]
fn a_changed_file_is_loaded_and_an_invalid_one_refused() {
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let proxy = Proxy::over(&addresses, r#""PoolRoute|A""#, &["--num-proxies", "2"]);
    let mut stream = proxy.connect();
    exact(&mut stream, b"set k 0 0 1\r\na\r\n", b"STORED\r\n");
    let stat = |name: &str| {
        let mut stats = proxy.connect();
        stats.write_all(b"stats\r\nquit\r\n").unwrap();
        let lines = rest(stats);
        let line =
            lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).unwrap();
        line.parse::<u64>().unwrap()
    };
    for (round, broken) in ["{", "{}", r#"{"route": "PoolRoute|none"}"#].iter().enumerate() {
        replace_file(&proxy.config, broken);
        eventually("refused", || stat("config_failures") == round as u64 + 1);
        exact(&mut stream, b"get k\r\n", b"VALUE k 0 1\r\na\r\nEND\r\n");
    }
    replace_file(&proxy.config, &config(&addresses, r#""PoolRoute|B""#));
    eventually("taken", || stat("config_generation") == 2);
    exact(&mut stream, b"get k\r\n", b"END\r\n");
    exact(&mut stream, b"set k 0 0 1\r\nb\r\n", b"STORED\r\n");
    eventually("the old server is let go", || stat("num_servers") == 1);
}

#[test]
fn admin_requests_explain_where_keys_go() {
    let servers: Vec<_> = (0..2).map(|_| Server::memcached(&[])).collect();
    let addresses: Vec<_> = servers.iter().map(Server::addr).collect();
    let route = r#"{ "type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"] }"#;
    let proxy = Proxy::over(&addresses, route, &[]);
    let mut stream = proxy.connect();
    let answer = format!("{}\r\n{}", addresses[0], addresses[1]);
    let reply =
        format!("VALUE __mcrouter__.route(set,k) 0 {}\r\n{answer}\r\nEND\r\n", answer.len());
    exact(&mut stream, b"get __mcrouter__.route(set,k)\r\n", reply.as_bytes());
    stream
        .write_all(b"get __mcrouter__.route_handles(get,k)\r\nget __mcrouter__.nothing\r\nquit\r\n")
        .unwrap();
    let lines = rest(stream);
    let tree = format!("root\r\n all-sync\r\n  hash|A|Ch3\r\n   host|{}\r\n", addresses[0]);
    assert!(lines.contains(&tree), "{lines}");
    assert!(lines.ends_with("CLIENT_ERROR unknown admin request nothing\r\n"), "{lines}");
}

/// Reads one reply: opcode, status, cas unique, and the body.
fn answer(stream: &mut TcpStream) -> (u8, u16, u64, Vec<u8>) {
    let mut head = [0; 24];
    stream.read_exact(&mut head).unwrap();
    assert_eq!((head[0], &head[12..16]), (0x81, &b"opaq"[..]));
    let number = |range: std::ops::Range<usize>| {
        head[range].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let mut body = vec![0; usize::try_from(number(8..12)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head[1], u16::try_from(number(6..8)).unwrap(), number(16..24), body)
}

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const GETQ: u8 = 0x09;
const STAT: u8 = 0x10;
const GETKQ: u8 = 0x0d;
const NOOP: u8 = 0x0a;
const APPEND: u8 = 0x0e;
const SETQ: u8 = 0x11;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const GATQ: u8 = 0x1e;
const GATKQ: u8 = 0x24;

/// Flags and expiry time.
const STORED: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0];

#[test]
fn binary_requests_and_replies_are_translated() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let proxy = Proxy::over(&servers.each_ref().map(Server::addr), r#""PoolRoute|all""#, &[]);
    let mut stream = proxy.connect();
    // Keys that no line of text can carry, including one that would be a command.
    for key in [&b"plain"[..], b"with space", b"x\r\nflush_all\r\n", b"\x00\x7f"] {
        let mut ask = |packet: Vec<u8>| {
            stream.write_all(&packet).unwrap();
            answer(&mut stream)
        };
        let (_, status, set_cas, _) = ask(packet(SET, key, STORED, b"value", 0));
        assert_eq!(status, 0, "{key:?}");
        let got = ask(packet(GET, key, b"", b"", 0));
        assert_eq!(got, (GET, 0, set_cas, b"\0\0\0\x05value".to_vec()));
        assert_eq!(ask(packet(ADD, key, STORED, b"other", 0)).1, 2, "it is there");
        assert_eq!(ask(packet(SET, key, STORED, b"lost", set_cas + 1000)).1, 2, "another unique");
        let (_, status, newer, _) = ask(packet(SET, key, STORED, b"12", set_cas));
        assert!(status == 0 && newer != set_cas);
        let delta = [&5_u64.to_be_bytes()[..], &[0; 8], &[0; 4]].concat();
        assert_eq!(ask(packet(INCREMENT, key, &delta, b"", 0)).3, 17_u64.to_be_bytes());
        assert_eq!(ask(packet(APPEND, key, b"", b"x", 0)).1, 0);
        assert_eq!(ask(packet(INCREMENT, key, &delta, b"", 0)).1, 6, "not a number");
        assert_eq!(ask(packet(TOUCH, key, &[0, 0, 1, 0], b"", 0)).1, 0);
        assert_eq!(ask(packet(GAT, key, &[0, 0, 1, 0], b"", 0)).3, b"\0\0\0\x0517x");
        assert_eq!(ask(packet(DELETE, key, b"", b"", 1)).1, 2, "another unique");
        assert_eq!(ask(packet(DELETE, key, b"", b"", 0)).1, 0);
        assert_eq!(ask(packet(GET, key, b"", b"", 0)).1, 1);
        let born = [&5_u64.to_be_bytes()[..], &7_u64.to_be_bytes(), &[0; 4]].concat();
        assert_eq!(ask(packet(INCREMENT, key, &born, b"", 0)).3, 7_u64.to_be_bytes());
    }
    // A refusal by the proxy is a packet, too.
    let refused = packet(GET, b"__mcrouter__.nothing\r\nVA 5", b"", b"", 0);
    stream.write_all(&refused).unwrap();
    assert_eq!(answer(&mut stream).1, 4, "invalid arguments");
}

/// Text has memcached's answer. A packet without a name ends the statistics, so it would report
/// success.
#[test]
fn unknown_statistics_are_errors_in_text_and_packets() {
    let proxy = Proxy::start(r#"{"route": "NullRoute"}"#, &[]);
    let mut stream = proxy.connect();
    for group in ["reset", "detail on", "cachedump 1 1", "conns", "nonsense"] {
        let request = format!("stats {group}\r\n");
        exact(&mut stream, request.as_bytes(), b"ERROR\r\n");
    }
    let mut stream = proxy.connect();
    for (group, status) in [("reset", 1), ("conns", 1), ("nonsense", 1), ("items", 0)] {
        stream.write_all(&packet(STAT, group.as_bytes(), b"", b"", 0)).unwrap();
        let (_, got, ..) = answer(&mut stream);
        assert_eq!(got, status, "{group}");
    }
}

/// memcached accepts them in packets, but in text takes them for the past.
#[test]
fn binary_times_from_2038_on_are_in_the_future() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let minus_one = [0xff; 4];
    let times = [minus_one, [0x80, 0, 0, 0], [0x80, 0x1e, 0x84, 0x80], [0xff, 0xff, 0xff, 0xfe]];
    for address in [server.addr(), proxy.address] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for (time, key) in times.iter().flat_map(|time| [(time, "plain"), (time, "with space")]) {
            let key = key.as_bytes();
            let mut ask = |packet: Vec<u8>| {
                stream.write_all(&packet).unwrap();
                let (_, status, _, body) = answer(&mut stream);
                (status, body)
            };
            let hit = (0, b"\0\0\0\x05value".to_vec());
            let born = [&[0; 8][..], &7_u64.to_be_bytes(), time].concat();
            if *time != minus_one {
                let seven = (0, 7_u64.to_be_bytes().to_vec());
                ask(packet(DELETE, key, b"", b"", 0));
                assert_eq!(ask(packet(INCREMENT, key, &born, b"", 0)), seven, "{time:?}");
                assert_eq!(ask(packet(GET, key, b"", b"", 0)).1, b"\0\0\0\x007", "{time:?}");
            }
            let stored = [&[0, 0, 0, 5][..], time].concat();
            assert_eq!(ask(packet(SET, key, &stored, b"value", 0)).0, 0);
            assert_eq!(ask(packet(GET, key, b"", b"", 0)), hit, "{time:?}");
            assert_eq!(ask(packet(GAT, key, time, b"", 0)), hit, "{time:?}");
            assert_eq!(ask(packet(TOUCH, key, time, b"", 0)).0, 0);
            assert_eq!(ask(packet(GET, key, b"", b"", 0)), hit, "{time:?}");
        }
    }
}

/// An error among the hits of quiet gets makes some clients read the rest as later replies.
#[test]
fn quiet_binary_gets_that_fail_are_misses() {
    let server = Server::memcached(&[]);
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}, "B": {{"servers": ["127.0.0.1:1"]}}}},
            "route": {{"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A",
                       "policies": {{"dead": "PoolRoute|B"}}}}}}"#,
        server.addr()
    );
    let mut stream = Proxy::start(&config, &[]).connect();
    stream.write_all(&packet(SET, b"k", STORED, b"value", 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 0);
    let long = [b' '; 200];
    let gat: &[u8] = &[0, 0, 1, 0];
    let mut all = Vec::new();
    for (opcode, extras) in [(GETQ, &b""[..]), (GETKQ, b""), (GATQ, gat), (GATKQ, gat)] {
        for key in [&b"k"[..], b"dead", b"dead key", b"none", &long, b"__mcrouter__.x", b"k"] {
            all.extend(packet(opcode, key, extras, b"", 0));
        }
    }
    all.extend(packet(NOOP, b"", b"", b"", 0));
    stream.write_all(&all).unwrap();
    for opcode in [GETQ, GETQ, GETKQ, GETKQ, GATQ, GATQ, GATKQ, GATKQ] {
        let (got, status, _, body) = answer(&mut stream);
        assert_eq!((got, status), (opcode, 0), "{}", body.escape_ascii());
    }
    assert_eq!(answer(&mut stream).0, NOOP);
    // Other requests have their errors.
    for request in [packet(GET, b"dead", b"", b"", 0), packet(SETQ, b"dead", STORED, b"v", 0)] {
        stream.write_all(&request).unwrap();
        assert_eq!(answer(&mut stream).1, 0x86);
    }
}

#[test]
fn quiet_binary_requests_stay_silent_and_in_order() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let proxy = Proxy::over(&servers.each_ref().map(Server::addr), r#""PoolRoute|all""#, &[]);
    let mut stream = proxy.connect();
    let large = vec![b'v'; 300_000];
    let mut all = Vec::new();
    for number in 0..50 {
        let key = format!("k{number}");
        all.extend(packet(SETQ, key.as_bytes(), STORED, &large[..number * 100], 0));
    }
    all.extend(packet(SETQ, b"large", STORED, &large, 0));
    all.extend(packet(NOOP, b"", b"", b"", 0));
    for number in 0..100 {
        all.extend(packet(GETKQ, format!("k{number}").as_bytes(), b"", b"", 0));
    }
    all.extend(packet(GETKQ, b"large", b"", b"", 0));
    all.extend(packet(NOOP, b"", b"", b"", 0));
    let mut writer = stream.try_clone().unwrap();
    thread::spawn(move || writer.write_all(&all).unwrap());
    assert_eq!(answer(&mut stream).0, NOOP);
    for number in 0..50 {
        let (opcode, status, _, body) = answer(&mut stream);
        let want =
            [b"\0\0\0\x05", format!("k{number}").as_bytes(), &large[..number * 100]].concat();
        assert_eq!((opcode, status), (GETKQ, 0));
        assert!(body == want, "k{number}");
    }
    assert_eq!(answer(&mut stream).3.len(), 4 + 5 + large.len());
    assert_eq!(answer(&mut stream).0, NOOP);
    // A refusal repeats the packet's opaque, and the connection continues.
    stream.write_all(&packet(0x99, b"", b"", b"", 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 0x81);
    stream.write_all(&packet(0x08, b"", b"", b"", 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 0x24, "flush without --enable-flush-cmd");
    stream.write_all(b"get k\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0, "text on a binary connection ends it");
}

const ADDQ: u8 = 0x12;
const REPLACE: u8 = 0x03;
const DELETEQ: u8 = 0x14;
const FLUSH: u8 = 0x08;
const PREPEND: u8 = 0x0f;

/// Sends these packets and a no-op, none of which is answered except the last, and then a get.
#[track_caller]
fn after_quiet(stream: &mut TcpStream, packets: &[Vec<u8>]) -> (u16, Vec<u8>) {
    let last = [packet(NOOP, b"", b"", b"", 0), packet(GET, b"k", b"", b"", 0)].concat();
    stream.write_all(&[packets.concat(), last].concat()).unwrap();
    assert_eq!(answer(stream).0, NOOP);
    let (_, status, _, body) = answer(stream);
    (status, body)
}

#[test]
fn later_requests_do_not_overtake_a_store_in_several_steps() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let addresses = servers.each_ref().map(Server::addr);
    let tiers = r#"{"type": "L1L2SizeSplitRoute", "threshold": 500, "l1": "PoolRoute|A",
        "l2": "PoolRoute|B"}"#;
    let pieces =
        Proxy::over(&addresses, r#""PoolRoute|A""#, &["--big-value-split-threshold", "500"]);
    for proxy in [pieces, Proxy::over(&addresses, tiers, &[])] {
        let large = vec![b'v'; 2000];
        let set = packet(SETQ, b"k", STORED, &large, 0);
        let mut stream = proxy.connect();
        let delete = packet(DELETEQ, b"k", b"", b"", 0);
        let (status, _) = after_quiet(&mut stream, &[set.clone(), delete]);
        assert_eq!(status, 1, "it is deleted");
        let small = packet(SETQ, b"k", STORED, b"new", 0);
        let (status, body) = after_quiet(&mut stream, &[set, small]);
        assert_eq!((status, &body[4..]), (0, &b"new"[..]));
        let set = [&b"set k 0 0 2000\r\n"[..], &large, b"\r\n"].concat();
        let mut stream = proxy.connect();
        exact(
            &mut stream,
            &[&set[..], b"delete k\r\nget k\r\n", &set, b"set k 0 0 3\r\nnew\r\nget k\r\n"]
                .concat(),
            b"STORED\r\nDELETED\r\nEND\r\nSTORED\r\nSTORED\r\nVALUE k 0 3\r\nnew\r\nEND\r\n",
        );
        // The client is gone before the last step.
        let set = [&b"set k 0 0 2000 noreply\r\n"[..], &large, b"\r\n"].concat();
        stream.write_all(&[&set[..], b"delete k noreply\r\n"].concat()).unwrap();
        drop(stream);
        let mut stream = proxy.connect();
        eventually("the delete is executed", || {
            stream.write_all(b"mg k s\r\nmn\r\nget k\r\n").unwrap();
            let mut reply = [0; 4096];
            let len = stream.read(&mut reply).unwrap();
            reply[..len].ends_with(b"MN\r\nEND\r\n")
        });
    }
}

#[test]
fn a_binary_get_counts_as_get_for_the_choice_by_operation() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let route = r#"{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A",
        "operation_policies": {"get": "PoolRoute|B", "gat": "PoolRoute|B", "set": "PoolRoute|B"}}"#;
    let proxy = Proxy::over(&servers.each_ref().map(Server::addr), route, &[]);
    let mut stream = proxy.connect();
    for key in [&b"k"[..], b"with space"] {
        for request in [
            packet(SET, key, STORED, b"v", 0),
            packet(GET, key, b"", b"", 0),
            packet(GAT, key, &[0, 0, 1, 0], b"", 0),
        ] {
            stream.write_all(&request).unwrap();
            assert_eq!(answer(&mut stream).1, 0, "{}", request.escape_ascii());
        }
    }
}

#[test]
fn a_conditional_store_refused_as_too_large_leaves_the_old_value() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let mut stream = proxy.connect();
    let set = packet(SETQ, b"k", STORED, b"v", 0);
    let (huge, fits) = (vec![b'h'; 2 << 20], vec![b'f'; 600 << 10]);
    for (opcode, extras, refused) in [
        (ADD, STORED, 2),
        (ADDQ, STORED, 2),
        (REPLACE, STORED, 0),
        (APPEND, b"", 0),
        (PREPEND, b"", 0),
    ] {
        assert_eq!(after_quiet(&mut stream, std::slice::from_ref(&set)).0, 0);
        stream.write_all(&packet(opcode, b"k", extras, &huge, 0)).unwrap();
        assert_eq!(answer(&mut stream).1, 3, "{opcode}: too large");
        assert_eq!(after_quiet(&mut stream, &[]), (0, b"\0\0\0\x05v".to_vec()), "{opcode}");
        stream.write_all(&packet(opcode, b"k", extras, &fits, 0)).unwrap();
        assert_eq!(answer(&mut stream).1, refused, "{opcode}: a smaller one");
    }
    stream.write_all(&packet(ADD, b"other", STORED, &fits, 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 0);
    stream.write_all(&packet(REPLACE, b"none", STORED, &fits, 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 1);
    stream.write_all(&packet(APPEND, b"none", b"", &fits, 0)).unwrap();
    assert_eq!(answer(&mut stream).1, 5);
    stream.write_all(&packet(GET, b"other", b"", b"", 0)).unwrap();
    assert_eq!(answer(&mut stream).3[..5], *b"\0\0\0\x05f");
}

/// The head announces more than the proxy passes on.
#[test]
fn a_set_that_the_proxy_refuses_as_too_large_deletes_the_old_value() {
    const BYTES: u32 = 70 << 20;
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &[]);
    let too_large = b"SERVER_ERROR object too large for cache\r\n";
    let gone = b"EN\r\n";
    for (head, kept) in [("set k 0 0 ", ""), ("ms k ", ""), ("add k 0 0 ", "kept"), ("ms k ", "ME")]
    {
        let mut stream = proxy.connect();
        exact(&mut stream, b"set k 0 0 4\r\nkept\r\n", b"STORED\r\n");
        let end = if kept == "ME" { " ME" } else { "" };
        exact(&mut stream, format!("{head}{BYTES}{end}\r\n").as_bytes(), too_large);
        let reply: &[u8] = if kept.is_empty() { gone } else { b"HD\r\n" };
        exact(&mut proxy.connect(), b"mg k\r\n", reply);
    }
    for key in [&b"k"[..], b"with space"] {
        let mut stream = proxy.connect();
        stream.write_all(&packet(SET, key, STORED, b"v", 0)).unwrap();
        assert_eq!(answer(&mut stream).1, 0);
        let mut head = packet(SET, key, STORED, b"", 0);
        head[8..12].copy_from_slice(&BYTES.to_be_bytes());
        stream.write_all(&head).unwrap();
        assert_eq!(answer(&mut stream).1, 3);
        let mut stream = proxy.connect();
        stream.write_all(&packet(GET, key, b"", b"", 0)).unwrap();
        assert_eq!(answer(&mut stream).1, 1, "{key:?}");
    }
}

#[test]
fn a_binary_flush_at_a_time_that_text_takes_for_the_past_flushes_nothing() {
    let server = Server::memcached(&[]);
    let proxy = Proxy::over(&[server.addr()], r#""PoolRoute|A""#, &["--enable-flush-cmd"]);
    let mut stream = proxy.connect();
    let set = packet(SETQ, b"k", STORED, b"v", 0);
    assert_eq!(after_quiet(&mut stream, &[set]).0, 0);
    for (exptime, found) in [(&[255; 4][..], 0), (b"", 1)] {
        stream.write_all(&packet(FLUSH, b"", exptime, b"", 0)).unwrap();
        assert_eq!(answer(&mut stream).1, 0);
        assert_eq!(after_quiet(&mut stream, &[]).0, found, "{exptime:?}");
    }
}
