//! Clients that have neither finished a handshake nor logged in take nothing from others.

use std::io::Write;
use std::net::TcpStream;

use testkit::process::raise_open_files;

use crate::certificates::Certificates;
use crate::tls::Both;

/// The beginning of a TLS client's first message: a record of 512 bytes, of which 69 come.
const HALF_HELLO: [u8; 69] = {
    let mut bytes = [0; 69];
    let head = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    bytes
};

/// Handshakes that stay half done hold a bounded amount, and none of the items' memory.
#[test]
fn half_handshakes_evict_nothing() {
    const CLIENTS: usize = 3000;
    assert!(raise_open_files(4000) >= 4000);
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &["-m", "64", "-t", "2", "-c", "5000"]);
    let mut wire = both.server.connect();
    let value = vec![b'v'; 1000];
    // Full: one more store evicts.
    let mut stored = 0;
    while both.server.stat("evictions") == 0 {
        let mut request = Vec::new();
        for number in stored..stored + 1000 {
            request.extend_from_slice(format!("set key{number} 0 0 1000 noreply\r\n").as_bytes());
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        stored += 1000;
        wire.send(&request);
        wire.expect(b"mn\r\n", b"MN\r\n");
    }
    // The cleaner keeps a reserve; it is filled once this many have gone.
    let before = both.server.stat("curr_items");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let Ok(mut client) = TcpStream::connect(both.tls) else { continue };
        let _ = client.write_all(&HALF_HELLO);
        clients.push(client);
    }
    assert!(clients.len() > CLIENTS / 2, "only {} came", clients.len());
    wire.expect(b"mn\r\n", b"MN\r\n");
    let lost = before.saturating_sub(both.server.stat("curr_items"));
    // A page of items may go to the plain state of the connections themselves.
    assert!(lost < before / 20, "{lost} of {before} items went");
    both.assert_alive(&certificates, "half handshakes");
}
