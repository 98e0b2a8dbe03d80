//! A log whose packets are shorter than their events say: the invalidator ends with a reason, and loses nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use testkit::database::MariaDb;

use crate::harness::{Invalidator, cache, fill, until_absent};
use crate::mariadb::source;

/// Passes on what two sides say; while `cuts`, once, an event of inserted rows arrives without its last bytes.
fn relay(database: SocketAddr, cuts: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(database) else { continue };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            // Either side may end whenever it likes.
            thread::spawn(move || io::copy(&mut from, &mut to));
            let cuts = Arc::clone(&cuts);
            thread::spawn(move || packets(server, client, &cuts));
        }
    });
    address
}

/// The database's packets: three bytes of length, one of number, the body.
fn packets(mut from: TcpStream, mut to: TcpStream, cuts: &AtomicBool) -> io::Result<()> {
    /// `WRITE_ROWS_EVENT_V1`, which MariaDB writes.
    const ROWS: u8 = 23;
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body)?;
        // A mark that it is an event, four bytes of time, the event's type.
        let is_rows = body.first() == Some(&0) && body.get(5) == Some(&ROWS);
        if is_rows && cuts.swap(false, Ordering::SeqCst) {
            body.truncate(body.len() - 8);
            head[..3].copy_from_slice(&(length - 8).to_le_bytes()[..3]);
        }
        to.write_all(&head)?;
        to.write_all(&body)?;
    }
}

#[test]
fn an_event_that_is_cut_short_ends_it_with_a_reason_and_is_read_again() {
    let database = MariaDb::start(1, &[]);
    database.sql("CREATE TABLE items (id INT PRIMARY KEY)");
    let cuts = Arc::new(AtomicBool::new(false));
    let relayed = relay(database.addr(), Arc::clone(&cuts));
    let server = cache();
    let lines =
        source(&[&database], "").replace(&database.addr().to_string(), &relayed.to_string());
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"";
    let mut invalidator = Invalidator::new(&lines, keys, &[server.addr()], "");
    invalidator.start(&[]);
    let keys = ["item:1", "item:2"];
    fill(&server, &keys);
    cuts.store(true, Ordering::SeqCst);
    database.sql("INSERT INTO items VALUES (1)");
    let said = invalidator.ended();
    assert!(said.contains("no position was kept for it"), "{said}");
    invalidator.start(&[]);
    until_absent(&server, &keys, &["item:1"], &invalidator);
}
