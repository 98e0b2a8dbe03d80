//! The stages of a request, against servers that tell their own times and such that do not.

use bench::stages::StagesResult;
use testkit::Server;

use super::{command, folder, said};

/// The stages of gets of a server, and their text.
fn stages_of(server: &Server, name: &str, value_bytes: usize) -> (StagesResult, String) {
    let file = folder(name).join("stages.json");
    let words = format!("stages -s {} -n 500 -d {value_bytes}", server.addr());
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
fn holdall_tells_how_long_it_parsed_executed_and_wrote() {
    let server = Server::holdall(&[]);
    for (name, value_bytes) in [("stages", 100), ("stages-large", 100_000)] {
        let (result, text) = stages_of(&server, name, value_bytes);
        let expected = [
            ("1", true),
            ("2", true),
            ("3, 7", false),
            ("4", false),
            ("5", true),
            ("5", true),
            ("6", true),
            ("8", true),
        ];
        assert_eq!(guide(&result), expected, "{text}");
        let [.., parse, execute, _, _] = &result.stages[..] else { panic!("{text}") };
        assert!(parse.times.mean > 0.0 && execute.times.mean > 0.0, "{text}");
    }
}

#[test]
fn memcached_tells_nothing_of_its_own() {
    let (result, text) = stages_of(&Server::memcached(&[]), "stages-memcached", 100);
    let expected = [("1", true), ("2", true), ("3, 7", false), ("4, 5, 6", false), ("8", true)];
    assert_eq!(guide(&result), expected, "{text}");
    assert!(text.contains("The server does not tell its own time"), "{text}");
}
