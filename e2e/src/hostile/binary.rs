//! Binary packets that broke servers.

use super::{Input, Want, any, refused};
use crate::generate::binary::{Packet, header};

/// All inputs.
#[must_use]
pub fn inputs() -> Vec<Input> {
    let mut inputs = published();
    inputs.extend(every_opcode());
    inputs.extend(lying_lengths());
    inputs.extend(floods());
    inputs
}

/// A header, possibly with wrong lengths, and `body` bytes after it.
fn packet(opcode: u8, key_len: u16, extras_len: u8, body_len: u32, body: usize) -> Vec<u8> {
    [header(opcode, key_len, extras_len, body_len).as_slice(), &[0; 12], &vec![b'b'; body]].concat()
}

fn published() -> Vec<Input> {
    let mut negative = vec![0x80, 0x12, 0, 1, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0xe8];
    negative.extend([0; 20]);
    let mut inputs = vec![
        refused("binary-CVE-2011-4971", negative),
        any("binary-CVE-2013-0179-delete-250-noNUL", packet(0x04, 250, 0, 250, 250)),
        any("binary-CVE-2013-7239-sasl-twice", {
            let auth = [header(0x21, 5, 0, 9).as_slice(), &[0; 12], b"PLAIN\0a\0b"].concat();
            [auth.clone(), auth, packet(0x00, 1, 0, 1, 1)].concat()
        }),
        any("binary-CVE-2016-8706-sasl", packet(0x21, 32, 0, 1, 1)),
        any("binary-CVE-2016-8706-sasl-step", packet(0x22, 32, 0, 1, 1)),
        any("binary-sasl-zero-op22", packet(0x22, 0, 0, 0, 0)),
        refused("binary-CVE-2017-9951", packet(0x00, 0xffff, 0, 1, 1)),
        refused("binary-CVE-2017-9951-signed", packet(0x01, 0x8000, 8, 9, 9)),
    ];
    for opcode in [0x0e, 0x0f, 0x19, 0x1a] {
        inputs.push(refused(
            format!("binary-CVE-2016-8704-{opcode:02x}"),
            packet(opcode, 0xfa, 0, 0, 300),
        ));
    }
    for opcode in [0x01, 0x02, 0x03, 0x11, 0x12, 0x13] {
        let bytes = packet(opcode, 0xfa, 8, 0xffff_ffd0, 300);
        inputs.push(refused(format!("binary-CVE-2016-8705-{opcode:02x}"), bytes));
    }
    for extras in (0x14..=0xff).step_by(5) {
        let body = usize::from(extras) + 2;
        let bytes = packet(0x05, 2, extras, u32::try_from(body).expect("a byte and two"), body);
        inputs.push(any(format!("binary-CVE-2020-10931-extras-{extras:02x}"), bytes));
    }
    inputs
}

/// Every opcode with nothing, with only a key, and with all the parts that it must not have.
fn every_opcode() -> Vec<Input> {
    let mut inputs = Vec::new();
    for opcode in 0..=0xff {
        inputs.push(any(format!("binary-op-{opcode:02x}-bare"), packet(opcode, 0, 0, 0, 0)));
        inputs.push(any(format!("binary-op-{opcode:02x}-full"), packet(opcode, 3, 7, 15, 15)));
    }
    inputs
}

/// Contradictory lengths, and 229cf41be: a body of 2 GB that must not be read as requests.
fn lying_lengths() -> Vec<Input> {
    let mut inputs = Vec::new();
    for body in [1, 0x7fff_ffff, 0x8000_0000, 0xffff_ff00, 0xffff_ffff_u32] {
        for opcode in [0x00, 0x01, 0x05, 0x0a, 0x10, 0x1c] {
            let version = Packet { opcode: 0x0b, ..Packet::default() }.bytes();
            let bytes = [packet(opcode, 1, 0, body, 0), version, b"version\r\n".to_vec()].concat();
            let name = format!("binary-bodylen-{body:x}-op-{opcode:02x}");
            inputs.push(Input { name, bytes, want: Want::BodyUnread });
        }
    }
    inputs.push(any("binary-half-header", vec![0x80, 0, 0]));
    inputs.push(any("binary-reply-magic", [0x80_u8, 0x81].repeat(100)));
    inputs.push(any(
        "binary-then-text",
        [packet(0x0a, 0, 0, 0, 0), b"version\r\n".repeat(10)].concat(),
    ));
    inputs.push(any("binary-zeros", [vec![0x80], vec![0; 2000]].concat()));
    inputs.push(any("binary-ones", [vec![0x80], vec![0xff; 2000]].concat()));
    inputs
}

/// e3b7d33ce: gets whose replies are never read.
fn floods() -> Vec<Input> {
    let set = Packet {
        opcode: 0x01,
        extras: &[0; 8],
        key: b"flood",
        value: &[b'f'; 10_000],
        ..Packet::default()
    };
    let get = Packet { opcode: 0x00, key: b"flood", ..Packet::default() };
    let noop = Packet { opcode: 0x0a, ..Packet::default() };
    vec![
        any("binary-get-flood-not-reading", [set.bytes(), get.bytes().repeat(70_000)].concat()),
        any("binary-noop-flood", noop.bytes().repeat(50_000)),
    ]
}
