//! The proxy memory that clients hold (decision 72), with real servers: clients that read nothing,
//! that announce much and send little, and that read large values at full speed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{ask, proxy, stat};
use testkit::process::peak_rss_bytes;
use testkit::{Server, eventually};

const MB: usize = 1 << 20;

/// A server of large values and a proxy in front of it.
fn proxied(more: &[&str]) -> (Server, SocketAddr) {
    let server = Server::memcached(&["-m", "1024", "-I", "100m"]);
    let config =
        format!(r#"{{"pools":{{"A":{{"servers":["{}"]}}}},"route":"PoolRoute|A"}}"#, server.addr());
    let words = ["--config-str", &config];
    let address = proxy(&words.iter().chain(more).copied().collect::<Vec<_>>()).unwrap();
    (server, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Stores `len` bytes under a key of the server.
fn store(server: &Server, key: &str, len: usize) {
    let mut stream = connect(server.addr());
    stream.write_all(format!("set {key} 0 0 {len}\r\n").as_bytes()).unwrap();
    stream.write_all(&vec![b'v'; len]).unwrap();
    stream.write_all(b"\r\n").unwrap();
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"STORED\r\n");
}

/// A store that comes in two segments.
fn set_in_two(address: SocketAddr, len: usize) -> String {
    let mut stream = connect(address);
    stream.write_all(format!("set mine 0 0 {len}\r\n").as_bytes()).unwrap();
    // The head is read separately first.
    std::thread::sleep(Duration::from_millis(5));
    stream.write_all(&vec![b'y'; len]).unwrap();
    stream.write_all(b"\r\n").unwrap();
    let mut reply = [0; 256];
    let len = stream.read(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[..len]).into_owned()
}

/// Returns true if the proxy has closed the connection, whose replies are not read: another byte is
/// refused.
fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.write_all(b"x") {
        Ok(()) => false,
        Err(error) => matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
    }
}

/// The peak memory of this process, including the proxy, in bytes.
fn peak() -> usize {
    usize::try_from(peak_rss_bytes(std::process::id())).unwrap()
}

#[test]
fn stalled_readers_are_closed_when_the_account_is_full() {
    let (server, address) = proxied(&["--client-memory-max", "67108864", "--num-proxies", "2"]);
    store(&server, "big", 1_000_000);
    store(&server, "small", 5);
    let before = peak();
    let mut hogs = Vec::new();
    for _ in 0..30 {
        let mut hog = connect(address);
        hog.write_all("get big\r\n".repeat(34).as_bytes()).unwrap();
        hogs.push(hog);
        assert!(ask(address, "get small\r\n").starts_with("VALUE small 0 5\r\n"));
    }
    // The first hold 32 MB each.
    eventually("the first go", || hogs.iter().any(is_closed));
    assert!(ask(address, "get small\r\n").starts_with("VALUE small 0 5\r\n"));
    // Without a limit it is 960 MB. Buffers of servers and of other tests of this file are in it.
    let grown = peak() - before;
    assert!(grown < 500 * MB, "{} MB", grown / MB);
    // While much is held, the next client requests one value of unknown size, not 34.
    let asked = server.stat("cmd_get");
    assert!(asked < 400, "{asked} values were asked for");
}

#[test]
fn a_fast_reader_gets_large_values() {
    let (server, address) = proxied(&[]);
    for len in [20 * MB, 60 * MB] {
        store(&server, "big", len);
        let mut stream = connect(address);
        stream.write_all(b"get big\r\nversion\r\n").unwrap();
        let head = format!("VALUE big 0 {len}\r\n");
        let mut got = vec![0; head.len() + len + 7];
        stream.read_exact(&mut got).unwrap();
        assert!(got.starts_with(head.as_bytes()) && got.ends_with(b"v\r\nEND\r\n"));
        assert!(got[head.len()..head.len() + len].iter().all(|byte| *byte == b'v'));
        let mut next = [0; 8];
        stream.read_exact(&mut next).unwrap();
        assert_eq!(&next, b"VERSION ");
    }
}

/// All replies wait, 60 MB in front of those to the commands.
#[test]
fn replies_to_commands_follow_large_values_that_wait() {
    let (server, address) = proxied(&[]);
    store(&server, "big", 1_000_000);
    store(&server, "small", 5);
    let mut stream = connect(address);
    // A client with small replies may send all at once.
    stream.write_all("get small\r\n".repeat(100).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 2900]).unwrap();
    let gets = format!("get{}\r\n", " big".repeat(60));
    let commands = "set new 0 0 3\r\nabc\r\ndelete small\r\nms quiet 1 q\r\n1\r\nmn\r\n";
    stream.write_all((gets + commands).as_bytes()).unwrap();
    let is_stored = || ask(server.addr(), "get quiet\r\n").starts_with("VALUE");
    eventually("all are executed", is_stored);
    let (mut replies, mut part) = (Vec::new(), vec![0; MB]);
    while !replies.ends_with(b"MN\r\n") {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "the proxy closes the connection");
        replies.extend_from_slice(&part[..len]);
    }
    let end = String::from_utf8_lossy(&replies[replies.len() - 100..]).into_owned();
    assert!(end.ends_with("\r\nSTORED\r\nDELETED\r\nMN\r\n"), "{end}");
}

/// A server of the value `big` that waits before each of its values until the client has read the
/// previous one.
fn paced_server(len: usize, allowed: &'static AtomicUsize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let sent: &AtomicUsize = Box::leak(Box::default());
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut output = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    for _ in line.split(' ').filter(|word| *word == "big") {
                        let number = sent.fetch_add(1, Ordering::SeqCst);
                        eventually("the client reads", || allowed.load(Ordering::SeqCst) > number);
                        write!(output, "VALUE big 0 {len}\r\n").unwrap();
                        output.write_all(&vec![b'v'; len]).unwrap();
                        output.write_all(b"\r\n").unwrap();
                    }
                    output.write_all(b"END\r\n").unwrap();
                }
            });
        }
    });
    address
}

/// The limit on waiting replies does not count those that have left.
#[test]
fn a_reading_client_gets_any_number_of_values() {
    const LEN: usize = 1_000_000;
    const VALUES: usize = 80;
    let allowed: &AtomicUsize = Box::leak(Box::default());
    let server = paced_server(LEN, allowed);
    let config = format!(r#"{{"pools":{{"A":{{"servers":["{server}"]}}}},"route":"PoolRoute|A"}}"#);
    let address = proxy(&["--config-str", &config]).unwrap();
    let mut stream = connect(address);
    stream.write_all(format!("get{}\r\n", " big".repeat(VALUES)).as_bytes()).unwrap();
    let head = format!("VALUE big 0 {LEN}\r\n");
    let mut got = vec![0; head.len() + LEN + 2];
    for number in 0..VALUES {
        allowed.store(number + 1, Ordering::SeqCst);
        stream.read_exact(&mut got).unwrap();
        assert!(got.starts_with(head.as_bytes()) && got.ends_with(b"v\r\n"), "{number}");
    }
    let mut end = [0; 5];
    stream.read_exact(&mut end).unwrap();
    assert_eq!(&end, b"END\r\n");
    let held = stat(address, "client_memory");
    assert!(held < MB as u64, "{held} bytes are held");
}

#[test]
fn large_unsent_uploads_deny_no_client_a_store() {
    let (_server, address) = proxied(&[]);
    let announce = |number| {
        let mut stream = connect(address);
        let len = 64 * MB - 200;
        write!(stream, "set a{number} 0 0 {len}\r\n{}", "x".repeat(100)).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..10).map(announce).collect();
    for _ in 0..20 {
        assert_eq!(set_in_two(address, 20_000), "STORED\r\n");
    }
    drop(silent);
}

#[test]
fn the_longest_upload_is_closed_when_the_account_is_full() {
    let (_server, address) = proxied(&["--client-memory-max", "33554432"]);
    let upload = |number| {
        let mut stream = connect(address);
        write!(stream, "set a{number} 0 0 {}\r\n", 60 * MB).unwrap();
        // The proxy may close the connection meanwhile.
        let _ = stream.write_all(&vec![b'x'; 20 * MB]);
        stream
    };
    let uploads: Vec<TcpStream> = (0..4).map(upload).collect();
    for _ in 0..20 {
        assert_eq!(set_in_two(address, 20_000), "STORED\r\n");
    }
    eventually("the first goes", || is_closed(&uploads[0]));
}

/// No client holds much, but all together hold four times the limit.
#[test]
fn small_holders_are_closed_when_they_fill_the_account() {
    const CLIENTS: usize = 400;
    let (server, address) = proxied(&["--client-memory-max", "2097152", "--num-proxies", "2"]);
    store(&server, "small", 5);
    let announce = |number| {
        let mut stream = connect(address);
        // More than one read holds, so it waits outside of the loop's buffers.
        write!(stream, "set a{number} 0 0 100000\r\n{}", "x".repeat(12_000)).unwrap();
        stream
    };
    let holders: Vec<TcpStream> = (0..CLIENTS).map(announce).collect();
    // Clients that hold little are not closed because of others.
    let idle: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(b"get small\r\n").unwrap();
            let mut reply = [0; 29];
            stream.read_exact(&mut reply).unwrap();
            stream
        })
        .collect();
    eventually("most go", || {
        holders.iter().filter(|holder| is_closed(holder)).count() > CLIENTS / 2
    });
    for stream in &idle {
        assert_eq!(ask_on(stream, "get small\r\n"), "VALUE small 0 5\r\nvvvvv\r\nEND\r\n");
    }
    let held = stat(address, "client_memory");
    assert!(held <= 2 * MB as u64, "{held} bytes are held");
}

/// A kilobyte on the wire becomes a megabyte of requests, and more of replies.
#[test]
fn compressed_blocks_count_by_their_decompressed_size() {
    const LIMIT: usize = 32 * MB;
    let limit = ["--client-memory-max", &LIMIT.to_string(), "--num-proxies", "1"];
    let (server, address) = proxied(&limit);
    // The latest block may exceed it.
    let is_bounded = || stat(address, "client_memory") <= (LIMIT + MB) as u64;
    store(&server, "large", 10_000);
    store(&server, "small", 5);
    let requests = b"get large\r\n".repeat(MB / 11);
    let packed = zstd::bulk::compress(&requests, 1).unwrap();
    let block = [format!("zstd {}\r\n", packed.len()).as_bytes(), &packed, b"\r\n"].concat();
    assert!(block.len() < 2000, "{} bytes", block.len());
    let mut hogs = Vec::new();
    for _ in 0..100 {
        let mut hog = connect(address);
        hog.write_all(&block).unwrap();
        hogs.push(hog);
        assert!(ask(address, "get small\r\n").starts_with("VALUE small 0 5\r\n"));
        assert!(is_bounded());
    }
    // Each holds at least a megabyte.
    eventually("most go", || hogs.iter().filter(|hog| is_closed(hog)).count() > 60);
    assert!(is_bounded() && stat(address, "client_memory") > MB as u64);
}

/// The reply to a get of `small`.
fn ask_on(mut stream: &TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; 29];
    stream.read_exact(&mut reply).unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

/// Stores without a reply continue to arrive while their server is stopped.
#[test]
fn stores_for_a_stalled_server_are_bounded() {
    let limit = ["--client-memory-max", "33554432", "--num-proxies", "1"];
    let (server, address) = proxied(&limit);
    assert_eq!(ask(address, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    server.signal(rustix::process::Signal::STOP);
    let before = peak();
    let senders: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = connect(address);
                stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                let store = [&b"set b 0 0 1000000 noreply\r\n"[..], &[b'x'; 1_000_000], b"\r\n"];
                let store = store.concat();
                // The proxy stops reading, or closes.
                (0..300).take_while(|_| stream.write_all(&store).is_ok()).count()
            })
        })
        .collect();
    let sent: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    let grown = peak() - before;
    server.signal(rustix::process::Signal::CONT);
    assert!(sent < 300, "{sent} MB were taken for a server that takes nothing");
    assert!(grown < 200 * MB, "{} MB", grown / MB);
    eventually("it serves", || ask(address, "get a\r\n") == "VALUE a 0 1\r\nx\r\nEND\r\n");
}
