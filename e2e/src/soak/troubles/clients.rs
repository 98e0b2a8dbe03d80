//! Troublesome clients: crowds, slow readers, and senders of invalid input.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use testkit::{Rng, Wire};

use crate::hostile;
use crate::mutate;
use crate::values::make;

/// The time to wait for a connection, or for an optional reply.
const SHORT: Duration = Duration::from_millis(200);

/// A thousand connections, half of which stop in the middle of a request.
pub(super) fn crowd(addr: SocketAddr, pause: Duration) {
    let connect = |_| Wire::try_connect_within(addr, SHORT).ok();
    let mut crowd: Vec<Wire> = (0..1000).filter_map(connect).collect();
    for (number, wire) in crowd.iter_mut().enumerate().filter(|(number, _)| number % 2 == 0) {
        let _ = wire.try_send(format!("set crowd{number} 0 0 100\r\nthe first").as_bytes());
    }
    thread::sleep(pause);
}

/// Clients that request more than a socket takes, and read nothing.
pub(super) fn slow_readers(addr: SocketAddr, pause: Duration) {
    let Ok(mut wire) = Wire::try_connect(addr) else { return };
    let keys: Vec<String> = (0..8).map(|number| format!("slow{number}")).collect();
    for key in &keys {
        let value = make(key, 1, 500_000);
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        if wire.try_send(&[head.as_bytes(), &value, b"\r\n"].concat()).is_err() {
            return;
        }
        // Refused while a server is down.
        let _ = wire.read_until_or_end(b"\r\n", Duration::from_secs(20));
    }
    let request = format!("get {}\r\n", keys.join(" ")).repeat(4);
    let ask = |_| {
        let mut wire = Wire::try_connect_within(addr, SHORT).ok()?;
        wire.send_for(request.as_bytes(), SHORT);
        Some(wire)
    };
    let stuck: Vec<Wire> = (0..8).filter_map(ask).collect();
    thread::sleep(pause);
    drop(stuck);
}

/// The first bytes of TLS, as from a client with a wrong port, and then nothing.
pub(super) fn half_handshakes(addr: SocketAddr, rng: &mut Rng) {
    let hello = |rng: &mut Rng| {
        let len = 4 + rng.below(200);
        let mut bytes = vec![0x16, 3, 1, 0, 200];
        bytes.extend(rng.bytes(len));
        bytes
    };
    let mut held = Vec::new();
    for _ in 0..100 {
        let Ok(mut wire) = Wire::try_connect_within(addr, SHORT) else { continue };
        wire.send_for(&hello(rng), SHORT);
        held.push(wire);
    }
    thread::sleep(SHORT);
}

/// Inputs that once broke a server, and damaged valid streams.
pub(super) fn hostile(addr: SocketAddr, rng: &mut Rng) {
    let mut inputs = hostile::text::inputs();
    inputs.extend(hostile::meta::inputs());
    inputs.extend(hostile::binary::inputs());
    let mut held = Vec::new();
    for turn in 0..120 {
        let bytes = match turn % 2 {
            0 => rng.pick(&inputs).bytes.clone(),
            _ => mutate::stream(rng),
        };
        let Ok(mut wire) = Wire::try_connect_within(addr, SHORT) else { continue };
        wire.send_for(&bytes, SHORT);
        wire.read_for(Duration::from_millis(5));
        held.push(wire);
    }
}

/// Undoes a `verbosity` that a stream may have contained, which would log every request.
pub(super) fn quieten(addrs: &[SocketAddr]) {
    for addr in addrs {
        if let Ok(mut wire) = Wire::try_connect_within(*addr, SHORT) {
            let _ = wire.try_send(b"verbosity 0\r\n");
            wire.read_until_or_end(b"\r\n", Duration::from_secs(20));
        }
    }
}
