//! TLS: popular clients, reload, and peers with errors in their TLS or without any.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::process::free_port;
use testkit::process::raise_open_files;
use testkit::{Launch, Server, Wire};

use crate::certificates::Certificates;
use crate::{output, python};

/// A server with TLS on one port and none on another.
pub(crate) struct Both {
    pub(crate) server: Server,
    pub(crate) tls: SocketAddr,
}

impl Both {
    pub(crate) fn start(
        certificates: &Certificates,
        prefix: &str,
        options: &str,
        more: &[&str],
    ) -> Self {
        let port = free_port();
        let options = certificates.options(options);
        let listen = format!("{prefix}127.0.0.1:{port}");
        // testkit's own `-l 127.0.0.1` is encrypted as well; tests use an additional plain
        // listener.
        let plain = free_port();
        let plain_listen = format!("notls:127.0.0.1:{plain}");
        let args = ["-Z", "-v", "-o", &options, "-l", &listen, "-l", &plain_listen];
        let server = Launch::new(testkit::Kind::Holdall).plain_port(plain);
        let server = server.args(&args).args(more).start();
        Self { server, tls: ([127, 0, 0, 1], port).into() }
    }

    fn stat(&self, name: &str) -> u64 {
        self.server.stat(name)
    }

    /// Waits for this number of failed handshakes: a client may notice its failure before the
    /// worker has counted it.
    #[track_caller]
    fn wait_for_failed_handshakes(&self, count: u64) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let counted = self.stat("ssl_handshake_errors");
            if counted == count {
                return;
            }
            assert!(counted < count && Instant::now() < deadline, "{counted} of {count} counted");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Panics unless other clients are still served, with TLS and without.
    #[track_caller]
    pub(crate) fn assert_alive(&mut self, certificates: &Certificates, after: &str) {
        self.server.assert_alive(after);
        let mut stream = connect(self.tls, &certificates.client("ca", Some("client"))).unwrap();
        stream.write_all(b"get probe\r\n").unwrap();
        assert_eq!(read(&mut stream, 24), b"VALUE probe 0 2\r\nok\r\nEND", "after {after}");
    }
}

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Connects, and completes the handshake: the server's reply shows that it accepted the client's
/// certificate.
pub(crate) fn connect(addr: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Stream> {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut stream = StreamOwned::new(session, socket);
    stream.write_all(b"mn\r\n")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"MN\r\n");
    Ok(stream)
}

pub(crate) fn read(stream: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn pymemcache_with_a_tls_context() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &[]);
    python("check_tls.py", &[&both.tls.to_string(), &certificates.path("ca.crt")]);
}

#[test]
fn openssl_s_client_with_both_tls_versions() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let (address, ca) = (both.tls.to_string(), certificates.path("ca.crt"));
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-CAfile", &ca, version]);
        command.args(["-connect", &address]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let sent = b"set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n";
        child.stdin.as_mut().unwrap().write_all(sent).unwrap();
        let out = child.wait_with_output().unwrap().stdout;
        assert_eq!(
            out.escape_ascii().to_string(),
            b"STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\n".escape_ascii().to_string(),
            "{version}"
        );
    }
    let old = ["s_client", "-connect", &both.tls.to_string(), "-tls1_1"];
    let old = Command::new("openssl").args(old).stdin(Stdio::null()).output().unwrap();
    assert!(!old.status.success(), "TLS 1.1 is spoken");
}

/// As in memcached: with TLS, too, the counts are those of the protocol's bytes.
#[test]
fn counts_of_bytes_are_those_of_plain_text() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &[]);
    let mut stream = connect(both.tls, &certificates.client("ca", None)).unwrap();
    let mut counts = |requests: &[(&[u8], usize)]| {
        for (request, reply) in requests {
            stream.write_all(request).unwrap();
            read(&mut stream, *reply);
        }
        stream.write_all(b"stats\r\n").unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"\r\nEND\r\n") {
            text.extend(read(&mut stream, 1));
        }
        let text = String::from_utf8(text).unwrap();
        let count = |name: &str| {
            let (_, rest) = text.split_once(&format!("STAT {name} ")).unwrap();
            rest.split_once('\r').unwrap().0.parse::<usize>().unwrap()
        };
        (count("bytes_read"), count("bytes_written"), text.len())
    };
    let (read_before, written_before, stats_len) = counts(&[]);
    let set = [b"set k 0 0 1000000\r\n".to_vec(), vec![b'v'; 1_000_000], b"\r\n".to_vec()].concat();
    let requests: [(&[u8], usize); 4] =
        [(b"get none\r\n", 5), (&set, 8), (b"get k\r\n", 1_000_026), (b"get none\r\n", 5)];
    let (read, written, _) = counts(&requests);
    let sent: usize = requests.iter().map(|(request, _)| request.len()).sum();
    let replies: usize = requests.iter().map(|(_, reply)| reply).sum();
    assert_eq!(read - read_before, sent + b"stats\r\n".len());
    assert_eq!(written - written_before, replies + stats_len);
}

/// Large values stay intact in TLS, even with a slow reader; memory stays bounded.
#[test]
fn large_values_stay_whole_for_slow_tls_readers() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &["-m", "1024", "-I", "16m", "-t", "2"]);
    let config = certificates.client("ca", None);
    let value: Vec<u8> = (0..8_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut stream = connect(both.tls, &config).unwrap();
    stream.write_all(format!("set large 0 0 {}\r\n", value.len()).as_bytes()).unwrap();
    stream.write_all(&value).unwrap();
    stream.write_all(b"\r\n").unwrap();
    assert_eq!(read(&mut stream, 8), b"STORED\r\n");
    let before = both.server.rss_bytes();
    let mut slow: Vec<_> = (0..20).map(|_| connect(both.tls, &config).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"get large\r\n").unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    let grown = both.server.rss_bytes().saturating_sub(before);
    eprintln!("20 unread replies of 8 MB cost {} KiB each", grown / 20 / 1024);
    assert!(grown < 20 * 256 * 1024, "{grown} bytes for 20 readers that do not read");
    for stream in &mut slow {
        assert_eq!(
            read(stream, 25),
            b"VALUE large 0 8000000\r\n"[..].iter().chain(&value[..2]).copied().collect::<Vec<_>>()
        );
        assert!(read(stream, value.len() - 2) == value[2..], "another value came back");
        assert_eq!(read(stream, 7), b"\r\nEND\r\n");
    }
}

/// Requests cut anywhere, and many at once, get the same replies as without TLS.
#[test]
fn pipelined_and_split_tls_requests() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &[]);
    let mut stream = connect(both.tls, &certificates.client("ca", None)).unwrap();
    let request = b"set k 0 0 3\r\nabc\r\nget k\r\nmg k v\r\n";
    let want = b"STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\nVA 3\r\nabc\r\n";
    for cut in 1..request.len() {
        stream.write_all(&request[..cut]).unwrap();
        stream.flush().unwrap();
        stream.write_all(&request[cut..]).unwrap();
        assert_eq!(read(&mut stream, want.len()), want, "cut at {cut}");
    }
    stream.write_all(&request.repeat(5000)).unwrap();
    assert!(read(&mut stream, want.len() * 5000) == want.repeat(5000));
}

#[test]
fn a_required_certificate_must_be_valid() {
    let certificates = Certificates::new();
    let ca = format!("ssl_ca_cert={}", certificates.path("ca.crt"));
    for (prefix, options) in [("", format!("{ca},ssl_verify_mode=2")), ("mtls:", ca)] {
        let mut both = Both::start(&certificates, prefix, &options, &[]);
        for (own, why) in [
            (None, "peer sent no certificates"),
            (Some("expired"), "certificate expired"),
            (Some("foreign"), "UnknownIssuer"),
        ] {
            let begin = Instant::now();
            // The log has one line per second for each peer.
            while !both.server.log().contains(why) {
                let before = both.stat("ssl_handshake_errors");
                let refused = connect(both.tls, &certificates.client("ca", own));
                assert!(refused.is_err(), "{own:?} was served");
                both.wait_for_failed_handshakes(before + 1);
                assert!(begin.elapsed() < Duration::from_secs(60), "{why} is not in the log");
                thread::sleep(Duration::from_millis(200));
            }
        }
        both.assert_alive(&certificates, "bad certificates");
    }
}

/// Mode 1 accepts a missing certificate, but refuses a bad one; `btls:` requests none.
#[test]
fn an_optional_certificate_may_be_missing_but_not_invalid() {
    let certificates = Certificates::new();
    let ca = format!("ssl_ca_cert={},ssl_verify_mode=1", certificates.path("ca.crt"));
    let both = Both::start(&certificates, "", &ca, &[]);
    assert!(connect(both.tls, &certificates.client("ca", None)).is_ok());
    assert!(connect(both.tls, &certificates.client("ca", Some("client"))).is_ok());
    assert!(connect(both.tls, &certificates.client("ca", Some("foreign"))).is_err());
    let required = ca.replace("mode=1", "mode=2");
    let both = Both::start(&certificates, "btls:", &required, &[]);
    assert!(connect(both.tls, &certificates.client("ca", None)).is_ok());
}

/// A client that trusts another authority sends an alert, which is counted and logged.
#[test]
fn a_distrusting_clients_alert_is_counted_and_logged() {
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &[]);
    assert!(connect(both.tls, &certificates.client("other-ca", None)).is_err());
    both.wait_for_failed_handshakes(1);
    both.server.wait_for_log("UnknownCA");
    both.assert_alive(&certificates, "a client that does not trust us");
}

#[test]
fn certificates_are_reloaded_without_a_restart() {
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &[]);
    let trusting = certificates.client("ca", None);
    let other = certificates.client("other-ca", None);
    let mut old = connect(both.tls, &trusting).unwrap();
    let mut admin = both.server.connect();
    // A bad file: the old ones stay, and the reply has the reason.
    std::fs::write(certificates.path("server.crt"), "nonsense").unwrap();
    admin.send(b"refresh_certs\r\n");
    let answer = admin.line();
    assert!(answer.starts_with("ERROR ") && answer.contains("holds no certificate"), "{answer}");
    assert!(connect(both.tls, &trusting).is_ok());
    // A certificate with the key of another.
    certificates.issue("server", "ca");
    std::fs::copy(certificates.path("client.key"), certificates.path("server.key")).unwrap();
    admin.send(b"refresh_certs\r\n");
    let answer = admin.line();
    assert!(answer.starts_with("ERROR "), "{answer}");
    assert!(connect(both.tls, &trusting).is_ok());
    // Good files, from the other authority: loaded by the command, then replaced again by SIGHUP.
    certificates.issue("server", "other-ca");
    admin.expect(b"refresh_certs\r\n", b"OK\r\n");
    assert!(connect(both.tls, &other).is_ok() && connect(both.tls, &trusting).is_err());
    assert!(both.stat("time_since_server_cert_refresh") < 20);
    certificates.issue("server", "ca");
    output(Command::new("kill").args(["-HUP", &both.server.pid().to_string()]));
    let deadline = Instant::now() + Duration::from_secs(20);
    while connect(both.tls, &trusting).is_err() {
        assert!(Instant::now() < deadline, "SIGHUP changed nothing: {}", both.server.log());
        thread::sleep(Duration::from_millis(20));
    }
    old.write_all(b"mn\r\n").unwrap();
    assert_eq!(read(&mut old, 4), b"MN\r\n", "an old connection goes on");
    both.assert_alive(&certificates, "reloads");
}

/// Plain text to a TLS port, garbage of every kind, TLS to a plain port: reported, counted, and
/// without effect on other clients.
#[test]
fn non_tls_input_is_refused() {
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &[]);
    let hello: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let inputs: [&[u8]; 8] = [
        b"get k\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x80; 200],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5],
        &[0x15, 3, 3, 0, 2, 2, 40],
        &[0x16, 3, 1, 0, 4, 2, 0, 0, 0],
        &[0; 70_000],
    ];
    for (before, input) in (0..).zip(inputs) {
        let mut wire = Wire::connect(both.tls);
        wire.send_for(input, Duration::from_millis(500));
        wire.read_for(Duration::from_secs(1));
        assert!(both.stat("ssl_handshake_errors") > before, "{}", input.escape_ascii());
    }
    both.server.wait_for_log("not TLS");
    // An endless handshake message is cut off above the size of a client's certificates.
    let mut wire = Wire::connect(both.tls);
    let record = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &vec![0; 0x4000 - 4]].concat();
    for _ in 0..4 {
        wire.send_for(&record, Duration::from_millis(200));
    }
    wire.read_for(Duration::from_millis(500));
    assert!(both.stat("ssl_handshake_errors") > 8);
    let mut wire = both.server.connect();
    wire.send(hello);
    let alert = wire.read_for(Duration::from_millis(500));
    assert_eq!(alert, [0x15, 3, 1, 0, 2, 2, 70], "a TLS client hears it in its own words");
    both.assert_alive(&certificates, "what is not TLS");
}

/// Garbage in the middle of a session, such as an old renegotiation, ends only that session.
#[test]
fn a_broken_tls_session_affects_no_other() {
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &[]);
    let config = certificates.client("ca", None);
    for garbage in [&[0x16, 3, 3, 0, 4, 1, 0, 0, 0][..], &[0x17, 3, 3, 0, 32], &[0xff; 100]] {
        let before = both.stat("ssl_proto_errors");
        let stream = connect(both.tls, &config).unwrap();
        let mut socket = stream.sock.try_clone().unwrap();
        socket.write_all(garbage).unwrap();
        socket.write_all(&[0; 32]).unwrap();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert_eq!(both.stat("ssl_proto_errors"), before + 1);
    }
    both.assert_alive(&certificates, "broken sessions");
}

/// A thousand unfinished handshakes hold little memory, time out, and affect no other client.
#[test]
fn unfinished_handshakes_use_little_memory_and_time_out() {
    assert!(raise_open_files(4096) >= 4096);
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &["-c", "3000"]);
    let mut bystander = connect(both.tls, &certificates.client("ca", None)).unwrap();
    let before = both.server.rss_bytes();
    let begun = Instant::now();
    let mut held: Vec<Wire> = (0..1000).map(|_| Wire::connect(both.tls)).collect();
    for (index, wire) in held.iter_mut().enumerate() {
        // Nothing, a part of a hello, or an incomplete hello of maximum length.
        match index % 3 {
            0 => {}
            1 => wire.send(&[0x16, 3, 1, 2, 0, 1, 0, 1]),
            _ => wire.send(&[&[0x16, 3, 1, 0x3f, 0, 1, 0, 0x7f, 0][..], &[0; 0x3e00]].concat()),
        }
    }
    bystander.write_all(b"mn\r\n").unwrap();
    assert_eq!(read(&mut bystander, 4), b"MN\r\n");
    let grown = both.server.rss_bytes().saturating_sub(before);
    eprintln!("1000 half handshakes cost {} KiB each", grown / 1000 / 1024);
    assert!(grown < 48 * 1024 * 1000, "{grown} bytes");
    both.assert_alive(&certificates, "half handshakes");
    let deadline = begun + Duration::from_secs(40);
    while both.stat("ssl_handshake_errors") < 1000 {
        assert!(Instant::now() < deadline, "{} closed", both.stat("ssl_handshake_errors"));
        thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() >= Duration::from_secs(10));
    bystander.write_all(b"mn\r\n").unwrap();
    assert_eq!(read(&mut bystander, 4), b"MN\r\n");
}

/// An idle TLS connection holds at most 48 KiB, and the server counts it.
#[test]
fn idle_connections_are_cheap_and_counted() {
    assert!(raise_open_files(4096) >= 4096);
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &["-c", "3000"]);
    let config = certificates.client("ca", None);
    let _first = connect(both.tls, &config).unwrap();
    let (rss, charged) = (both.server.rss_bytes(), both.stat("buffer_bytes"));
    let held: Vec<_> = (0..1000).map(|_| connect(both.tls, &config).unwrap()).collect();
    let rss = both.server.rss_bytes().saturating_sub(rss) / 1000;
    let charged = (both.stat("buffer_bytes") - charged) / 1000;
    eprintln!("an idle TLS connection: {rss} bytes resident, {charged} charged");
    assert_eq!(both.stat("ssl_new_sessions"), 1001);
    assert!(rss <= 48 * 1024, "{rss} bytes each");
    assert!(charged >= rss * 2 / 3, "{rss} bytes resident, {charged} charged");
    drop(held);
}

#[test]
fn session_resumption_can_be_enabled() {
    let certificates = Certificates::new();
    for (options, resumed) in [("", false), ("ssl_session_cache", true)] {
        let both = Both::start(&certificates, "", options, &[]);
        let config = certificates.client("ca", None);
        drop(connect(both.tls, &config).unwrap());
        let mut again = connect(both.tls, &config).unwrap();
        let kind = again.conn.handshake_kind();
        assert_eq!(kind == Some(rustls::HandshakeKind::Resumed), resumed, "{kind:?}");
        again.write_all(b"mn\r\n").unwrap();
        assert_eq!(read(&mut again, 4), b"MN\r\n");
    }
}
