//! `stats bags` takes many short turns, in each protocol that has it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use net::{Flow, Input, Output, Peer, Service};

use super::Worker;
use super::tests::{Client, worker};

const ITEMS: usize = 150_000;

/// A worker whose store has many items in one class.
fn full() -> Worker {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    for first in (0..ITEMS).step_by(1000) {
        let sets = (first..first + 1000).map(|key| format!("set {key} 0 0 1 noreply\r\nx\r\n"));
        assert_eq!(client.send(&mut worker, sets.collect::<String>().as_bytes()), b"");
    }
    worker
}

/// The reply, and the number of turns that others had before its end.
fn ask(worker: &mut Worker, request: &[u8]) -> (Vec<u8>, usize) {
    let mut session = worker.open(&Peer::local());
    let (mut input, mut reply, mut yields) = (Input::new(request), Vec::new(), 0);
    loop {
        let mut output = Output::collecting(&mut reply);
        match worker.serve(&mut session, &mut input, &mut output) {
            Flow::Yield => yields += 1,
            Flow::NeedInput => return (reply, yields),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn stats_bags_yields_to_other_connections() {
    let mut worker = full();
    let (reply, yields) = ask(&mut worker, b"stats bags\r\nmn\r\n");
    let text = String::from_utf8(reply).unwrap();
    assert!(text.ends_with("END\r\nMN\r\n"), "{}", &text[text.len() - 80..]);
    let items = text.lines().filter(|line| line.contains(":items "));
    let sum: usize =
        items.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(sum, ITEMS);
    // A turn is 8 steps of 128 blocks of 60 slots.
    assert!(yields >= ITEMS / (8 * 128 * 60), "{yields}");
}

#[test]
fn binary_stats_bags_have_the_same_lines() {
    let mut worker = full();
    let (text, _) = ask(&mut worker, b"stats bags\r\n");
    let lines = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"STAT")).count();
    let request = [&[0x80, 0x10, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 9][..], &[0; 8], b"bags"];
    let (mut reply, yields) = ask(&mut worker, &request.concat());
    assert!(yields >= ITEMS / (8 * 128 * 60), "{yields}");
    let mut packets = 0;
    while !reply.is_empty() {
        assert_eq!((&reply[..2], reply[15]), (&[0x81, 0x10][..], 9), "after {packets}");
        let body = u32::from_be_bytes(reply[8..12].try_into().unwrap()) as usize;
        reply.drain(..24 + body);
        packets += usize::from(body > 0);
    }
    assert_eq!(packets, lines);
}
