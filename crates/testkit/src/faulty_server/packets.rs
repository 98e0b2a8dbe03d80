//! Faulty answers in packets of the binary protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;

use super::{Fault, Shared, value_of};

/// The first byte of a request.
pub(super) const REQUEST: u8 = 0x80;

const RESPONSE: u8 = 0x81;

const HEADER_BYTES: usize = 24;

/// Serves one connection, until it ends or a fault ends it.
pub(super) fn serve(stream: &mut TcpStream, input: &mut BufReader<TcpStream>, shared: &Shared) {
    let mut out = Vec::new();
    loop {
        if input.buffer().is_empty() && !out.is_empty() {
            if stream.write_all(&out).is_err() {
                return;
            }
            out.clear();
        }
        if !input.fill_buf().is_ok_and(|begin| !begin.is_empty()) {
            return;
        }
        let mut header = [0; HEADER_BYTES];
        if input.read_exact(&mut header).is_err() {
            return;
        }
        let body_len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; body_len as usize];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        let asked = Asked {
            opcode: header[1],
            opaque: [header[12], header[13], header[14], header[15]],
            key: String::from_utf8_lossy(&body).into_owned(),
        };
        if asked.key.is_empty() {
            out.extend(packet(asked.opcode, asked.opaque, b"", b"", b"faulty"));
            continue;
        }
        let Some(fault) = shared.next_fault() else {
            out.extend(asked.honest());
            continue;
        };
        if fault == Fault::Late {
            // SeqCst: partner of the load in `silences`.
            shared.silences.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(&out);
            out.clear();
            thread::sleep(shared.patience);
        }
        out.extend(asked.faulty_reply(fault));
        if fault == Fault::Cut {
            let _ = stream.write_all(&out);
            return;
        }
    }
}

/// A get.
struct Asked {
    opcode: u8,
    opaque: [u8; 4],
    key: String,
}

impl Asked {
    fn honest(&self) -> Vec<u8> {
        self.of(&self.key)
    }

    /// The answer to a request for this key.
    fn of(&self, key: &str) -> Vec<u8> {
        packet(self.opcode, self.opaque, &[0; 4], key.as_bytes(), value_of(key).as_bytes())
    }

    /// The honest answer, with this body length in its header.
    fn sized(&self, len: u32) -> Vec<u8> {
        let mut packet = self.honest();
        packet[8..12].copy_from_slice(&len.to_be_bytes());
        packet
    }

    /// The honest answer, whose header counts a part of the value as key.
    fn with_a_long_key(&self) -> Vec<u8> {
        let mut packet = self.honest();
        packet[3] += 7;
        packet
    }

    fn faulty_reply(&self, fault: Fault) -> Vec<u8> {
        let honest = self.honest();
        let another = u32::from_be_bytes(self.opaque).wrapping_add(1).to_be_bytes();
        match fault {
            Fault::WrongKey => self.of(&format!("{}x", self.key)),
            // Only of the body: a longer or shorter value would be valid.
            Fault::TooShort => self.sized(3),
            Fault::TooLong => self.with_a_long_key(),
            Fault::Late => honest,
            Fault::Unsolicited => {
                let stolen = packet(self.opcode, another, &[0; 4], b"stolen", b"value-of-stolen");
                [honest, stolen].concat()
            }
            Fault::Oversized => self.sized(0x7fff_ffff),
            Fault::ExtraLine => [honest.clone(), honest].concat(),
            // The answer to a delete.
            Fault::WrongKind => packet(0x04, self.opaque, b"", b"", b""),
            Fault::Garbage => b"\x01\x02garbage\r\n".to_vec(),
            Fault::Cut => honest[..honest.len() / 2].to_vec(),
        }
    }
}

fn packet(opcode: u8, opaque: [u8; 4], extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, key, value].concat();
    let mut packet = vec![RESPONSE, opcode];
    packet.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
    packet.extend([u8::try_from(extras.len()).unwrap(), 0, 0, 0]);
    packet.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    packet.extend(opaque);
    packet.extend([0; 8]);
    packet.extend(body);
    packet
}
