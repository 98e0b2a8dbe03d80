//! Popular client libraries log in, mostly at the proxy.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::wire::End;
use testkit::{Kind, Launch};

use crate::login::{login, passwd};
use crate::onward::proxy;
use crate::{Folder, output, python};

#[test]
fn libraries_log_in_at_the_proxy() {
    let folder = Folder::new();
    let text = format!("plain:secret\n{}", passwd("hashed", "secret"));
    let users = folder.write("users", &text);
    let server = Launch::new(Kind::Holdall).start();
    let mut proxy = proxy(&server.addr().to_string(), "", &["-S", "-Y", &users]);
    let address = proxy.addr().to_string();
    python("check_sasl.py", &[&address]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/check_sasl_pylibmc.py");
    let text = output(Command::new("/usr/bin/python3").args([script, &address]));
    assert!(text.ends_with("6 checks passed\n"), "{text}");
    assert!(proxy.is_running());
}

/// Clients do not get the rights of the proxy's own login, which may do everything at the server.
#[test]
fn the_proxy_enforces_rights() {
    let folder = Folder::new();
    let own = folder.write("own", "proxy:pw\n");
    let users = folder.write("users", "app:secret\nops:o\n");
    let rights = folder.write("rights", "app readwrite app:\nops admin\n");
    let server = Launch::new(Kind::Holdall).args(&["-Y", &own]).start();
    let rights = format!("rights={rights}");
    let args = ["-S", "-Y", &users, "-o", &rights, "--server-auth-file", &own];
    let proxy = proxy(&server.addr().to_string(), "", &args);
    python("check_rights.py", &[&proxy.addr().to_string()]);
    for (token, want) in [("app secret", "CLIENT_ERROR permission denied"), ("ops o", "OK")] {
        let mut wire = proxy.connect();
        wire.expect(&login(token), b"STORED\r\n");
        wire.send(b"watch proxyreqs\r\n");
        assert_eq!(wire.line(), want, "{token}");
    }
}

#[test]
fn the_server_enforces_rights() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    let rights = format!("rights={}", folder.write("rights", "app readwrite app:\n"));
    let server = Launch::new(Kind::Holdall).args(&["-S", "-Y", &users, "-o", &rights]).start();
    python("check_rights.py", &[&server.addr().to_string()]);
}

/// SIGHUP: a bad file changes nothing; a good one admits new users, disconnects removed ones, and
/// gives the remaining ones their new rights.
#[test]
fn the_proxy_reloads_its_users() {
    let folder = Folder::new();
    let users = folder.write("users", "old:1\nstays:2\n");
    let rights = folder.write("rights", "* readwrite *\n* admin\n");
    let rights_option = format!("rights={rights}");
    let server = Launch::new(Kind::Holdall).start();
    let address = server.addr().to_string();
    let proxy = proxy(&address, "", &["-Y", &users, "-o", &rights_option]);
    let user = |token| {
        let mut wire = proxy.connect();
        wire.expect(&login(token), b"STORED\r\n");
        wire
    };
    let (mut old, mut stays, mut watcher) = (user("old 1"), user("stays 2"), user("stays 2"));
    watcher.expect(b"watch proxyreqs\r\n", b"OK\r\n");
    let reload = || output(Command::new("kill").args(["-HUP", &proxy.pid().to_string()]));
    folder.write("users", "no colon");
    reload();
    old.expect(b"get k\r\n", b"END\r\n");
    // Rights are written first: the proxy may read the files for the first signal only now.
    folder.write("rights", "* read *\n");
    folder.write("users", "new:3\nstays:2\n");
    reload();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut wire = proxy.connect();
        wire.send(&login("new 3"));
        if wire.line() == "STORED" {
            break;
        }
        assert!(Instant::now() < deadline, "the users are not read again");
    }
    old.send(b"get k\r\n");
    assert_eq!(old.read_until_or_end(b"never", Duration::from_secs(60)).1, End::Closed);
    stays.expect(b"get k\r\nset k 0 0 1\r\nx\r\n", b"END\r\nCLIENT_ERROR permission denied\r\n");
    // A watcher that lost the right to watch receives nothing more.
    assert_eq!(watcher.read_to_end(Duration::from_secs(60)).1, End::Closed);
}
