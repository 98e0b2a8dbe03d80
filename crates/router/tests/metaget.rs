//! mcrouter's `metaget` from clients: no open server knows it, so the proxy sends `me`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use common::proxy;
use testkit::Server;

/// The answer up to its line `END`.
fn lines(address: SocketAddr, request: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while !text.ends_with(b"END\r\n") {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "the proxy hangs up after {}", text.escape_ascii());
        text.extend_from_slice(&part[..len]);
    }
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// Seconds since 1970 at which the item of a line ends.
fn exptime(line: &str, key: &str) -> u64 {
    let rest = line.strip_prefix(&format!("META {key} age: unknown; exptime: ")).unwrap();
    let exptime = rest.strip_suffix("; from: unknown; is_transient: 0").unwrap();
    exptime.parse().unwrap()
}

#[test]
fn metaget_replies_match_mcrouter() {
    for server in [Server::memcached(&[]), Server::holdall(&[])] {
        let text = format!(
            r#"{{"pools": {{"A": {{"servers": ["{}"]}}}},
                "routes": [{{"aliases": ["/./.", "/a/b/"], "route": "PoolRoute|A"}}]}}"#,
            server.addr()
        );
        let address = proxy(&["--config-str", &text]).unwrap();
        let mut direct = server.connect();
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        direct.expect(b"set k 0 100 1\r\nv\r\n", b"STORED\r\n");
        direct.expect(b"set ever 0 0 1\r\nv\r\n", b"STORED\r\n");
        let got = lines(address, "metaget k none ever /a/b/k\r\n");
        assert_eq!(got.len(), 4, "{got:?}");
        for (line, key) in [(&got[0], "k"), (&got[2], "/a/b/k")] {
            // Both sides count seconds independently.
            assert!(exptime(line, key).abs_diff(before + 100) < 60, "{line}");
        }
        assert_eq!((exptime(&got[1], "ever"), got[3].as_str()), (0, "END"));
        assert_eq!(lines(address, "metaget none\r\n"), ["END"]);
        let got = lines(address, "metaget k\r\n");
        assert_eq!((got.len(), got[1].as_str()), (2, "END"), "{got:?}");
    }
}

/// For routes that choose by command it is a get with the word `metaget`.
#[test]
fn routes_can_select_metaget_by_name() {
    let server = Server::memcached(&[]);
    server.connect().expect(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    let text = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}}},
            "route": {{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A",
                "operation_policies": {{"metaget": "NullRoute"}}}}}}"#,
        server.addr()
    );
    let address = proxy(&["--config-str", &text]).unwrap();
    assert_eq!(lines(address, "metaget k\r\n"), ["END"]);
    assert_eq!(lines(address, "get k\r\n"), ["VALUE k 0 1", "v", "END"]);
}
