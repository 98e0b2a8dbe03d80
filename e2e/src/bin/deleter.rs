//! An application that deletes keys through the library and spools failed deletes. It reads keys,
//! one per line, and prints those whose delete was acknowledged. The test `deletes` kills it.
//!
//! Arguments: the spool's folder, the server.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "part of a test")]

use std::io::{BufRead, Write};
use std::time::Duration;

use client::{BlockingClient, Client};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (folder, server) = (arguments.next().unwrap(), arguments.next().unwrap());
    let builder = Client::builder().servers([server]).timeout(Duration::from_millis(500));
    let client = BlockingClient::from(builder.keep_deletes(folder).build().unwrap());
    let mut out = std::io::stdout();
    for key in std::io::stdin().lock().lines() {
        let key = key.unwrap();
        if client.delete(&key).is_ok() {
            writeln!(out, "{key}").unwrap();
            out.flush().unwrap();
        }
    }
    // Until it is killed, or all deletes are executed.
    while client.client().kept_deletes().is_some_and(|counts| counts.pending > 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
