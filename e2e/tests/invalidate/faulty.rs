//! A hostile database, which requests a file of its client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use e2e::certificates::Folder;
use e2e::invalidator::Invalidator;

/// The greeting of a MariaDB server that offers all capabilities except TLS and compression.
fn greeting() -> Vec<u8> {
    const ALL_BUT_COMPRESSION_AND_TLS: u32 = !(1 << 5 | 1 << 11);
    let offers = ALL_BUT_COMPRESSION_AND_TLS.to_le_bytes();
    let mut packet = b"\x0a5.5.5-10.11.6-MariaDB\0\x07\0\0\x0012345678\0".to_vec();
    packet.extend_from_slice(&offers[..2]);
    packet.extend_from_slice(&[0x21, 2, 0]);
    packet.extend_from_slice(&offers[2..]);
    packet.extend_from_slice(&[21]);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(b"123456789012\0mysql_native_password\0");
    packet
}

fn send(stream: &mut TcpStream, number: u8, packet: &[u8]) {
    let len = u32::try_from(packet.len()).unwrap().to_le_bytes();
    let head = [len[0], len[1], len[2], number];
    stream.write_all(&[&head[..], packet].concat()).unwrap();
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let len = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let mut packet = vec![0; len as usize];
    stream.read_exact(&mut packet).unwrap();
    packet
}

/// Replies to the first query with a request for a file of the client; returns all bytes that
/// follow.
fn ask_for(listener: &TcpListener, file: &str) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    send(&mut stream, 0, &greeting());
    receive(&mut stream);
    send(&mut stream, 2, &[0, 0, 0, 2, 0, 0, 0]);
    receive(&mut stream);
    send(&mut stream, 1, &[&[0xfb], file.as_bytes()].concat());
    let mut rest = Vec::new();
    // A reset connection also sends no more bytes.
    let _ = stream.read_to_end(&mut rest);
    rest
}

/// `LOCAL INFILE`: a server may ask a client for any file that the client can read.
#[test]
fn a_database_cannot_request_local_files() {
    let folder = Folder::new();
    let secret = folder.write("secret", "what only this machine may read\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let database: SocketAddr = listener.local_addr().unwrap();
    let asked = thread::spawn({
        let secret = secret.clone();
        move || ask_for(&listener, &secret)
    });
    let password = folder.write("password", "topsecret\n");
    let source = format!(
        "kind = \"mariadb\"\nservers = [\"{database}\"]\nuser = \"holdall\"\n\
         password_file = \"{password}\"\nserver_id = 4001"
    );
    let keys = "[keys.tables]\n\"shop.users\" = \"user:{id}\"";
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let said = Invalidator::new(&source, keys, &[nobody], "").refusal("check", &[]);
    let sent = asked.join().unwrap();
    assert!(said.to_lowercase().contains("infile"), "{said}");
    let sent = String::from_utf8_lossy(&sent);
    assert!(!sent.contains("only this machine"), "{sent}");
}
