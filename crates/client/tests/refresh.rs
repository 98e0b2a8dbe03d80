//! The library queries its sources repeatedly: servers join and leave, and a lying or silent source
//! removes none.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::{BlockingClient, Client};
use testkit::elasticache::{cluster, named_cluster};
use testkit::process::free_port;
use testkit::{FakeElastiCache, Server, eventually};

fn client(source: &str) -> BlockingClient {
    let builder = Client::builder().servers([source]).timeout(Duration::from_secs(60));
    builder.discovery_period(Duration::from_millis(20)).build().unwrap().into()
}

fn known(client: &BlockingClient) -> BTreeSet<String> {
    client.client().servers().into_iter().map(|one| one.address.to_string()).collect()
}

fn set(servers: &[SocketAddr]) -> BTreeSet<String> {
    servers.iter().map(ToString::to_string).collect()
}

#[test]
fn members_can_change_during_calls() {
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let endpoint = FakeElastiCache::new(cluster(&[one]));
    let source = format!("elasticache:{}", endpoint.address());
    let client = client(&source);
    client.set("k", "v", 0).unwrap();
    assert_eq!(known(&client), set(&[one]));
    endpoint.set_answer(cluster(&[one, two]));
    eventually("the second joins", || known(&client) == set(&[one, two]));
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    for key in &keys {
        client.set(key, "v", 0).unwrap();
    }
    assert!(client.get_many(&keys).unwrap().iter().all(|value| matches!(value, Ok(Some(_)))));
    let used = client.client().servers().into_iter().filter(|one| one.totals.answered > 0).count();
    assert_eq!(used, 2, "each has some of a hundred keys");
    // Nothing, nonsense, half an answer, silence: both stay.
    let half = cluster(&[one])[..30].to_owned();
    for wrong in [cluster(&[]), "ERROR\r\n".to_owned(), half, String::new()] {
        endpoint.set_answer(wrong);
        assert_eq!(known(&client), set(&[one, two]));
    }
    endpoint.set_answer(cluster(&[two]));
    eventually("the first leaves", || known(&client) == set(&[two]));
    client.set("k", "v", 0).unwrap();
    // Routes that replace it do not depend on the source.
    let fixed = Client::builder().servers([one.to_string()]);
    client.client().replace_routes(&fixed).unwrap();
    eventually("they are replaced", || known(&client) == set(&[one]));
    // A client that still depends on the source gets the new answer, and this one does not.
    let other = self::client(&source);
    endpoint.set_answer(cluster(&[one, two]));
    eventually("the other has both", || known(&other) == set(&[one, two]));
    assert_eq!(known(&client), set(&[one]));
}

/// The same servers in other places: each key is read from the other's place.
#[test]
fn swapped_addresses_are_accepted() {
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let endpoint = FakeElastiCache::new(named_cluster(&[("a", one), ("b", two)]));
    let client = client(&format!("elasticache:{}", endpoint.address()));
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        client.set(key, "v", 0).unwrap();
    }
    endpoint.set_answer(named_cluster(&[("a", two), ("b", one)]));
    eventually("no key is found", || {
        client.get_many(&keys).unwrap().iter().all(|value| matches!(value, Ok(None)))
    });
}

/// The answers of sources also stay known for routes that replace others.
#[test]
fn replaced_routes_keep_the_answers_of_sources() {
    let server = Server::memcached(&[]);
    let endpoint = FakeElastiCache::new(cluster(&[server.addr()]));
    let source = format!("elasticache:{}", endpoint.address());
    let client = client(&source);
    endpoint.set_answer(String::new());
    client.client().replace_routes(&Client::builder().servers([&source])).unwrap();
    assert_eq!(known(&client), set(&[server.addr()]));
    // Other settings are accepted.
    let login = Some(PathBuf::from("/no/such/file"));
    let files = client::AccessFiles { login, ..client::AccessFiles::default() };
    let refused = Client::builder().servers([&source]).discovery_access(files);
    let error = client.client().replace_routes(&refused).unwrap_err().to_string();
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn a_discovery_period_of_zero_is_refused() {
    let builder = Client::builder().servers(["127.0.0.1:1"]);
    let error = builder.discovery_period(Duration::ZERO).build().unwrap_err().to_string();
    assert!(error.contains("discovery_period is 0ns"), "{error}");
}

/// A child process, ended with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}

#[test]
fn members_follow_the_keys_of_a_real_etcd() {
    let folder: PathBuf = std::env::temp_dir().join(format!("client-etcd-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [port, peer] = [free_port(), free_port()];
    let [url, peer_url] = [port, peer].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(&folder);
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", &format!("default={peer_url}")]);
    let etcd = Program(quiet(&mut command).spawn().unwrap());
    let control = |words: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &url]).args(words);
        quiet(&mut command).status().unwrap().success()
    };
    eventually("etcd answers", || control(&["endpoint", "health"]));
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    assert!(control(&["put", "cache/a", &one.to_string()]));
    let client = client(&format!("etcd:127.0.0.1:{port}/cache/"));
    assert_eq!(known(&client), set(&[one]));
    assert!(control(&["put", "cache/b", &two.to_string()]));
    eventually("the second joins", || known(&client) == set(&[one, two]));
    assert!(control(&["del", "cache/a"]));
    eventually("the first leaves", || known(&client) == set(&[two]));
    drop(etcd);
    client.set("k", "v", 0).unwrap();
    assert_eq!(known(&client), set(&[two]));
    fs::remove_dir_all(&folder).unwrap();
}

/// A real resolver, dnsmasq, whose SRV records change.
#[test]
fn members_follow_srv_records_of_a_real_resolver() {
    let all = [Server::memcached(&[]), Server::memcached(&[])];
    let [one, two] = all.each_ref().map(Server::addr);
    let port = free_port();
    let start = |servers: &[SocketAddr]| {
        let mut command = Command::new("dnsmasq");
        let fixed = "--keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts \
                     --listen-address=127.0.0.1 --bind-interfaces --user=root --pid-file=";
        command.args(fixed.split(' ').filter(|word| !word.is_empty()));
        command.arg(format!("--port={port}")).arg("--address=/cache.test/127.0.0.1");
        for server in servers {
            let port = server.port();
            command.arg(format!("--srv-host=_memcached._tcp.test,n{port}.cache.test,{port},1"));
        }
        let program = Program(quiet(&mut command).spawn().unwrap());
        eventually("the resolver listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        program
    };
    let resolver = start(&[one]);
    let client = client(&format!("srv:_memcached._tcp.test@127.0.0.1:{port}"));
    assert_eq!(known(&client), set(&[one]));
    drop(resolver);
    let resolver = start(&[one, two]);
    eventually("the second joins", || known(&client) == set(&[one, two]));
    drop(resolver);
    let _empty = start(&[]);
    client.set("k", "v", 0).unwrap();
    assert_eq!(known(&client), set(&[one, two]));
}
