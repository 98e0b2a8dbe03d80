//! Valid and invalid binary requests.

use super::closes;
use e2e::generate::binary::{Packet, header};
use testkit::wire::show;
use testkit::{Kind, Server, Wire};

/// The checked header fields of a reply, and the parts of its body.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    opcode: u8,
    status: u16,
    cas_is_set: bool,
    opaque: u32,
    extras: Vec<u8>,
    key: String,
    value: String,
}

fn read(wire: &mut Wire) -> (Reply, u64) {
    let header = wire.read_exact(24);
    assert_eq!(header[0], 0x81, "a reply begins with its mark: {}", show(&header));
    let number = |from: usize, len: usize| {
        header[from..from + len].iter().fold(0_u64, |n, &byte| n << 8 | u64::from(byte))
    };
    let body = wire.read_exact(usize::try_from(number(8, 4)).unwrap());
    let (extras, rest) = body.split_at(usize::from(header[4]));
    let (key, value) = rest.split_at(usize::try_from(number(2, 2)).unwrap());
    let cas = number(16, 8);
    let reply = Reply {
        opcode: header[1],
        status: u16::try_from(number(6, 2)).unwrap(),
        cas_is_set: cas != 0,
        opaque: u32::try_from(number(12, 4)).unwrap(),
        extras: extras.to_vec(),
        key: String::from_utf8_lossy(key).into_owned(),
        value: String::from_utf8_lossy(value).into_owned(),
    };
    (reply, cas)
}

/// Sends one request and asserts opcode, status, opaque, key and value of its one reply.
#[track_caller]
fn ask(wire: &mut Wire, packet: Packet<'_>, status: u16, key: &str, value: &str) -> u64 {
    wire.send(&packet.bytes());
    let (reply, cas) = read(wire);
    let got = (reply.opcode, reply.status, reply.opaque, reply.key.as_str(), reply.value.as_str());
    assert_eq!(got, (packet.opcode, status, packet.opaque, key, value));
    cas
}

const SET_EXTRAS: [u8; 8] = [0, 0, 0, 9, 0, 0, 0, 0];

const fn packet(opcode: u8) -> Packet<'static> {
    Packet { opcode, extras: &[], key: &[], value: &[], cas: 0, opaque: 0xabcd_0001 }
}

#[test]
fn store_and_retrieve() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let set = Packet { extras: &SET_EXTRAS, key: b"a", value: b"xyz", ..packet(0x01) };
    ask(&mut wire, Packet { key: b"a", ..packet(0x00) }, 1, "", "Not found");
    ask(&mut wire, Packet { key: b"a", ..packet(0x0c) }, 1, "a", "");
    let cas = ask(&mut wire, set.clone(), 0, "", "");
    assert_ne!(cas, 0, "a store tells its cas unique");
    wire.send(&Packet { key: b"a", ..packet(0x00) }.bytes());
    let (reply, again) = read(&mut wire);
    assert_eq!(
        (reply.extras.as_slice(), reply.value.as_str(), again),
        ([0, 0, 0, 9].as_slice(), "xyz", cas)
    );
    ask(&mut wire, Packet { key: b"a", ..packet(0x0c) }, 0, "a", "xyz");
    ask(&mut wire, Packet { opcode: 0x02, ..set.clone() }, 2, "", "Data exists for key.");
    ask(&mut wire, Packet { opcode: 0x03, key: b"none", ..set.clone() }, 1, "", "Not found");
    ask(&mut wire, Packet { cas: cas + 1000, ..set.clone() }, 2, "", "Data exists for key.");
    ask(&mut wire, Packet { cas: 5, key: b"none", ..set.clone() }, 1, "", "Not found");
    let newer = ask(&mut wire, Packet { cas, ..set }, 0, "", "");
    assert_ne!(newer, cas);
    ask(&mut wire, Packet { key: b"a", value: b"!", ..packet(0x0e) }, 0, "", "");
    ask(&mut wire, Packet { key: b"a", value: b"<", ..packet(0x0f) }, 0, "", "");
    ask(&mut wire, Packet { key: b"none", value: b"<", ..packet(0x0e) }, 5, "", "Not stored.");
    ask(&mut wire, Packet { key: b"a", ..packet(0x00) }, 0, "", "<xyz!");
    ask(&mut wire, Packet { key: b"a", cas: 3, ..packet(0x04) }, 2, "", "Data exists for key.");
    ask(&mut wire, Packet { key: b"a", ..packet(0x04) }, 0, "", "");
    ask(&mut wire, Packet { key: b"a", ..packet(0x04) }, 1, "", "Not found");
}

#[test]
fn successful_quiet_requests_get_no_reply() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let set = Packet { extras: &SET_EXTRAS, key: b"a", value: b"1", ..packet(0x11) };
    let stream = [
        set.bytes(),
        Packet { key: b"a", ..packet(0x0d) }.bytes(),
        Packet { key: b"none", ..packet(0x0d) }.bytes(),
        Packet { opcode: 0x12, ..set }.bytes(),
        Packet { key: b"a", ..packet(0x14) }.bytes(),
        Packet { key: b"a", ..packet(0x14) }.bytes(),
        packet(0x18).bytes(),
        packet(0x0a).bytes(),
    ];
    wire.send(&stream.concat());
    let got: Vec<_> =
        (0..4).map(|_| read(&mut wire).0).map(|reply| (reply.opcode, reply.status)).collect();
    assert_eq!(got, [(0x0d, 0), (0x12, 2), (0x14, 1), (0x0a, 0)]);
}

#[test]
fn arithmetic() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let number = |value: u64| String::from_utf8_lossy(&value.to_be_bytes()).into_owned();
    let extras = |delta: u64, initial: u64, exptime: u32| {
        [delta.to_be_bytes().as_slice(), &initial.to_be_bytes(), &exptime.to_be_bytes()].concat()
    };
    let never = extras(1, 7, u32::MAX);
    ask(&mut wire, Packet { extras: &never, key: b"n", ..packet(0x05) }, 1, "", "Not found");
    let create = extras(3, 7, 0);
    ask(&mut wire, Packet { extras: &create, key: b"n", ..packet(0x05) }, 0, "", &number(7));
    ask(&mut wire, Packet { extras: &create, key: b"n", ..packet(0x05) }, 0, "", &number(10));
    ask(&mut wire, Packet { extras: &create, key: b"n", ..packet(0x06) }, 0, "", &number(7));
    let more = extras(50, 0, 0);
    ask(&mut wire, Packet { extras: &more, key: b"n", ..packet(0x06) }, 0, "", &number(0));
    let set = Packet { extras: &SET_EXTRAS, key: b"t", value: b"text", ..packet(0x01) };
    ask(&mut wire, set, 0, "", "");
    let reason = "Non-numeric server-side value for incr or decr";
    ask(&mut wire, Packet { extras: &create, key: b"t", ..packet(0x05) }, 6, "", reason);
}

#[test]
fn touch_and_get_and_touch() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let exptime = 100_u32.to_be_bytes();
    ask(&mut wire, Packet { extras: &exptime, key: b"a", ..packet(0x1c) }, 1, "", "Not found");
    ask(
        &mut wire,
        Packet { extras: &SET_EXTRAS, key: b"a", value: b"x", ..packet(0x01) },
        0,
        "",
        "",
    );
    ask(&mut wire, Packet { extras: &exptime, key: b"a", ..packet(0x1c) }, 0, "", "");
    ask(&mut wire, Packet { extras: &exptime, key: b"a", ..packet(0x1d) }, 0, "", "x");
    ask(&mut wire, Packet { extras: &exptime, key: b"a", ..packet(0x23) }, 0, "a", "x");
    let quiet = Packet { extras: &exptime, key: b"none", ..packet(0x1e) };
    wire.send(&[quiet.bytes(), packet(0x0a).bytes()].concat());
    assert_eq!(read(&mut wire).0.opcode, 0x0a, "a quiet miss is silent");
}

#[test]
fn other_opcodes() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    ask(&mut wire, packet(0x0a), 0, "", "");
    wire.send(&packet(0x0b).bytes());
    let version = read(&mut wire).0.value;
    assert_eq!(version.split('.').count(), 3, "{version}");
    ask(&mut wire, packet(0x08), 0, "", "");
    for unknown in [0x20, 0x1b, 0x30, 0x3c, 0x77, 0xff] {
        ask(&mut wire, packet(unknown), 0x81, "", "Unknown command");
    }
    wire.send(&packet(0x10).bytes());
    let mut names = Vec::new();
    loop {
        let reply = read(&mut wire).0;
        assert_eq!((reply.opcode, reply.status), (0x10, 0));
        if reply.key.is_empty() {
            break;
        }
        names.push(reply.key);
    }
    assert!(
        ["pid", "version", "curr_items"].iter().all(|name| names.iter().any(|got| got == name))
    );
    closes(
        &server,
        &[packet(0x0a).bytes(), packet(0x07).bytes()].concat(),
        &[
            [0x81, 0x0a].as_slice(),
            &[0; 10],
            &0xabcd_0001_u32.to_be_bytes(),
            &[0; 8],
            &[0x81, 0x07],
            &[0; 10],
            &0xabcd_0001_u32.to_be_bytes(),
            &[0; 8],
        ]
        .concat(),
    );
    closes(&server, &packet(0x17).bytes(), b"");
}

#[test]
fn a_malformed_packet_gets_one_error_and_closes_the_connection() {
    let server = Server::under_test(&[]);
    let with_body =
        |head: [u8; 12], body: usize| [head.as_slice(), &[0; 12], &vec![b'm'; body]].concat();
    for (name, bytes) in [
        ("a get with a value", with_body(header(0x00, 2, 0, 4), 4)),
        ("a get without a key", with_body(header(0x00, 0, 0, 0), 0)),
        ("a set without extras", with_body(header(0x01, 3, 0, 3), 3)),
        ("a key of 251 bytes", with_body(header(0x00, 251, 0, 251), 251)),
        ("a key longer than the body", with_body(header(0x00, 20, 0, 2), 2)),
        ("extras longer than the body", with_body(header(0x01, 1, 20, 2), 2)),
        ("a body of 2 GB", with_body(header(0x01, 1, 8, 0x8000_0000), 9)),
    ] {
        if server.kind() == Kind::Memcached
            && (name.contains("longer than") || name.contains("2 GB"))
        {
            continue; // 1.6.18 waits for a body of the length that the parts claim.
        }
        let mut wire = server.connect();
        wire.send(&bytes);
        let (got, end) = wire.read_to_end(std::time::Duration::from_secs(5));
        assert!(end != testkit::wire::End::TimedOut, "{name}: still open, said {}", show(&got));
        let status = got.get(6..8).map(|status| (status[0], status[1]));
        let refused = status.is_none_or(|status| [(0, 4), (0, 0x81)].contains(&status));
        assert!(refused, "{name}: {}", show(&got));
    }
}

/// The same stream cut at each place gives the same bytes.
#[test]
fn split_requests_get_the_same_replies() {
    let server = Server::under_test(&[]);
    let set = Packet { extras: &SET_EXTRAS, key: b"a", value: b"x\r\ny", ..packet(0x01) };
    let stream =
        [set.bytes(), Packet { key: b"a", ..packet(0x0c) }.bytes(), packet(0x0a).bytes()].concat();
    for cut in 0..stream.len() {
        let mut wire = server.connect();
        wire.send_cut(&stream, &[cut], std::time::Duration::from_micros(100)).unwrap();
        let replies: Vec<_> =
            (0..3).map(|_| read(&mut wire).0).map(|reply| (reply.status, reply.value)).collect();
        assert_eq!(
            replies,
            [(0, String::new()), (0, "x\r\ny".into()), (0, String::new())],
            "cut at {cut}"
        );
    }
}
