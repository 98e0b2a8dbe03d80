//! A log whose packets arrive cut, changed, or half: the invalidator continues in the same process,
//! and loses nothing.
//!
//! This relay parses packets, to find the event that it changes. `testkit::FaultProxy` forwards
//! bytes and knows no protocol.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use e2e::invalidator::{Invalidator, mysqld_source};
use testkit::database::Mysqld;

use crate::harness::{cache, fill, until_absent};

/// Types of events that MariaDB writes for an inserted row.
const XID: u8 = 16;
const TABLE: u8 = 19;
pub(crate) const ROWS: u8 = 23;
pub(crate) const GTID: u8 = 162;

/// A fault of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The packet ends this number of bytes earlier, with a matching length: shorter than its
    /// event, which makes the library panic.
    Cut(usize),
    /// All bits of the byte at this place are flipped.
    Flip(usize),
    /// The connection ends in the middle of the packet.
    Half,
    /// The packet announces this number of bytes more, or fewer, than it has: the rest of the
    /// stream is misaligned.
    Says(i32),
}

/// Pending faults, each for the next event of its type.
pub(crate) type Faults = Arc<Mutex<VecDeque<(u8, Fault)>>>;

/// Forwards both directions, and applies the faults to the log's events.
pub(crate) fn relay(database: SocketAddr, faults: &Faults) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let faults = Arc::clone(faults);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(database) else { continue };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            // Either side may close the connection; the relay then closes the other.
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            let faults = Arc::clone(&faults);
            thread::spawn(move || {
                let _ = packets(&server, &client, &faults);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// Forwards the database's packets: three bytes of length, one of number, the body.
fn packets(mut from: &TcpStream, mut to: &TcpStream, faults: &Faults) -> io::Result<()> {
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body)?;
        // The marker of an event, four bytes of time, the event's type; the header has 19 bytes.
        let kind = body.get(5).copied().filter(|_| body[0] == 0 && length > 20);
        match kind.and_then(|kind| next_of(kind, faults)) {
            None => {}
            Some(Fault::Cut(count)) => {
                body.truncate(body.len() - count);
                head = head_of(body.len(), head[3]);
            }
            Some(Fault::Flip(at)) => body[at] ^= 0xff,
            Some(Fault::Half) => {
                to.write_all(&head)?;
                return to.write_all(&body[..body.len() / 2]);
            }
            Some(Fault::Says(more)) => {
                head = head_of(body.len().saturating_add_signed(more as isize), head[3]);
            }
        }
        to.write_all(&head)?;
        to.write_all(&body)?;
    }
}

fn head_of(length: usize, number: u8) -> [u8; 4] {
    let bytes = u32::try_from(length).unwrap().to_le_bytes();
    [bytes[0], bytes[1], bytes[2], number]
}

fn next_of(kind: u8, faults: &Faults) -> Option<Fault> {
    let mut faults = faults.lock().unwrap();
    faults.pop_front_if(|(of, _)| *of == kind).map(|(_, fault)| fault)
}

#[test]
fn a_damaged_log_stream_is_read_again_without_loss() {
    let database = Mysqld::mariadb(1, &[]);
    database.sql("CREATE TABLE items (id INT PRIMARY KEY)");
    let faults = Faults::default();
    let relayed = relay(database.addr(), &faults);
    let server = cache();
    let lines =
        mysqld_source(&[&database], "").replace(&database.addr().to_string(), &relayed.to_string());
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
    let mut invalidator = Invalidator::new(&lines, keys, &[server.addr()], "");
    // The invalidator keeps its start position before it reads, so `now` is not applied again.
    invalidator.start(&["--since", "now"]);
    let all = [
        (ROWS, Fault::Cut(8)),
        (TABLE, Fault::Cut(12)),
        (GTID, Fault::Cut(10)),
        (ROWS, Fault::Flip(22)),
        (TABLE, Fault::Flip(30)),
        // The number of a transaction: misread, it would become a position.
        (GTID, Fault::Flip(20)),
        // The event's own length.
        (XID, Fault::Flip(10)),
        (ROWS, Fault::Half),
        (ROWS, Fault::Says(7)),
    ];
    for (id, fault) in all.into_iter().enumerate() {
        let names = [format!("item:{id}"), "item:other".to_owned()];
        let names = [names[0].as_str(), names[1].as_str()];
        fill(&server, &names);
        faults.lock().unwrap().push_back(fault);
        database.sql(&format!("INSERT INTO items VALUES ({id})"));
        until_absent(&server, &names, &names[..1], &invalidator);
        assert!(faults.lock().unwrap().is_empty(), "{fault:?} did not happen");
    }
    assert!(invalidator.is_running(), "{}", invalidator.log());
    invalidator.until("source_connected", |value| value == 1);
    let panics = invalidator.stat("panics").unwrap();
    assert!(panics >= 1, "the library took a short event for one:\n{}", invalidator.log());
    assert!(invalidator.log().contains("no position was kept for it"), "{}", invalidator.log());
}
