//! The stages of a request, against servers that report their own times and servers that do not.

use std::net::SocketAddr;
use std::time::Duration;

use bench::stages::StagesResult;
use testkit::{FaultProxy, Mode, Server};

use super::{command, folder, said};

/// The stages of a server's gets, and the text printed for them.
fn stages_of(server: SocketAddr, name: &str, value_bytes: usize) -> (StagesResult, String) {
    let file = folder(name).join("stages.json");
    let words = format!("stages -s {server} -n 500 -d {value_bytes}");
    let output = command(&words).arg("--json").arg(&file).output().unwrap();
    assert!(output.status.success(), "{:?}", said(&output));
    let result = StagesResult::read(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(result.requests + result.left_out == 500, "{result:?}");
    assert!(result.requests > 0, "{result:?}");
    let sum: f64 = result.stages.iter().map(|stage| stage.times.mean).sum();
    assert!((sum - result.whole.mean).abs() < 1e-6, "{sum} {result:?}");
    (result, said(&output).0)
}

fn guide(result: &StagesResult) -> Vec<(&str, bool)> {
    result.stages.iter().map(|stage| (stage.guide.as_str(), stage.is_measured)).collect()
}

#[test]
fn stages_of_holdall_include_queueing_and_service_time() {
    let server = Server::holdall(&[]);
    for (name, value_bytes) in [("stages", 100), ("stages-large", 100_000)] {
        let (result, text) = stages_of(server.addr(), name, value_bytes);
        let expected = [
            ("1", true),
            ("2", true),
            ("3, 7", true),
            ("4", true),
            ("5", true),
            ("5", true),
            ("6", true),
            ("8", true),
        ];
        assert_eq!(guide(&result), expected, "{text}");
        let [.., wait, parse, execute, _, _] = &result.stages[..] else { panic!("{text}") };
        for stage in [wait, parse, execute] {
            assert!(stage.times.mean > 0.0, "{text}");
        }
    }
}

#[test]
fn a_network_delay_counts_as_network_time() {
    let server = Server::holdall(&[]);
    let slow = FaultProxy::before(server.addr());
    slow.set(Mode::Slow(Duration::from_millis(2)));
    let (result, text) = stages_of(slow.addr(), "stages-slow", 100);
    let network = result.stages.iter().find(|stage| stage.guide == "3, 7").unwrap();
    assert!(network.is_measured, "{text}");
    assert!(network.times.p50.unwrap() >= 2000.0, "{text}");
}

#[test]
fn memcached_reports_no_stages() {
    let server = Server::memcached(&[]);
    let (result, text) = stages_of(server.addr(), "stages-memcached", 100);
    let expected = [("1", true), ("2", true), ("3, 7", false), ("4, 5, 6", false), ("8", true)];
    assert_eq!(guide(&result), expected, "{text}");
    assert!(text.contains("The server does not tell its own time"), "{text}");
}
