//! Servers that require a login, several servers, and the limits of a run.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bench::sweep::SweepResult;
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch};

use super::{command, folder, measured, said};

/// Killed when dropped.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_bench_logs_in_to_servers() {
    let folder = folder("login");
    let file = |name: &str, text: &str| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    let (users, wrong) = (&file("users", "me:secret\n"), file("wrong", "me:guess\n"));
    // Redis accepts a password without a user.
    let password = &file("password", "secret\n");
    let port = free_port();
    let redis = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--requirepass", "secret", "--dir", folder.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn();
    let mut redis = Redis(redis.unwrap());
    while redis.0.try_wait().unwrap().is_none() && TcpStream::connect(("127.0.0.1", port)).is_err()
    {
        thread::sleep(Duration::from_millis(10));
    }
    let text = Launch::new(Kind::Holdall).args(&["-Y", users]).start();
    let memcached = Launch::new(Kind::Memcached).args(&["-Y", users]).start();
    let sasl = Launch::new(Kind::Holdall).args(&["-S"]).env("MEMCACHED_SASL_PWDB", users).start();
    for (protocol, right, address) in [
        ("text", users, text.addr().to_string()),
        ("text", users, memcached.addr().to_string()),
        ("binary", users, sasl.addr().to_string()),
        ("resp", password, format!("127.0.0.1:{port}")),
    ] {
        let load =
            format!("run -s {address} -p {protocol} -c 2 -n 50 --keys 10 --preload --verify");
        let login = |file: &str| format!("{load} --reconnect 20 --login {file}");
        let result = measured(&login(right));
        assert_eq!((result.total.requests, result.total.refused), (100, 0), "{protocol}");
        assert!(result.connects >= 4 && !format!("{result:?}").contains("secret"), "{result:?}");
        let output = command(&login(&wrong)).output().unwrap();
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{protocol}: {errors}");
        assert!(errors.contains("the server refused the login"), "{protocol}: {errors}");
        let login = if protocol == "resp" { "secret" } else { "me:secret" };
        by_memtiers_command_line(protocol, &address, login, &folder.join("m.json"));
    }
}

/// Does the same with memtier's `--authenticate`.
#[track_caller]
fn by_memtiers_command_line(protocol: &str, address: &str, login: &str, json: &Path) {
    let name = match protocol {
        "text" => "memcache_text",
        "binary" => "memcache_binary",
        _ => "redis",
    };
    let (host, port) = address.rsplit_once(':').unwrap();
    let load = format!("memtier -s {host} -p {port} -P {name} -c 2 -t 1 -n 50 --key-maximum=9");
    let words = format!("{load} --json-out-file {} -a {login}", json.display());
    let output = command(&words).output().unwrap();
    assert!(output.status.success(), "{protocol}: {:?}", said(&output));
    let text = fs::read_to_string(json).unwrap();
    let totals = text.split("\"Totals\"").nth(1).unwrap();
    assert!(totals.contains("\"Count\": 100") && !text.contains("secret"), "{protocol}: {text}");
    let output = command(&format!("{load} -a {}", login.replace("secret", "guess"))).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{protocol}: {:?}", said(&output));
    assert!(said(&output).1.contains("the server refused the login"), "{:?}", said(&output));
}

#[test]
fn a_run_sends_the_requested_number_of_requests() {
    let server = Launch::new(Kind::Holdall).start();
    let words = format!("run -s {} -c 3 -t 2 -n 70 --pipeline 8 --pin 0 --keys 10", server.addr());
    assert_eq!(measured(&words).total.requests, 3 * 2 * 70);
    let words = format!("run -s {} --pin 1023 --time 60", server.addr());
    let output = command(&words).output().unwrap();
    assert!(said(&output).0.contains("processor 1023"), "{:?}", said(&output));
}

#[test]
fn a_sweep_over_processes_starts_that_number_of_servers() {
    let file = folder("processes").join("s.json");
    let start = format!("{} serve -l 127.0.0.1 -p {{port}} -U 0 -u root", holdall_path().display());
    let output = command("sweep processes 1,2 -c 4 --keys 100 --preload --time 0.3 --start")
        .arg(start)
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{:?}", said(&output));
    let sweep = SweepResult::read(&fs::read_to_string(&file).unwrap()).unwrap();
    let shape = |point: &bench::sweep::Point| {
        let spec = &point.result.spec;
        (point.at.to_string(), spec.targets.len(), spec.connections)
    };
    let shapes: Vec<_> = sweep.points.iter().map(shape).collect();
    assert_eq!(shapes, [("1".to_owned(), 1, 4), ("2".to_owned(), 2, 2)]);
    assert!(sweep.points.iter().all(|point| point.result.gets.misses == 0));
}
