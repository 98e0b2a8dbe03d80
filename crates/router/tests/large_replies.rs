//! Large replies to some clients do not delay a small request of another (decision 114).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{proxy, stat};
use testkit::eventually;

/// Clients that request a large value, each once.
const CLIENTS: usize = 60;

const BIG_BYTES: usize = 1_000_000;

/// A server that counts its requests.
#[derive(Debug, Default)]
struct Counting {
    /// It currently answers nothing.
    is_held: AtomicBool,
    big: AtomicUsize,
    small: AtomicUsize,
}

impl Counting {
    fn listen(&'static self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                thread::spawn(move || self.serve(stream));
            }
        });
        address
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let (mut input, mut output, mut part) = (Vec::new(), Vec::new(), [0; 4096]);
        loop {
            match stream.read(&mut part) {
                Ok(0) => return,
                Ok(len) => input.extend_from_slice(&part[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            while let Some(end) = input.windows(2).position(|bytes| bytes == b"\r\n") {
                let line: Vec<u8> = input.drain(..end + 2).collect();
                self.answer(std::str::from_utf8(&line).unwrap(), &mut output);
            }
            if !self.is_held.load(Ordering::SeqCst) && stream.write_all(&output).is_ok() {
                output.clear();
            }
        }
    }

    fn answer(&self, line: &str, output: &mut Vec<u8>) {
        for key in line.split_whitespace().skip(1) {
            let is_big = key == "big";
            let (count, len) = if is_big { (&self.big, BIG_BYTES) } else { (&self.small, 5) };
            count.fetch_add(1, Ordering::SeqCst);
            output.extend_from_slice(format!("VALUE {key} 0 {len}\r\n").as_bytes());
            output.extend(std::iter::repeat_n(b'v', len));
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"END\r\n");
    }
}

fn ask(address: SocketAddr, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("get {key}\r\n").as_bytes()).unwrap();
    stream
}

fn take(stream: &mut TcpStream, key: &str, len: usize) {
    let head = format!("VALUE {key} 0 {len}\r\n");
    let mut reply = vec![0; head.len() + len + 7];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply.starts_with(head.as_bytes()) && reply.ends_with(b"v\r\nEND\r\n"));
}

#[test]
fn a_small_get_does_not_wait_for_all_large_ones() {
    let server: &Counting = Box::leak(Box::default());
    let config = format!(
        r#"{{"pools":{{"A":{{"servers":["{}"]}}}},"route":"PoolRoute|A"}}"#,
        server.listen()
    );
    let words = ["--config-str", &config, "--num-proxies", "1", "--client-memory-max"];
    let address = proxy(&[&words[..], &["1073741824"]].concat()).unwrap();
    let mut bystander = ask(address, "small");
    take(&mut bystander, "small", 5);
    take(&mut ask(address, "big"), "big", BIG_BYTES);

    server.is_held.store(true, Ordering::SeqCst);
    let mut others: Vec<TcpStream> = (0..CLIENTS).map(|_| ask(address, "big")).collect();
    eventually("all have come", || stat(address, "num_clients") > CLIENTS as u64);
    bystander.write_all(b"get small\r\n").unwrap();
    eventually("the small one is asked for", || server.small.load(Ordering::SeqCst) == 2);
    let before = server.big.load(Ordering::SeqCst) - 1;
    assert!((1..CLIENTS / 2).contains(&before), "{before} large ones are asked for before it");

    server.is_held.store(false, Ordering::SeqCst);
    take(&mut bystander, "small", 5);
    for stream in &mut others {
        take(stream, "big", BIG_BYTES);
    }
}
