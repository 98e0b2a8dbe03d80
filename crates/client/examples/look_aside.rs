//! A program with a slow database behind a cache.
//!
//!     cargo run -p holdall -- serve -p 11311 &
//!     cargo run -p holdall-client --example look_aside -- 127.0.0.1:11311
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{BlockingClient, Client};

/// The number of queries to the database.
static QUERIES: AtomicU64 = AtomicU64::new(0);

/// The slow database.
fn query(user: u64) -> Result<String, std::io::Error> {
    QUERIES.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    Ok(format!("user number {user}"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    let client = BlockingClient::from(Client::builder().servers(servers).build()?);
    let users = client.client().look_aside().exptime(60);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let (client, users) = (client.clone(), users.clone());
            std::thread::spawn(move || client.get_or_load(&users, "user:17", || query(17)))
        })
        .collect();
    for reader in readers {
        let name = reader.join().map_err(|_| "a reader has ended badly")??;
        assert_eq!(name, "user number 17");
    }
    println!("20 readers, {} queries", QUERIES.load(Ordering::Relaxed));
    // A write: first the database, then the cache. Readers have the old value while one of them
    // loads the new one.
    client.delete("user:17")?;
    let name = client.get_or_load(&users, "user:17", || query(17))?;
    println!("{name}; {:?}", client.client().look_aside_totals());
    client.close();
    Ok(())
}
