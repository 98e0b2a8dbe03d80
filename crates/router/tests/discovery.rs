//! Membership from sources: it changes, disappears and lies, and keys stay with existing servers.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::ask;
use testkit::elasticache::{cluster, named_cluster};
use testkit::process::free_port;
use testkit::{FakeElastiCache, Server, eventually};

/// A proxy that queries its sources continuously, and keeps the results in this folder.
fn proxy(config: &str, folder: &Path, more: &[&str]) -> Result<SocketAddr, String> {
    let folder = folder.display().to_string();
    let own = ["--config-str", config, "--discovery-period-ms", "20", "--discovery-dir", &folder];
    common::proxy(&[&own, more].concat())
}

/// The configuration's one pool, which the endpoint names.
fn pool_of(endpoint: &FakeElastiCache) -> String {
    let source = format!("elasticache:{}", endpoint.address());
    format!(r#"{{"pools": {{"A": "{source}"}}, "route": "PoolRoute|A"}}"#)
}

#[test]
fn an_unavailable_source_is_reported_once_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::memcached(&[]);
    let endpoint = FakeElastiCache::new(cluster(&[server.addr()]));
    let config = pool_of(&endpoint);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let start = || {
        let told = Arc::clone(&lines);
        let dir = folder.path().display().to_string();
        let words =
            ["--config-str", &config, "--discovery-period-ms", "20", "--discovery-dir", &dir];
        common::told_proxy(&words, move |line| told.lock().unwrap().push(line.to_owned())).unwrap()
    };
    let count = |what: &str| {
        let lines = lines.lock().unwrap();
        lines.iter().filter(|line| line.contains("elasticache:") && line.contains(what)).count()
    };
    let address = start();
    let failures = || common::stat(address, "config_failures");
    assert_eq!(failures(), 0);
    endpoint.set_answer("ERROR\r\n".to_owned());
    eventually("each question that fails is counted", || failures() > 2);
    assert_eq!(count("it answers \"ERROR\"; the servers that it named last stay"), 1);
    assert_eq!(servers(address), [server.addr().to_string()]);
    // A proxy that starts from the saved copy also says so.
    let other = start();
    eventually("the other counts it", || common::stat(other, "config_failures") > 0);
    assert_eq!(count("named last stay"), 2);
    endpoint.set_answer(cluster(&[server.addr()]));
    eventually("both report that it is back", || count("it names its servers again") == 2);
    assert_eq!(count("named last stay"), 2);
}

/// An answer that arrives byte by byte, endlessly.
#[test]
fn a_slow_source_does_not_block_configuration_files() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut asked = listener.incoming().map_while(Result::ok);
        let first = cluster(&["127.0.0.1:1".parse().unwrap()]);
        let mut client = asked.next().unwrap();
        let _ = client.read(&mut [0; 64]);
        client.write_all(first.as_bytes()).unwrap();
        drop(client);
        for mut client in asked {
            thread::spawn(move || {
                while client.write_all(b"C").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
    });
    let file = folder.path().join("routes.json");
    let write = |route: &str| {
        let pools = format!(r#"{{"A": "elasticache:{source}"}}"#);
        fs::write(&file, format!(r#"{{"pools": {pools}, "route": "{route}"}}"#)).unwrap();
    };
    write("PoolRoute|A");
    let words = ["-f", file.to_str().unwrap(), "--discovery-period-ms", "20"];
    let address = common::proxy(&words).unwrap();
    let failures = || common::stat(address, "config_failures");
    eventually("the source is late", || failures() > 0);
    write("NullRoute");
    eventually("the file is read", || ask(address, "get a\r\n") == "END\r\n");
}

/// The servers known to the proxy, by the lines of `stats servers`.
fn servers(address: SocketAddr) -> Vec<String> {
    let lines = ask(address, "stats servers\r\n");
    let names = lines.lines().filter_map(|line| line.strip_prefix("STAT "));
    names.filter_map(|line| line.split(":ascii").next()).map(str::to_owned).collect()
}

#[test]
fn members_change_and_a_failed_source_removes_none() {
    let folder = tempfile::tempdir().unwrap();
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let endpoint = FakeElastiCache::new(cluster(&[one]));
    let config = format!(
        r#"{{"pools": {{"A": "elasticache:{}"}}, "route": "PoolRoute|A"}}"#,
        endpoint.address()
    );
    let address = proxy(&config, folder.path(), &[]).unwrap();
    assert_eq!(ask(address, "set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert_eq!(servers(address), [one.to_string()]);
    endpoint.set_answer(cluster(&[two, one]));
    let mut both = [one.to_string(), two.to_string()];
    both.sort();
    let sorted = || {
        let mut known = servers(address);
        known.sort();
        known
    };
    eventually("the second joins", || sorted() == both);
    // Nothing, nonsense, half an answer, silence: all servers stay, and answer.
    let half = cluster(&[one])[..30].to_owned();
    for wrong in [cluster(&[]), "ERROR\r\n".to_owned(), half, String::new()] {
        endpoint.set_answer(wrong);
        assert_eq!(sorted(), both);
    }
    endpoint.set_answer(cluster(&[two]));
    eventually("the first leaves", || servers(address) == [two.to_string()]);
    // A start without any answer: the last known servers.
    endpoint.set_answer("ERROR\r\n".to_owned());
    let again = proxy(&config, folder.path(), &[]).unwrap();
    assert_eq!(ask(again, "get absent\r\n"), "END\r\n");
    assert_eq!(servers(again), [two.to_string()]);
    let unknown = config.replace("elasticache:", "elasticache:localhost.invalid:1,");
    assert!(proxy(&unknown, folder.path(), &[]).unwrap_err().contains("elasticache:"));
}

/// The same two servers, in changing pools and places.
#[test]
fn servers_can_change_their_pool_or_place() {
    let folder = tempfile::tempdir().unwrap();
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let a = FakeElastiCache::new(named_cluster(&[("a", one), ("b", two)]));
    let b = FakeElastiCache::new(named_cluster(&[("a", one)]));
    let config = format!(
        r#"{{"pools": {{"A": "elasticache:{}", "B": "elasticache:{}"}},
             "route": {{"type": "PrefixSelectorRoute", "policies": {{"b:": "PoolRoute|B"}},
                        "wildcard": "PoolRoute|A"}}}}"#,
        a.address(),
        b.address()
    );
    let address = proxy(&config, folder.path(), &["--serve-cluster", "B"]).unwrap();
    let places = |prefix: &str| {
        let asked = (0..20).map(|number| {
            let key = format!("{prefix}{number}");
            let reply = ask(address, &format!("get __mcrouter__.route(get,{key})\r\n"));
            [one, two].map(|server| reply.contains(&server.to_string()))
        });
        asked.collect::<Vec<_>>()
    };
    let told = || ask(address, "config get cluster\r\n");
    let (is_one, is_two) = ([true, false], [false, true]);
    assert_eq!(places("b:"), [is_one; 20]);
    b.set_answer(named_cluster(&[("a", one), ("b", two)]));
    eventually("the second joins the other pool", || places("b:").contains(&is_two));
    b.set_answer(named_cluster(&[("b", two)]));
    eventually("the first leaves one pool of two", || places("b:") == [is_two; 20]);
    assert!(!told().contains(&format!("127.0.0.1|{}", one.port())), "{}", told());
    let other = |[one, two]: [bool; 2]| [two, one];
    let swapped: Vec<_> = places("a:").into_iter().map(other).collect();
    a.set_answer(named_cluster(&[("a", two), ("b", one)]));
    eventually("the names have each other's address", || places("a:") == swapped);
    // The version counts configurations. Without changes it stays.
    let before = told();
    a.wait_for_questions();
    b.wait_for_questions();
    assert_eq!(told(), before);
}

#[test]
fn a_name_resolves_to_all_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::memcached(&[]);
    let port = server.addr().port();
    let config = format!(r#"{{"pools": {{"A": "dns:localhost:{port}"}}, "route": "PoolRoute|A"}}"#);
    let address = proxy(&config, folder.path(), &[]).unwrap();
    assert!(servers(address).contains(&format!("127.0.0.1:{port}")), "{:?}", servers(address));
}

/// A child process, ended with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real etcd: `etcdctl` adds, removes and overwrites members. When etcd is gone, they stay.
#[test]
fn etcd_keys_under_a_prefix_are_members() {
    let folder = tempfile::tempdir().unwrap();
    let (client, peer) = (free_port(), free_port());
    let (client_url, peer_url) =
        (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(folder.path().join("etcd"));
    command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", &format!("default={peer_url}")]);
    let etcd = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let control = |words: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &client_url]).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    eventually("etcd answers", || control(&["endpoint", "health"]));
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(|server| server.addr().to_string());
    assert!(control(&["put", "cache/a", &one]) && control(&["put", "other/a", "10.9.9.9:1"]));
    // The first endpoint does not exist.
    let config = format!(
        r#"{{"pools": {{"A": "etcd:127.0.0.1:1,127.0.0.1:{client}/cache/"}}, "route": "PoolRoute|A"}}"#
    );
    let address = proxy(&config, folder.path(), &[]).unwrap();
    assert_eq!(servers(address), std::slice::from_ref(&one));
    assert_eq!(ask(address, "set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert!(control(&["put", &format!("cache/{two}"), ""]));
    let known = || servers(address).into_iter().collect::<BTreeSet<_>>();
    eventually("the second joins", || known() == BTreeSet::from([one.clone(), two.clone()]));
    assert!(control(&["del", "cache/a"]));
    eventually("the first leaves", || known() == BTreeSet::from([two.clone()]));
    assert!(control(&["del", "--prefix", "cache/"]));
    drop(etcd);
    assert_eq!(ask(address, "get absent\r\n"), "END\r\n");
    assert_eq!(servers(address), std::slice::from_ref(&two));
    let again = proxy(&config, folder.path(), &[]).unwrap();
    assert_eq!(servers(again), [two]);
}

/// Makes a self-signed certificate for 127.0.0.1, and its key; returns their names.
fn certify(folder: &Path) -> (String, String) {
    let (cert, key) = (folder.join("cert"), folder.join("key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert.display().to_string(), key.display().to_string())
}

/// A real etcd with TLS and a login: a proxy that does not trust it, or has another password,
/// learns nothing.
#[test]
fn etcd_with_tls_and_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certify(folder.path());
    let (client, peer) = (free_port(), free_port());
    let (client_url, peer_url) =
        (format!("https://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(folder.path().join("etcd"));
    command.args(["--cert-file", &cert, "--key-file", &key]);
    command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", &format!("default={peer_url}")]);
    let _etcd = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let control = |words: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &client_url, "--cacert", &cert]);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    eventually("etcd answers", || control(&["endpoint", "health"]));
    let server = Server::memcached(&[]);
    assert!(control(&["put", "cache/a", &server.addr().to_string()]));
    assert!(control(&["user", "add", "root:good"]) && control(&["auth", "enable"]));
    let config = format!(
        r#"{{"pools": {{"A": "etcd+tls:127.0.0.1:{client}/cache/"}}, "route": "PoolRoute|A"}}"#
    );
    let login = folder.path().join("login").display().to_string();
    fs::write(&login, "root:good\n").unwrap();
    let trusting = ["--discovery-pem-ca-path", &cert, "--discovery-auth-file", &login];
    for (flags, why) in
        [(&trusting[..2], "400"), (&trusting[2..], "ertificate"), (&[], "ertificate")]
    {
        let refused = proxy(&config, folder.path(), flags).unwrap_err();
        assert!(refused.contains(why), "{flags:?}: {refused}");
    }
    let address = proxy(&config, folder.path(), &trusting).unwrap();
    assert_eq!(servers(address), [server.addr().to_string()]);
    assert_eq!(ask(address, "set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    fs::write(&login, "root:bad\n").unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let refused = proxy(&config, &elsewhere, &trusting).unwrap_err();
    assert!(refused.contains("400") || refused.contains("401"), "{refused}");
}

/// Encryption in transit: a proxy that serves a cluster's configuration by TLS is the endpoint.
#[test]
fn elasticache_endpoint_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certify(folder.path());
    let server = Server::memcached(&[]).addr().to_string();
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"]}}}}, "route": "PoolRoute|A"}}"#);
    let port = free_port().to_string();
    let by_tls = ["--ssl-port", &port, "--pem-cert-path", &cert, "--pem-key-path", &key];
    proxy(&config, folder.path(), &[&by_tls[..], &["--serve-cluster", "A"]].concat()).unwrap();
    let config = format!(
        r#"{{"pools": {{"A": "elasticache+tls:localhost:{port}"}}, "route": "PoolRoute|A"}}"#
    );
    let refused = proxy(&config, folder.path(), &[]).unwrap_err();
    assert!(refused.contains("ertificate"), "{refused}");
    let address = proxy(&config, folder.path(), &["--discovery-pem-ca-path", &cert]).unwrap();
    assert_eq!(servers(address), [server]);
}

/// A real resolver, dnsmasq: SRV records and the addresses of their hosts.
#[test]
fn srv_records_are_members() {
    let folder = tempfile::tempdir().unwrap();
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(|server| server.addr().port());
    let port = free_port();
    let start = |records: &[(u16, u16)]| {
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ]);
        command.args([
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--user=root",
            "--pid-file=",
        ]);
        command.arg(format!("--port={port}")).arg("--address=/cache.test/127.0.0.1");
        for (port, priority) in records {
            command.arg(format!(
                "--srv-host=_memcached._tcp.test,n{port}.cache.test,{port},{priority}"
            ));
        }
        let program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("the resolver listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        program
    };
    let resolver = start(&[(one, 1), (9, 2)]);
    let config = format!(
        r#"{{"pools": {{"A": "srv:_memcached._tcp.test@127.0.0.1:{port}"}}, "route": "PoolRoute|A"}}"#
    );
    let address = proxy(&config, folder.path(), &[]).unwrap();
    assert_eq!(servers(address), [format!("127.0.0.1:{one}")]);
    drop(resolver);
    let resolver = start(&[(one, 1), (two, 1)]);
    let both: BTreeSet<_> = [one, two].map(|port| format!("127.0.0.1:{port}")).into();
    let known = || servers(address).into_iter().collect::<BTreeSet<_>>();
    eventually("the second joins", || known() == both);
    drop(resolver);
    let _empty = start(&[]);
    assert_eq!(ask(address, "get absent\r\n"), "END\r\n");
    assert_eq!(known(), both);
}

/// One proxy reports its servers to another, as Amazon does; without the option it does not.
#[test]
fn a_proxy_can_be_the_discovery_source_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(|server| server.addr().to_string());
    let port = all[1].addr().port();
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{one}", "localhost:{port}"]}}}}, "route": "PoolRoute|A"}}"#
    );
    let first = proxy(&config, folder.path(), &["--serve-cluster", "A"]).unwrap();
    let told = ask(first, "config get cluster\r\n");
    let list = format!("127.0.0.1|127.0.0.1|{} localhost|127.0.0.1|{port}", all[0].addr().port());
    assert!(told.starts_with("CONFIG cluster 0 ") && told.contains(&list), "{told}");
    assert!(told.ends_with("\n\r\nEND\r\n"), "{told}");
    let config = format!(r#"{{"pools": {{"A": "elasticache:{first}"}}, "route": "PoolRoute|A"}}"#);
    let second = proxy(&config, folder.path(), &[]).unwrap();
    let known: BTreeSet<_> = servers(second).into_iter().collect();
    assert_eq!(known, BTreeSet::from([one, two]));
    assert_eq!(ask(second, "config get cluster\r\n"), "ERROR\r\n");
    let wrong = proxy(&config, folder.path(), &["--serve-cluster", "B"]).unwrap_err();
    assert!(wrong.contains("no pool 'B'"), "{wrong}");
}

/// Clients place keys by the names, so the proxy does not replace them by addresses.
#[test]
fn a_proxy_serves_the_names_that_its_source_gave() {
    let folder = tempfile::tempdir().unwrap();
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let endpoint =
        FakeElastiCache::new(named_cluster(&[("node-0.cache", one), ("node-1.cache", two)]));
    let address = proxy(&pool_of(&endpoint), folder.path(), &["--serve-cluster", "A"]).unwrap();
    let told = ask(address, "config get cluster\r\n");
    let (one, two) = (one.port(), two.port());
    let list = format!("node-0.cache|127.0.0.1|{one} node-1.cache|127.0.0.1|{two}");
    assert!(told.contains(&list), "{told}");
}
