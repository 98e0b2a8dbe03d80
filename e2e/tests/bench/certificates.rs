//! Servers that require a certificate from the bench: holdall and Debian's memcached.

use e2e::certificates::Certificates;
use testkit::process::free_port;
use testkit::{Kind, Launch, Server};

use super::{command, measured, said};

const KINDS: [Kind; 2] = [Kind::Holdall, Kind::Memcached];

/// A server that speaks TLS, and its address.
fn secured(kind: Kind, certificates: &Certificates, more: &str) -> (Server, String) {
    let (port, plain) = (free_port(), free_port());
    let (listen, plain_listen) = (format!("127.0.0.1:{port}"), format!("notls:127.0.0.1:{plain}"));
    let options = certificates.options(more);
    let args = ["-Z", "-o", &options, "-l", &listen, "-l", &plain_listen];
    (Launch::new(kind).plain_port(plain).args(&args).start(), listen)
}

/// The options that name a run's own certificate and key.
fn identity(certificates: &Certificates, cert: &str, key: &str) -> String {
    let path = |name: &str, kind: &str| certificates.path(&format!("{name}.{kind}"));
    format!("--tls-cert {} --tls-key {}", path(cert, "crt"), path(key, "key"))
}

#[test]
fn the_bench_presents_its_client_certificate() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.crt");
    let requires = format!("ssl_ca_cert={ca},ssl_verify_mode=2");
    for kind in KINDS {
        let (mut server, address) = secured(kind, &certificates, &requires);
        let load = format!("run -s {address} -c 2 -n 50 --keys 10 --preload --verify");
        for trust in [format!("--tls-ca {ca}"), "--tls-insecure".to_owned()] {
            let shown = identity(&certificates, "client", "client");
            // Each new connection shows it, too.
            let words = format!("{load} {trust} {shown} --reconnect 20");
            let result = measured(&words);
            assert_eq!((result.total.requests, result.wrong), (100, 0), "{kind:?}");
            assert!(result.connects >= 4, "{kind:?}: {} connections", result.connects);
        }
        let [foreign, expired] =
            ["foreign", "expired"].map(|name| identity(&certificates, name, name));
        for shown in [String::new(), foreign, expired] {
            let output = command(&format!("{load} --tls-ca {ca} {shown}")).output().unwrap();
            let (text, errors) = said(&output);
            assert_eq!(output.status.code(), Some(1), "{kind:?}, {shown:?}: {text}{errors}");
            // In TLS 1.3 the refusal comes after the handshake, and the end of the connection may
            // overtake it.
            let words = ["alert", "closed", "reset", "Broken pipe"];
            let is_told = words.iter().any(|word| errors.contains(word));
            assert!(is_told, "{kind:?}, {shown:?}: {errors}");
        }
        server.assert_alive("clients that it refused");
    }
}

#[test]
fn unusable_certificate_files_and_untrusted_servers_are_reported() {
    let certificates = Certificates::new();
    let (_server, address) = secured(Kind::Holdall, &certificates, "");
    let (ca, other) = (certificates.path("ca.crt"), certificates.path("other-ca.crt"));
    let load = format!("run -s {address} -c 1 -n 5 --keys 10");
    let client = identity(&certificates, "client", "client");
    // A server that requires no certificate accepts one.
    assert_eq!(measured(&format!("{load} --tls-ca {ca} {client}")).total.requests, 5);
    let absent = identity(&certificates, "absent", "client");
    let mixed = identity(&certificates, "client", "foreign");
    for (words, status, why) in [
        (format!("--tls-ca {ca} {absent}"), 1, "absent.crt"),
        (format!("--tls-ca {ca} {mixed}"), 1, "key"),
        (format!("--tls-ca {other}"), 1, "certificate"),
        (client, 64, "--tls-ca"),
    ] {
        let output = command(&format!("{load} {words}")).output().unwrap();
        let (_, errors) = said(&output);
        assert!(output.status.code() == Some(status) && errors.contains(why), "{words}: {errors}");
    }
}
