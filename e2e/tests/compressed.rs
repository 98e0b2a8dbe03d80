//! Requests in zstd blocks at the proxy: their replies are the same as without blocks, and a
//! malformed block ends the connection.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::time::Duration;

use e2e::folder::Folder;
use e2e::mutate;
use testkit::rng::seed_from_env;
use testkit::wire::End;
use testkit::{Rng, Router, Server, Wire};

const PATIENCE: Duration = Duration::from_secs(30);

fn proxy() -> (Server, Router) {
    let server = Server::holdall(&[]);
    let proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &[]);
    (server, proxy)
}

/// The requests as one block.
fn block(requests: &[u8]) -> Vec<u8> {
    framed(&zstd::bulk::compress(requests, 1).unwrap())
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [format!("zstd {}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Requests of all kinds for keys with this prefix.
fn requests(prefix: &str) -> Vec<u8> {
    let large = "x".repeat(40_000);
    let keys: String = (0..300).map(|key| format!(" {prefix}{key}")).collect();
    format!(
        "set {prefix}1 5 0 2\r\nab\r\nset {prefix}2 0 0 40000\r\n{large}\r\nget{keys}\r\n\
         mg {prefix}1 v f\r\nmd {prefix}1 q Pexecuted\r\nmg {prefix}1 v\r\nbad\r\n\
         set {prefix}3 0 0 x\r\nset {prefix}4 0 0 1 noreply\r\nz\r\nincr {prefix}4 1\r\n\
         delete {prefix}2\r\ndelete {prefix}4\r\nversion\r\nmn\r\n"
    )
    .into_bytes()
}

fn answers(wire: &mut Wire, request: &[u8]) -> String {
    wire.send(request);
    String::from_utf8(wire.read_until(b"MN\r\n")).unwrap()
}

#[test]
fn requests_in_a_block_get_the_same_replies() {
    let (_server, proxy) = proxy();
    let mut wire = proxy.connect();
    let plain = answers(&mut wire, &requests("k"));
    assert_eq!(plain.matches("VALUE ").count(), 2, "{plain}");
    wire.expect(b"mn zstd\r\n", b"MN zstd\r\n");
    let packed = block(&requests("k"));
    assert_eq!(answers(&mut wire, &packed), plain);
    // Blocks with plain requests between them, in one write.
    let mixed = [&packed[..], b"mn\r\n", &packed, &block(b""), &requests("k")].concat();
    let want = format!("{plain}MN\r\n{plain}{plain}");
    wire.send(&mixed);
    assert_eq!(String::from_utf8(wire.read_exact(want.len())).unwrap(), want);
    // One piece at a time.
    let mut rng = Rng::new(1);
    for piece in packed.chunks(packed.len().div_ceil(1 + rng.below(20))) {
        wire.send(piece);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(String::from_utf8(wire.read_until(b"MN\r\n")).unwrap(), plain);
}

/// Many more requests than a connection may have in flight, with more reply bytes than a socket
/// buffers.
#[test]
fn a_large_block_is_answered_to_a_late_reader() {
    let (_server, proxy) = proxy();
    let mut wire = proxy.connect();
    wire.expect(b"set k 0 0 100\r\n", b"");
    wire.expect(&[&[b'x'; 100][..], b"\r\n"].concat(), b"STORED\r\n");
    let count = (1 << 20) / b"mg k v\r\n".len();
    let packed = block(&b"mg k v\r\n".repeat(count));
    assert!(packed.len() < 1000, "{} bytes", packed.len());
    wire.send(&packed);
    wire.send(b"mn\r\n");
    std::thread::sleep(Duration::from_millis(500));
    let answer = [b"VA 100\r\n", &[b'x'; 100][..], b"\r\n"].concat();
    let got = wire.read_exact(count * answer.len());
    assert!(got.chunks(answer.len()).all(|one| one == answer));
    wire.expect(b"", b"MN\r\n");
}

#[test]
fn a_malformed_block_closes_the_connection() {
    let (_server, proxy) = proxy();
    let whole = zstd::bulk::compress(&requests("k"), 1).unwrap();
    let zeros = zstd::bulk::compress(&vec![b'\n'; (1 << 20) + 1], 1).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 0xff;
    let mut lying = zstd::bulk::compress(&b"mn\r\n".repeat(100), 1).unwrap();
    // The length before compression.
    lying[5] ^= 1;
    let unended = [b"zstd 4\r\nabcd", &b"mn\r\n"[..]].concat();
    let too_long =
        "CLIENT_ERROR a block of zstd holds 1048576 bytes at the most, compressed and not";
    let not_zstd = "CLIENT_ERROR the block is not zstd";
    let cut = "CLIENT_ERROR a block of zstd holds whole requests, and no other block";
    let cases = [
        (framed(b"mn\r\n"), not_zstd),
        (framed(&whole[..whole.len() - 1]), not_zstd),
        (framed(&damaged), not_zstd),
        (framed(&lying), not_zstd),
        (framed(b""), not_zstd),
        (framed(&zeros), too_long),
        (b"zstd 1048577\r\n".to_vec(), too_long),
        (unended, "CLIENT_ERROR bad data chunk"),
        (block(b"mg k"), cut),
        (block(b"get k k2"), cut),
        (block(b"set k 0 0 3\r\nab"), cut),
        (block(format!("set k 0 0 40000\r\n{}", "x".repeat(30_000)).as_bytes()), cut),
        (block(b"set k 0 0 99999999\r\nab\r\n"), cut),
        (block(&block(b"mn\r\n")), cut),
    ];
    for (request, want) in cases {
        let mut wire = proxy.connect();
        wire.send(&[&request[..], b"mn\r\n"].concat());
        let (bytes, end) = wire.read_to_end(PATIENCE);
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let last = said.lines().last().unwrap_or_default();
        assert!(last == want && end != End::TimedOut, "{}: {said}", request.escape_ascii());
    }
    proxy.connect().expect(b"mn\r\n", b"MN\r\n");
}

/// Streams of requests with mistakes, in intact and in damaged blocks.
#[test]
fn mutated_blocks_do_not_affect_other_clients() {
    let (mut server, proxy) = proxy();
    let mut bystander = proxy.connect();
    let seed = seed_from_env();
    for turn in 0..1000 {
        let mut rng = Rng::new(seed.wrapping_add(turn));
        let mut bytes = block(&mutate::stream(&mut rng));
        if rng.one_in(3) {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        let mut wire = proxy.connect();
        wire.send_for(&bytes, Duration::from_millis(500));
        wire.finish_sending();
        if turn % 10 == 0 {
            wire.read_for(Duration::from_millis(5));
            let own = b"set mine 0 0 2\r\nok\r\nget mine\r\n";
            bystander.expect(own, b"STORED\r\nVALUE mine 0 2\r\nok\r\nEND\r\n");
        }
    }
    server.assert_alive(&format!("seed {seed}"));
}

/// Servers, of holdall or others, accept no blocks; their reply to `mn zstd` shows it.
#[test]
fn servers_do_not_accept_blocks() {
    let server = Server::holdall(&[]);
    server.connect().expect(b"mn zstd\r\n", b"MN\r\n");
}

#[test]
fn rights_apply_to_requests_in_blocks() {
    let server = Server::holdall(&[]);
    let folder = Folder::new("compressed");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let users = write("users", "app:secret\n");
    let rights = format!("rights={}", write("rights", "app readwrite app:\n"));
    let args = ["-Y", &users, "-o", &rights];
    let proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &args);
    let mut wire = proxy.connect();
    let packed = block(b"set app:k 0 0 1\r\nx\r\nset other:k 0 0 1\r\nx\r\nget app:k other:k\r\n");
    wire.send(&packed);
    let line = wire.line();
    assert!(line.starts_with("CLIENT_ERROR unauthenticated"), "{line}");
    let mut wire = proxy.connect();
    wire.expect(b"set login 0 0 10\r\napp secret\r\n", b"STORED\r\n");
    let denied = "CLIENT_ERROR permission denied\r\n";
    let want = format!("STORED\r\n{denied}VALUE app:k 0 1\r\nx\r\n{denied}");
    wire.expect(&packed, want.as_bytes());
}
