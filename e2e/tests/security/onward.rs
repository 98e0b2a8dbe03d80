//! TLS and logins through the proxy: clients that use TLS to it, servers that require TLS or a
//! login, and the library for Rust.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use client::{BlockingClient, Client, Request, TlsOptions};
use e2e::clients::Client as Other;
use testkit::process::free_port;
use testkit::{Kind, Launch, Router, Server};

use crate::certificates::Certificates;
use crate::{Folder, output, python};

const KINDS: [Kind; 2] = [Kind::Holdall, Kind::Memcached];

/// A server with a TLS port.
struct Secured {
    _server: Server,
    tls: SocketAddr,
}

impl Secured {
    fn start(kind: Kind, certificates: &Certificates, options: &str, more: &[&str]) -> Self {
        let (port, plain) = (free_port(), free_port());
        let options = certificates.options(options);
        let listen = format!("127.0.0.1:{port}");
        let plain_listen = format!("notls:127.0.0.1:{plain}");
        let args = ["-Z", "-o", &options, "-l", &listen, "-l", &plain_listen];
        let server = Launch::new(kind).plain_port(plain).args(&args).args(more).start();
        Self { _server: server, tls: ([127, 0, 0, 1], port).into() }
    }
}

/// A proxy over one pool, with further properties of the pool and further arguments.
pub(crate) fn proxy(server: &str, pool: &str, args: &[&str]) -> Router {
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{server}"]{pool}}}}}, "route": "PoolRoute|A"}}"#
    );
    let args: Vec<&str> = args.iter().copied().chain(["--asynclog-disable"]).collect();
    Router::start(&config, &args)
}

/// The proxy's reply to a get of an absent key.
fn get(proxy: &Router) -> String {
    let mut wire = proxy.connect();
    wire.send(b"get absent\r\n");
    wire.line()
}

#[test]
fn tls_from_clients_and_to_servers() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    for kind in KINDS {
        let server = Secured::start(kind, &certificates, "", &[]);
        let port = free_port().to_string();
        let args = ["--ssl-port", &port, "--enable-flush-cmd"];
        let own = ["--pem-cert-path", &path("server.crt"), "--pem-key-path", &path("server.key")];
        let trusts = ["--pem-ca-path", &path("ca.crt")];
        let all = [&args[..], &own, &trusts].concat();
        let proxy = proxy(&format!("localhost:{}:ascii:ssl", server.tls.port()), "", &all);
        python("check_tls.py", &[&format!("127.0.0.1:{port}"), &path("ca.crt")]);
        Other::Pymemcache.check(proxy.addr(), true);
        assert!(proxy.stat("num_servers_up") == 1 && proxy.stat("broken_replies") == 0);
    }
}

/// Two workers; one counts as busy as soon as it uses a hundredth of a processor.
#[test]
fn a_tls_session_survives_a_move_between_workers() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let (server, port) = (Launch::new(Kind::Holdall).start(), free_port());
    let words = port.to_string();
    let own = ["--pem-cert-path", &path("server.crt"), "--pem-key-path", &path("server.key")];
    let more = ["--ssl-port", &words, "--num-proxies", "2", "--gather-below", "1"];
    let proxy = proxy(&server.addr().to_string(), "", &[&own[..], &more].concat());
    let config = certificates.client("ca", None);
    let mut clients: Vec<_> = (0..4)
        .map(|_| crate::tls::connect(([127, 0, 0, 1], port).into(), &config).unwrap())
        .collect();
    let end = Instant::now() + Duration::from_secs(60);
    let mut moved = 0;
    while moved == 0 {
        assert!(Instant::now() < end, "no session has moved");
        for number in (0..clients.len()).cycle().take(4000) {
            let client = &mut clients[number];
            let request = format!("set k{number} 0 0 1\r\n{number}\r\nget k{number}\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let reply = format!("STORED\r\nVALUE k{number} 0 1\r\n{number}\r\nEND\r\n");
            assert_eq!(crate::tls::read(client, reply.len()), reply.as_bytes());
        }
        moved = proxy.stat("num_clients_moved");
    }
}

#[test]
fn a_client_without_a_certificate_is_accepted_only_if_none_is_required() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let server = Launch::new(Kind::Holdall).start();
    let port = free_port();
    let words = port.to_string();
    let own = ["--pem-cert-path", &path("server.crt"), "--pem-key-path", &path("server.key")];
    let more = ["--ssl-port", &words, "--ssl-require-peer-certs", "--pem-ca-path", &path("ca.crt")];
    let _proxy = proxy(&server.addr().to_string(), "", &[&own[..], &more].concat());
    let address = ([127, 0, 0, 1], port).into();
    for (own, is_let_in) in [(Some("client"), true), (None, false), (Some("foreign"), false)] {
        let config = certificates.client("ca", own);
        assert_eq!(crate::tls::connect(address, &config).is_ok(), is_let_in, "{own:?}");
    }
}

#[test]
fn a_server_is_trusted_only_by_its_certificate() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let (ca, other) = (path("ca.crt"), path("other-ca.crt"));
    for kind in KINDS {
        let server = Secured::start(kind, &certificates, "", &[]);
        let tls = r#", "security_mech": "tls""#;
        let named = |name: &str| format!(r#", "use_ssl": true, "hostnames": ["{name}"]"#);
        let cases = [
            (tls.to_owned(), vec!["--pem-ca-path", &ca], true),
            (tls.to_owned(), vec!["--pem-ca-path", &other], false),
            (tls.to_owned(), vec!["--pem-ca-path", &other, "--ssl-verify-peers=false"], true),
            (tls.to_owned(), vec!["--ssl-verify-peers=false"], true),
            (named("localhost"), vec!["--pem-ca-path", &ca, "--ssl-verify-peers"], true),
            (named("other.example"), vec!["--pem-ca-path", &ca], false),
        ];
        for (pool, args, is_good) in cases {
            let line = get(&proxy(&server.tls.to_string(), &pool, &args));
            let begins = if is_good { "END" } else { "SERVER_ERROR TLS: " };
            assert!(line.starts_with(begins), "{kind:?} {pool} {args:?}: {line}");
        }
        // The trusted authorities must be configured.
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": ["{}:ascii:tls"]}}}}, "route": "PoolRoute|A"}}"#,
            server.tls
        );
        let words = ["route", "--validate-config", "--config-str", &config];
        let checked = Command::new(testkit::server::holdall_path()).args(words).output().unwrap();
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(!checked.status.success() && told.contains("--pem-ca-path"), "{told}");
    }
}

#[test]
fn the_proxy_presents_its_client_certificate() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let ca = path("ca.crt");
    for kind in KINDS {
        let asks = format!("ssl_verify_mode=2,ssl_ca_cert={ca}");
        let server = Secured::start(kind, &certificates, &asks, &[]);
        for (own, is_good) in [(Some("client"), true), (None, false), (Some("foreign"), false)] {
            let files = own.map(|own| [path(&format!("{own}.crt")), path(&format!("{own}.key"))]);
            let shown =
                files.as_ref().map(|[cert, key]| ["--pem-cert-path", cert, "--pem-key-path", key]);
            let args = [&["--pem-ca-path", &ca][..], shown.as_ref().map_or(&[], |own| &own[..])];
            let proxy = proxy(&format!("{}:ascii:tls", server.tls), "", &args.concat());
            let line = get(&proxy);
            assert_eq!(line == "END", is_good, "{kind:?} {own:?}: {line}");
            assert!(is_good || line.starts_with("SERVER_ERROR "), "{kind:?} {own:?}: {line}");
        }
    }
}

#[test]
fn the_proxy_logs_in_before_any_request() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\nother:x\n");
    let wrong = folder.write("wrong", "app:wrong\n");
    for kind in KINDS {
        let mut launch = Launch::new(kind).args(&["-Y", &users]);
        if kind == Kind::Holdall {
            launch = launch.args(&["-v"]);
        }
        let server = launch.start();
        let address = server.addr().to_string();
        let good = proxy(&address, "", &["--server-auth-file", &users]);
        let mut wire = good.connect();
        wire.send(b"set k 0 0 1\r\nv\r\nget k\r\n");
        assert_eq!([wire.line(), wire.line(), wire.line()], ["STORED", "VALUE k 0 1", "v"]);
        let bad = proxy(&address, "", &["--server-auth-file", &wrong]);
        let line = get(&bad);
        assert_eq!(line, "SERVER_ERROR the login is refused: CLIENT_ERROR authentication failure");
        assert_eq!(get(&proxy(&address, "", &[])), "CLIENT_ERROR unauthenticated");
    }
}

#[test]
fn a_changed_login_file_is_reloaded() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    let login = folder.write("login", "app:wrong\n");
    let server = Launch::new(Kind::Holdall).args(&["-Y", &users]).start();
    let args = ["--server-auth-file", &login, "--file-observer-poll-period-ms", "5", "-r", "10"];
    let proxy = proxy(&server.addr().to_string(), "", &args);
    let refused = "SERVER_ERROR the login is refused: CLIENT_ERROR authentication failure";
    assert_eq!(get(&proxy), refused);
    folder.write("login", "no login\n");
    proxy.wait_for("config_failures", 1);
    folder.write("login", "app:secret\n");
    proxy.wait_for("config_generation", 2);
    // The refusal had marked the server as down: a probe finds it again.
    let end = Instant::now() + Duration::from_secs(60);
    while get(&proxy) != "END" {
        assert!(Instant::now() < end, "the new login is not used");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_without_tls_fails_only_its_own_requests() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.crt");
    let tls = r#", "security_mech": "tls""#;
    let plain = Launch::new(Kind::Memcached).start();
    let line = get(&proxy(&plain.addr().to_string(), tls, &["--pem-ca-path", &ca]));
    assert!(line.starts_with("SERVER_ERROR "), "{line}");
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let line = get(&proxy(&address, tls, &["--pem-ca-path", &ca, "-t", "100"]));
    assert_eq!(line, "SERVER_ERROR Connection timeout");
}

/// The configured authority was wrong; after it is replaced, SIGHUP makes the proxy read the new
/// one.
#[test]
fn certificates_are_reloaded_on_sighup() {
    let certificates = Certificates::new();
    let server = Secured::start(Kind::Holdall, &certificates, "", &[]);
    let trusted = certificates.path("trusted.crt");
    fs::copy(certificates.path("other-ca.crt"), &trusted).unwrap();
    let args = ["--pem-ca-path", &trusted, "-r", "5", "--probe-timeout-max", "20"];
    let proxy = proxy(&format!("{}:ascii:tls", server.tls), "", &args);
    assert!(get(&proxy).starts_with("SERVER_ERROR TLS: "));
    fs::copy(certificates.path("ca.crt"), &trusted).unwrap();
    output(Command::new("kill").args(["-HUP", &proxy.pid().to_string()]));
    let end = Instant::now() + Duration::from_secs(60);
    while get(&proxy) != "END" {
        assert!(Instant::now() < end, "the server is not believed");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_library_uses_tls_and_logs_in() {
    let certificates = Certificates::new();
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    for kind in KINDS {
        let server = Secured::start(kind, &certificates, "", &["-Y", &users]);
        let options = TlsOptions {
            ca_cert: Some(certificates.path("ca.crt").into()),
            ..TlsOptions::default()
        };
        let builder = Client::builder().servers([format!("localhost:{}", server.tls.port())]);
        let builder = builder.timeout(Duration::from_secs(60)).tls(options).login("app", "secret");
        let client = BlockingClient::from(builder.build().unwrap());
        let large: Vec<u8> = (0..900_000_u32).map(|number| (number % 251) as u8).collect();
        client.set("large", large.clone(), 0).unwrap();
        assert_eq!(client.get("large").unwrap().unwrap().bytes, large);
        for number in 0..1000 {
            client
                .client()
                .store_untold(client::Command::Set, format!("k{number}"), vec![b'v'; number], 0)
                .unwrap();
        }
        let keys: Vec<String> = (0..1000).map(|number| format!("k{number}")).collect();
        for (number, value) in client.get_many(&keys).unwrap().into_iter().enumerate() {
            assert_eq!(value.unwrap().unwrap().bytes.len(), number);
        }
        assert!(client.client().tell(Request::new(client::Command::Delete, b"k1")).is_ok());
        assert_eq!(client.client().servers()[0].totals.connects, 1);
    }
}
