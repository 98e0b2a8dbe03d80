//! Absent servers, dying servers, garbage replies, truncated traces and full disks: the bench
//! reports them, and keeps its measurements.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use bench::result::RunResult;
use testkit::Server;

use super::{command, folder, said};

#[test]
fn an_absent_server_is_reported() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for words in ["run", "search --sla p99<1ms", "sweep connections 1,2", "score"] {
        let output = command(&format!("{words} -s {address} --time 1")).output().unwrap();
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}: {errors}");
        assert!(errors.contains(&format!("{address}: no connection")), "{words}: {errors}");
    }
}

#[test]
fn a_dying_servers_replies_are_kept_and_marked() {
    let mut server = Server::under_test(&[]);
    let file = folder("dying").join("r.json");
    let words = format!("run -s {} --preload --keys 100 --time 100 --warm-up 0", server.addr());
    let mut command = command(&words);
    command.arg("--json").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bench = command.spawn().unwrap();
    while server.stat("cmd_get") < 1000 {
        thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    let output = bench.wait_with_output().unwrap();
    let (text, errors) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}{errors}");
    assert!(text.contains("doubt: the run ended early"), "{text}");
    let result = RunResult::read(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(result.gets.requests > 500 && result.failure.is_some(), "{:?}", result.failure);
    let page = folder("dying-page").join("p.html");
    let output = super::command("report").arg(&file).arg("--out").arg(&page).output().unwrap();
    assert!(output.status.success(), "{:?}", said(&output));
    assert!(std::fs::read_to_string(&page).unwrap().contains("the run ended early"));
}

#[test]
fn garbage_replies_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // Ignores the request; the client may have closed the connection.
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n");
        }
    });
    for protocol in ["text", "meta", "binary", "resp"] {
        let words = format!("run -s {address} -c 1 -p {protocol} --ratio 0:1 --time 60");
        let output = command(&words).output().unwrap();
        let (text, errors) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{protocol}: {text}{errors}");
        assert!(text.contains("no reply to what was asked: SSH-2.0-OpenSSH"), "{text}");
    }
}

#[test]
fn a_truncated_trace_is_replayed_up_to_its_end() {
    let folder = folder("trace");
    let trace = folder.join("t.bin");
    // oracleGeneral: second, object, bytes, next access.
    let mut bytes = Vec::new();
    for n in 0..1000_u64 {
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&(n % 100).to_le_bytes());
        bytes.extend_from_slice(&50_u32.to_le_bytes());
        bytes.extend_from_slice(&(-1_i64).to_le_bytes());
    }
    std::fs::write(&trace, &bytes[..bytes.len() - 7]).unwrap();
    let mut command = command("hitrate --format oracle -m 8 --servers holdall");
    let output = command.arg(&trace).output().unwrap();
    let (text, errors) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}{errors}");
    assert!(text.contains("doubt:") && text.contains("cut short"), "{text}{errors}");
    assert!(text.contains("Belady"), "{text}");
}

#[test]
fn a_full_disk_loses_the_result_file_but_prints_the_figures() {
    let mut server = Server::under_test(&[]);
    let load = format!("-s {} --keys 100 --time 0.2", server.addr());
    for words in [format!("run {load}"), format!("sweep connections 1,2 {load}")] {
        let output = command(&format!("{words} --json /dev/full")).output().unwrap();
        let (text, errors) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}: {text}{errors}");
        assert!(errors.contains("cannot be written") && errors.contains("No space"), "{errors}");
        assert!(text.contains("p99"), "{words}: {text}");
    }
    server.assert_alive("the bench");
}
