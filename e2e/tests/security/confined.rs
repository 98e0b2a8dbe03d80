//! `-o drop_privileges`: every thread of the process is confined, and all its functions still work.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::{Kind, Launch, Wire, eventually};

use crate::certificates::Certificates;
use crate::output;

/// The number of filters on each thread, by its name: none for a thread that may gain privileges.
fn filters(pid: u32) -> Vec<(String, u32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let filters = tasks.map(|task| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
        };
        let filters = field("Seccomp_filters:").parse().unwrap();
        (field("Name:"), if field("NoNewPrivs:") == "1" { filters } else { 0 })
    });
    filters.collect()
}

/// Waits until there are at least this many threads and each one has its filters: threads start and
/// confine themselves while the server already answers.
#[track_caller]
pub(crate) fn until_confined(pid: u32, threads: usize) {
    let has_its_filters =
        |(name, count): (String, u32)| count == if name.starts_with("worker") { 2 } else { 1 };
    eventually("each thread has its filters", || {
        let filters = filters(pid);
        filters.len() >= threads && filters.into_iter().all(has_its_filters)
    });
}

#[test]
fn every_thread_has_a_filter_and_workers_have_two() {
    let server =
        Launch::new(Kind::Holdall).args(&["-o", "drop_privileges", "-t", "3", "-v"]).start();
    until_confined(server.pid(), 6);
    let log = server.log();
    assert!(log.contains("workers may call") && !log.contains("execve"), "{log}");
    let open = Launch::new(Kind::Holdall).start();
    let status = fs::read_to_string(format!("/proc/{}/status", open.pid())).unwrap();
    assert!(status.contains("Seccomp:\t0"), "without being asked");
}

/// The other functions of a server: watch, dump, UDP, logins, reload of certificates, normal exit.
#[test]
fn a_confined_server_keeps_all_functions() {
    let certificates = Certificates::new();
    let users = certificates.folder.write("users", "me:secret\n");
    let pid_file = std::env::temp_dir().join(format!("security-{}.pid", std::process::id()));
    let options = format!("drop_privileges,{}", certificates.options(""));
    let port = testkit::process::free_port();
    let listen = format!("notls:127.0.0.1:{port}");
    let pid_name = pid_file.display().to_string();
    let args = ["-o", &options, "-Z", "-Y", &users, "-l", &listen, "-P", &pid_name, "-v"];
    let mut server = Launch::new(Kind::Holdall).plain_port(port).args(&args).start();
    let mut wire = server.connect();
    wire.expect(b"set x 0 0 9\r\nme secret\r\n", b"STORED\r\n");
    wire.expect(b"refresh_certs\r\n", b"OK\r\n");
    let mut watcher = server.connect();
    watcher.expect(b"set x 0 0 9\r\nme secret\r\nwatch connevents\r\n", b"STORED\r\nOK\r\n");
    drop(server.connect());
    assert!(String::from_utf8_lossy(&watcher.read_until(b"\n")).contains("conn_"));
    wire.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    wire.send(b"lru_crawler metadump all\r\n");
    assert!(String::from_utf8_lossy(&wire.read_until(b"END\r\n")).contains("key=k "));
    wire.send(b"stats\r\nstats settings\r\nstats conns\r\nstats slabs\r\n");
    for _ in 0..4 {
        wire.read_until(b"END\r\n");
    }
    assert!(pid_file.exists());
    output(Command::new("kill").args(["-HUP", &server.pid().to_string()]));
    output(Command::new("kill").args(["-TERM", &server.pid().to_string()]));
    let ended = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        !server.is_alive()
    });
    assert!(ended && !pid_file.exists(), "{}", server.log());
    assert!(Wire::try_connect(server.addr()).is_err());
}
