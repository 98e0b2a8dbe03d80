//! Servers that accept only the binary protocol, and require a login by SASL: behind the proxy, and
//! with the library.

use std::process::{Command, Stdio};
use std::time::Duration;

use client::{BlockingClient, Client, Failure};
use testkit::{Kind, Launch, Router, Server};

use crate::certificates::Certificates;
use crate::{Folder, output};

/// A server of this kind with the user `app` and the password `se cret`.
fn server(kind: Kind, folder: &Folder, mechanisms: &str) -> Server {
    launch(Launch::new(kind), kind, folder, mechanisms)
}

/// The same, with more arguments; Debian's memcached must offer these mechanisms.
fn launch(launch: Launch, kind: Kind, folder: &Folder, mechanisms: &str) -> Server {
    let launch = launch.args(&["-S"]);
    match kind {
        Kind::Holdall => {
            let users = folder.write("users", "app:se cret\nother:x\n");
            launch.env("MEMCACHED_SASL_PWDB", &users).start()
        }
        Kind::Memcached => {
            let database = folder.path("sasldb");
            let conf = format!(
                "mech_list: {mechanisms}\npwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\n"
            );
            folder.write("memcached.conf", &conf);
            let mut saslpasswd = Command::new("saslpasswd2");
            saslpasswd.args(["-p", "-c", "-f", &database, "-a", "memcached", "app"]);
            let mut child = saslpasswd.stdin(Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"se cret").unwrap();
            assert!(child.wait().unwrap().success());
            // Started by root, memcached runs as an unprivileged user.
            output(Command::new("chmod").args(["-R", "a+rX", &folder.path("")]));
            launch.env("SASL_CONF_PATH", &folder.path("")).start()
        }
    }
}

/// A proxy that logs in with this file.
fn proxy(server: &Server, users: &str) -> Router {
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"], "protocol": "binary"}}}}, "route": "PoolRoute|A"}}"#,
        server.addr()
    );
    Router::start(&config, &["--server-auth-file", users, "--asynclog-disable"])
}

#[test]
fn the_proxy_logs_in_by_sasl() {
    let cases =
        [(Kind::Holdall, ""), (Kind::Memcached, "plain"), (Kind::Memcached, "scram-sha-256")];
    for (kind, mechanisms) in cases {
        let folder = Folder::new();
        let server = server(kind, &folder, mechanisms);
        let good = folder.write("good", "app:se cret\n");
        let wrong = folder.write("wrong", "app:wrong\n");
        let proxied = proxy(&server, &good);
        let mut wire = proxied.connect();
        wire.send(b"set k 7 0 1\r\nv\r\nget k absent\r\nincr k 1\r\nlease-get k\r\nmg k v f t\r\n");
        let told: Vec<_> = (0..7).map(|_| wire.line()).collect();
        let refused = "CLIENT_ERROR the server's protocol (binary)";
        let want = [
            "STORED".to_owned(),
            "VALUE k 7 1".into(),
            "v".into(),
            "END".into(),
            "CLIENT_ERROR cannot increment or decrement non-numeric value".into(),
            format!("{refused} has no leases"),
            format!("{refused} lacks one of these meta flags"),
        ];
        assert_eq!(told, want, "{kind:?} {mechanisms}");
        wire.send(b"stats servers\r\n");
        let names = wire.line();
        assert!(names.contains(":binary:plain:"), "{names}");
        let refused = proxy(&server, &wrong);
        let mut wire = refused.connect();
        wire.send(b"get k\r\n");
        let line = wire.line();
        assert!(line.starts_with("SERVER_ERROR the login is refused: "), "{kind:?}: {line}");
    }
}

#[test]
fn the_library_logs_in_by_sasl() {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let folder = Folder::new();
        let server = server(kind, &folder, "plain scram-sha-256");
        let client = |password: &str| -> BlockingClient {
            let builder = Client::builder().servers([server.addr().to_string()]).binary();
            // The reply to a refused login takes a second.
            let builder = builder.connect_timeout(Duration::from_secs(60));
            let builder = builder.timeout(Duration::from_secs(60)).login("app", password);
            builder.build().unwrap().into()
        };
        let good = client("se cret");
        good.set("k", "v", 0).unwrap();
        assert_eq!(good.get("k").unwrap().unwrap().decode::<String>().unwrap(), "v");
        // A look-aside read works without leases.
        let rows = good.client().look_aside();
        assert_eq!(good.get_or_load(&rows, "row", || Ok::<i64, String>(5)).unwrap(), 5);
        assert_eq!(good.get("row").unwrap().unwrap().decode::<i64>().unwrap(), 5);
        let told = client("wrong").get("k").unwrap_err();
        assert!(
            matches!(&told, client::Error::Cache(Failure::ConnectError, words) if words.contains("refused")),
            "{kind:?}: {told:?}"
        );
    }
}

/// The binary protocol and a SASL login inside TLS; large values, which take many records.
#[test]
fn the_binary_protocol_works_over_tls() {
    let certificates = Certificates::new();
    for kind in [Kind::Holdall, Kind::Memcached] {
        let folder = Folder::new();
        let port = testkit::process::free_port();
        let listen = format!("127.0.0.1:{port}");
        let plain = testkit::process::free_port();
        let plain_listen = format!("notls:127.0.0.1:{plain}");
        let options = certificates.options("");
        let args = ["-Z", "-o", &options, "-l", &listen, "-l", &plain_listen];
        let secured = Launch::new(kind).plain_port(plain).args(&args);
        let _server = launch(secured, kind, &folder, "plain");
        let tls = client::TlsOptions {
            ca_cert: Some(certificates.path("ca.crt").into()),
            ..client::TlsOptions::default()
        };
        let builder = Client::builder().servers([format!("localhost:{port}")]).binary().tls(tls);
        let builder = builder.timeout(Duration::from_secs(60)).login("app", "se cret");
        let client = BlockingClient::from(builder.build().unwrap());
        let large: Vec<u8> = (0..900_000_u32).map(|number| (number % 251) as u8).collect();
        client.set("large", large.clone(), 0).unwrap();
        assert_eq!(client.get("large").unwrap().unwrap().bytes, large);
        let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
        for (number, key) in keys.iter().enumerate() {
            client.client().store_untold(client::Command::Set, key, vec![b'v'; number], 0).unwrap();
        }
        for (number, value) in client.get_many(&keys).unwrap().into_iter().enumerate() {
            assert_eq!(value.unwrap().unwrap().bytes.len(), number);
        }
        assert_eq!(client.client().servers()[0].totals.connects, 1);
    }
}
