//! Sockets that systemd opened: which of them are served and how, and a server that takes over from
//! one that has them. As with systemd, each socket stays open here while no server has it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use common::{SOON, Scratch, exists, holdall, is_root, kill};
use rustix::process::Signal;
use testkit::eventually;
use testkit::process::free_port;

/// Passes its streams 0 and 1, or only the first, as systemd's sockets.
const ACTIVATE: &str = "exec 3<&0 4<&1 0</dev/null 1>/dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"";

/// The command with sockets that systemd opened for it.
fn with_sockets(command: &Command, sockets: &[&dyn AsFd]) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(ACTIVATE).arg(command.get_program()).args(command.get_args());
    let copy = |socket: &&dyn AsFd| Stdio::from(socket.as_fd().try_clone_to_owned().unwrap());
    let mut streams = sockets.iter().map(copy);
    shell.stdin(streams.next().unwrap());
    shell.stdout(streams.next().unwrap_or_else(Stdio::null));
    shell.env("LISTEN_FDS", sockets.len().to_string());
    shell
}

/// A process with its log, killed when dropped.
struct Started {
    child: Child,
    log: PathBuf,
}

impl Started {
    /// Waits until the log has this.
    fn start(scratch: &Scratch, name: &str, mut command: Command, ready: &str) -> Self {
        let log = scratch.path(name);
        let child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut started = Self { child, log };
        eventually("a server", || {
            started.log().contains(ready) || {
                let status = started.child.try_wait().unwrap();
                assert_eq!(status, None, "{}", started.log());
                false
            }
        });
        started
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn wait(&mut self) -> ExitStatus {
        eventually("the end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    fn end(mut self) {
        kill(self.child.id(), Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{}", self.log());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first bytes of the answer to a plain request; none if it is not plain text.
fn version_at(address: SocketAddr) -> Option<String> {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    answer(&mut client, |client| client.write_all(b"version\r\n"))
}

fn version_of(path: &Path) -> Option<String> {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    answer(&mut client, |client| client.write_all(b"version\r\n"))
}

fn answer<T: std::io::Read>(
    client: &mut T,
    ask: impl Fn(&mut T) -> std::io::Result<()>,
) -> Option<String> {
    ask(client).unwrap();
    let mut bytes = [0; 7];
    let length = client.read(&mut bytes).expect("nobody answers");
    String::from_utf8(bytes[..length].to_vec()).ok().filter(|text| text.starts_with("VERSION"))
}

fn local() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A certificate for itself, and its key.
fn certificate(scratch: &Scratch) -> (String, String) {
    let (chain, key) = (scratch.text("cert.pem"), scratch.text("key.pem"));
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost";
    let mut openssl = Command::new("openssl");
    openssl.args(words.split_whitespace()).args(["-keyout", &key, "-out", &chain]);
    assert!(openssl.output().unwrap().status.success());
    for file in [&key, &chain] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    (chain, key)
}

/// systemd's order is that of its units, which nobody ties to that of `-l`.
#[test]
fn tls_of_an_inherited_socket_follows_its_address() {
    let scratch = Scratch::new();
    let (chain, key) = certificate(&scratch);
    let ((plain, plain_at), (encrypted, encrypted_at)) = (local(), local());
    let files = format!("ssl_chain_cert={chain},ssl_key={key}");
    let list = format!("notls:{plain_at},{encrypted_at}");
    let command = holdall(&["serve", "-Z", "-o", &files, "-l", &list]);
    for (number, sockets) in
        [&[&encrypted as &dyn AsFd, &plain][..], &[&plain, &encrypted]].into_iter().enumerate()
    {
        let name = format!("log{number}");
        let server =
            Started::start(&scratch, &name, with_sockets(&command, sockets), "listening on");
        assert!(version_at(plain_at).is_some());
        assert_eq!(version_at(encrypted_at), None);
        server.end();
    }
    // One that the settings do not name is not served in plain text, either.
    let (other, other_at) = local();
    let server = with_sockets(&command, &[&other]);
    let server = Started::start(&scratch, "other", server, "listening on");
    assert_eq!(version_at(other_at), None);
    server.end();
}

#[test]
fn the_proxy_uses_tls_on_an_inherited_socket_of_its_ssl_port() {
    let scratch = Scratch::new();
    let (chain, key) = certificate(&scratch);
    let config = r#"{"route":"NullRoute"}"#;
    let (socket, at) = local();
    let (port, other) = (at.port().to_string(), free_port().to_string());
    let tls = ["--pem-cert-path", &chain, "--pem-key-path", &key];
    for (number, (ports, is_plain)) in [
        (&["--ssl-port", &port][..], false),
        (&["--ssl-port", &port, "-p", &other], false),
        (&["--ssl-port", &other, "-p", &port], true),
        (&["--ssl-port", &other], false),
        (&["-p", &other], true),
    ]
    .into_iter()
    .enumerate()
    {
        let words =
            [&["route", "--config-str", config, "--asynclog-disable"][..], &tls, ports].concat();
        let name = format!("log{number}");
        let proxy = with_sockets(&holdall(&words), &[&socket]);
        let proxy = Started::start(&scratch, &name, proxy, "listening on");
        assert_eq!(version_at(at).is_some(), is_plain, "{ports:?}");
        let other: u16 = other.parse().unwrap();
        assert!(TcpStream::connect(("127.0.0.1", other)).is_err(), "in place of its settings");
        proxy.end();
    }
}

#[test]
fn an_unusable_inherited_socket_prevents_the_start() {
    let scratch = Scratch::new();
    let sockets = ["a", "b"].map(|name| UnixListener::bind(scratch.path(name)).unwrap());
    let both = with_sockets(&holdall(&["serve"]), &[&sockets[0], &sockets[1]]);
    let mut both = Started::start(&scratch, "log0", both, "");
    assert_eq!(both.wait().code(), Some(71));
    let second = format!("unix:{}", scratch.text("b"));
    assert!(both.log().contains(&second), "{}", both.log());
    for name in ["a", "b"] {
        assert!(exists(&scratch.path(name)), "it is systemd's");
    }
    // There is no login over UDP.
    fs::write(scratch.path("users"), "user:secret\n").unwrap();
    fs::set_permissions(scratch.path("users"), fs::Permissions::from_mode(0o644)).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let users = scratch.text("users");
    let server = with_sockets(&holdall(&["serve", "-Y", &users]), &[&udp]);
    let mut server = Started::start(&scratch, "log1", server, "");
    assert_eq!(server.wait().code(), Some(64), "{}", server.log());
    assert!(server.log().contains("login over UDP"), "{}", server.log());
}

/// The unix socket's file belongs to another user than the server, as systemd makes it.
#[test]
fn a_successor_serves_systemd_sockets_and_keeps_their_file() {
    let scratch = Scratch::new();
    let (tcp, tcp_at) = local();
    let path = scratch.path("socket");
    let unix = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let memory = scratch.text("memory");
    let port = free_port().to_string();
    let words = ["serve", "-m", "64", "-e", &memory, "-p", &port];
    let command = with_sockets(&holdall(&words), &[&tcp, &unix]);
    let mut old = Started::start(&scratch, "log0", command, "listening on");
    let mut wire = TcpStream::connect(tcp_at).unwrap();
    wire.write_all(b"set a 0 0 1\r\nx\r\n").unwrap();
    wire.read_exact(&mut [0; 8]).unwrap();
    let takes_over = holdall(&[&words[..], &["--takeover"]].concat());
    // A service manager may pass the sockets to the successor, too, and a second successor has
    // them from a process that had them from another.
    let activated = with_sockets(&takes_over, &[&tcp, &unix]);
    let again = holdall(&[&words[..], &["--takeover", "-a", "0700"]].concat());
    let successors =
        [("log1", takes_over, 0o666), ("log2", activated, 0o660), ("log3", again, 0o660)];
    for (name, successor, mode) in successors {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if is_root() && name != "log1" {
            chown(&path, Some(65534), None).unwrap();
        }
        let new = Started::start(&scratch, name, successor, "listening on");
        assert!(old.wait().success(), "{}", old.log());
        assert!(version_at(tcp_at).is_some());
        assert!(version_of(&path).is_some());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
        let mut wire = TcpStream::connect(tcp_at).unwrap();
        wire.write_all(b"get a\r\n").unwrap();
        let mut reply = [0; 11];
        wire.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"VALUE a 0 1");
        old = new;
    }
    old.end();
    assert!(exists(&path), "systemd listens there");
}

/// A server with its own addresses, whose successor has others.
#[test]
fn a_socket_not_configured_by_the_successor_is_closed() {
    let scratch = Scratch::new();
    let (before, after) = (free_port().to_string(), free_port().to_string());
    let memory = scratch.text("memory");
    let words = |port| ["serve", "-m", "64", "-e", &memory, "-p", port];
    let mut old = Started::start(&scratch, "log0", holdall(&words(&before)), "listening on");
    let command = holdall(&[&words(&after)[..], &["--takeover"]].concat());
    let new = Started::start(&scratch, "log1", command, "listening on");
    assert!(old.wait().success(), "{}", old.log());
    let named = format!("tcp:127.0.0.1:{before} is closed");
    assert!(new.log().contains(&named), "{}", new.log());
    assert!(TcpStream::connect(format!("127.0.0.1:{before}")).is_err());
    new.end();
}
