//! `holdall bench` over UDP, over TLS, and with reconnects.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::thread;

use common::{Running, Scratch, holdall, output, stderr, stdout};

fn bench(words: &str) -> Output {
    let words: Vec<&str> =
        ["bench", "run", "--warm-up", "0"].into_iter().chain(words.split_whitespace()).collect();
    output(&mut holdall(&words))
}

/// Requests of a result's table that were answered, of one kind.
#[track_caller]
fn answered(said: &str, kind: &str) -> u64 {
    let line = said.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("{said}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn udp_gets_find_values_of_any_number_of_datagrams() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Running::serve(&["-U", &port.to_string(), "-o", "udp_amplification=0"]);
    let tcp = format!("127.0.0.1:{}", server.port("TCP INET"));
    for bytes in ["64", "9000"] {
        let load = format!("--keys 100 --value-size {bytes} --key-prefix k{bytes}:");
        let filled = bench(&format!("-s {tcp} {load} --preload --time 0.1"));
        assert!(filled.status.success(), "{}", stderr(&filled));
        let gets = format!("-s udp:127.0.0.1:{port} {load} --ratio 0:1 --verify --time 0.3 -c 4");
        let output = bench(&gets);
        let said = stdout(&output);
        assert!(output.status.success(), "{said}{}", stderr(&output));
        assert!(answered(&said, "gets") > 20 && said.contains("100.0 %"), "{said}");
    }
    let refused = bench(&format!("-s udp:127.0.0.1:{port} --time 0.1"));
    assert!(stderr(&refused).contains("UDP is for gets"), "{}", stderr(&refused));
}

#[test]
fn lost_datagrams_are_reported_and_have_no_latency() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        // Every fourth request is dropped, and an answer to another one is sent in its place.
        for count in 0u64.. {
            let Ok((bytes, peer)) = socket.recv_from(&mut buffer) else { return };
            assert!(bytes > 8);
            let mut reply = buffer[..8].to_vec();
            reply.extend_from_slice(b"END\r\n");
            if count % 4 == 3 {
                reply[0] ^= 0x80;
            }
            let _ = socket.send_to(&reply, peer);
        }
    });
    let load = format!("-s udp:127.0.0.1:{port} --ratio 0:1 -c 1 --time 1");
    let output = bench(&load);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("UDP requests were lost"), "{said}");
    // Three answers at once, then a quarter of a second of waiting: four rounds or so, far below
    // what is answered without loss.
    assert!((3..=60).contains(&answered(&said, "gets")), "{said}");
}

#[test]
fn tls_works_and_certificates_are_checked() {
    let scratch = Scratch::new();
    let (key, certificate) = (scratch.text("key.pem"), scratch.text("cert.pem"));
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=CA:false";
    let made = Command::new("openssl")
        .args(words.split_whitespace())
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    Command::new("chmod").args(["644", &key, &certificate]).status().unwrap();
    let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
    let server = Running::serve(&["-Z", "-o", &options]);
    let at = format!("-s 127.0.0.1:{} --keys 200 --time 0.3", server.port("TCP INET"));
    for (trust, pipeline) in [(format!("--tls-ca {certificate}"), 1), ("--tls-insecure".into(), 16)]
    {
        let load = format!("{at} {trust} --preload --verify --value-size 1-20000");
        let output = bench(&format!("{load} --pipeline {pipeline}"));
        let said = stdout(&output);
        assert!(output.status.success(), "{said}{}", stderr(&output));
        assert!(said.contains("100.0 %"), "{said}");
    }
    let other = scratch.text("other.pem");
    let refused = bench(&format!("{at} --tls-ca {other}"));
    assert!(stderr(&refused).contains("other.pem"), "{}", stderr(&refused));
    // Plain text to a TLS port ends in an error with words.
    let output = bench(&at);
    assert!(!output.status.success());
}

#[test]
fn connections_are_reopened_after_the_set_number_of_requests() {
    let server = Running::serve(&[]);
    let at = format!("-s 127.0.0.1:{} --keys 100 --preload --verify", server.port("TCP INET"));
    for words in ["--reconnect 1", "--reconnect 3 --pipeline 8", "--reconnect 2 --rate 1000"] {
        let output = bench(&format!("{at} -c 4 --time 0.4 {words}"));
        let said = stdout(&output);
        assert!(output.status.success(), "{words}: {said}{}", stderr(&output));
        let line = said.lines().find(|line| line.starts_with("connections made anew")).unwrap();
        let rate: f64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert!(rate > 50.0, "{words}: {said}");
        assert!(said.contains("100.0 %"), "{words}: {said}");
    }
}
