//! Nanoseconds to parse the common requests: `cargo bench -p holdall-proto`. Each figure is the
//! best of 20 rounds.
#![allow(clippy::print_stdout, reason = "the result is for a reader")]

use std::hint::black_box;
use std::time::Instant;

use proto::text::{KeyToken, Parsed, Request, parse};
use proto::{KeyBuf, binary};

const ROUNDS: u32 = 20;
const CALLS: u32 = 200_000;

fn measure(name: &str, mut call: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(CALLS));
    }
    println!("{name:<12} {:6.1} ns", best * 1e9);
}

/// A request and, if it is a retrieval, all its keys.
fn read_text(mut input: &[u8], key_buf: &mut KeyBuf) -> usize {
    let Parsed::Request { request, consumed } = parse(black_box(input), key_buf) else { return 0 };
    let mut bytes = consumed;
    if let Request::Get(mut line) = request {
        input = input.get(consumed..).unwrap_or_default();
        while let KeyToken::Key { key, consumed } = line.next_key(input) {
            bytes += black_box(key).len();
            input = input.get(consumed..).unwrap_or_default();
        }
    }
    bytes
}

fn main() {
    let mut key_buf = KeyBuf::new();
    for (name, line) in [
        ("get", "get user:1234567890:profile\r\n"),
        ("get x4", "get user:1:profile user:2:profile user:3:profile user:4:profile\r\n"),
        ("set", "set user:1234567890:profile 0 3600 1024\r\n"),
        ("set noreply", "set user:1234567890:profile 0 3600 1024 noreply\r\n"),
        ("incr", "incr user:1234567890:visits 1\r\n"),
        ("mg", "mg user:1234567890:profile v\r\n"),
        ("mg flags", "mg user:1234567890:profile t f c v k Oabc123\r\n"),
        ("ms", "ms user:1234567890:profile 1024 T3600\r\n"),
    ] {
        measure(name, || {
            black_box(read_text(line.as_bytes(), &mut key_buf));
        });
    }
    let mut packet = vec![0x80, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4];
    packet.extend([0; 12]);
    packet.extend(b"user");
    measure("binary get", || {
        black_box(binary::parse(black_box(&packet)));
    });
}
