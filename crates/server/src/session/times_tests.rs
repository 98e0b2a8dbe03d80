//! Times of commands, for clients that request them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use net::{CloseReason, Service as _};

use super::tests::{Client, worker};

/// The replies to the input of one connection, with `N` for each number of an answer with times.
fn replies(sent: &str, cut: usize) -> String {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let (before, behind) = sent.as_bytes().split_at(cut);
    let mut got = client.send(&mut worker, before);
    got.append(&mut client.send(&mut worker, behind));
    worker.close(client.session, CloseReason::Eof);
    let got = String::from_utf8(got).unwrap();
    let lines = got.split_inclusive("\r\n").map(|line| match line.strip_prefix("MN times ") {
        Some(numbers) => {
            let is_number = |word: &str| word.parse::<u64>().is_ok();
            assert!(numbers.trim_end().split(' ').all(is_number), "{line}");
            format!("MN times{}\r\n", " N".repeat(numbers.split(' ').count()))
        }
        None => line.to_owned(),
    });
    lines.collect()
}

fn check(sent: &str, expected: &str) {
    for cut in 0..=sent.len() {
        assert_eq!(replies(sent, cut), expected, "{sent:?} cut at {cut}");
    }
}

#[test]
fn the_command_between_two_times_requests_has_three_times() {
    check(
        "set k 0 0 1\r\nx\r\nmn times\r\nget k\r\nmn times\r\nget none\r\nmn times\r\n",
        "STORED\r\nMN\r\nVALUE k 0 1\r\nx\r\nEND\r\nMN times N N N\r\nEND\r\n\
         MN times N N N\r\n",
    );
}

#[test]
fn commands_of_every_kind_have_times() {
    for (command, reply) in [
        ("get a b\r\n", "END\r\n"),
        ("mg none v\r\n", "EN\r\n"),
        ("ms k 2 T0\r\nab\r\n", "HD\r\n"),
        ("set k 0 0 1\r\na\r\n", "STORED\r\n"),
        ("set k 0 0 1 noreply\r\na\r\n", ""),
        ("delete none\r\n", "NOT_FOUND\r\n"),
        ("incr none 1\r\n", "NOT_FOUND\r\n"),
    ] {
        let expected = format!("MN\r\n{reply}MN times N N N\r\n");
        check(&format!("mn times\r\n{command}mn times\r\n"), &expected);
    }
}

#[test]
fn times_are_reported_once_for_the_last_announced_command() {
    check("mn times\r\nmn times\r\nmn times\r\n", "MN\r\nMN\r\nMN\r\n");
    check(
        "mn times\r\nget a\r\nget b\r\nmn times\r\nmn times\r\n",
        "MN\r\nEND\r\nEND\r\nMN times N N N\r\nMN\r\n",
    );
    // A command without a key has no times.
    check("mn times\r\nversion\r\nmn\r\n", &format!("MN\r\n{}MN\r\n", version()));
    check("mn time\r\nget a\r\nmn times\r\n", "MN\r\nEND\r\nMN\r\n");
}

fn version() -> String {
    replies("version\r\n", 0)
}

#[test]
fn a_datagram_has_no_times() {
    let mut worker = worker(&[]);
    let mut datagram = vec![0, 1, 0, 0, 0, 1, 0, 0];
    datagram.extend_from_slice(b"mn times\r\nget a\r\nmn times\r\n");
    let mut reply = Vec::new();
    worker.datagram(&net::Peer::local(), &datagram, &mut reply);
    assert_eq!(&reply[8..], b"MN\r\nEND\r\nMN\r\n");
}

#[test]
fn a_connection_without_a_times_request_keeps_no_state() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    client.send(&mut worker, b"mn\r\nget a\r\nmn leases\r\n");
    assert!(client.session.trace.is_none());
}
