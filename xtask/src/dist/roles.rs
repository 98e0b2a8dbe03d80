//! Each unit of a package under the service manager: secrets from systemd, reloads of settings, and
//! a process that hangs.

use super::container::{Container, ask, drop_in, expect, until};
use crate::failure::Failure;

const UNITS: [&str; 3] = ["holdall", "holdall-route", "holdall-invalidate"];

/// A login by the text protocol, for a user and a password of ten letters together.
const LOGIN: &str = "set login 0 0 10\\r\\n";

/// The user of every unit, and a user that the proxy knows after a reload.
const USER: &str = "app secret";
const NEW_USER: &str = "new change";

/// Only root can read the secrets; `LoadCredential=` passes them.
const SERVER: &str = "[Service]
WatchdogSec=2
LoadCredential=users:/root/login
";

const ROUTE: &str = "[Service]
WatchdogSec=2
LoadCredential=login:/root/login
ExecStart=
ExecStart=/usr/bin/holdall route -f /etc/holdall/routes.json -p 5000 \
    --async-dir /var/lib/holdall/spool --metrics 127.0.0.1:9151 --server-auth-file %d/login \
    -Y /etc/holdall/users
";

const INVALIDATE: &str = "[Service]
WatchdogSec=2
LoadCredential=password:/root/password
";

/// Changes arrive as lines, so there is no database. The router requires a login.
const CONFIG: &str = r#"checkpoint = "/var/lib/holdall/checkpoint"
status = "127.0.0.1:9152"
[source]
kind = "ndjson"
listen = "127.0.0.1:7000"
[keys.tables]
"a.b" = "{id}"
[routers]
sslmode = "disable"
user = "app"
password_file = "/run/credentials/holdall-invalidate.service/password"
[[cluster]]
name = "here"
routers = ["127.0.0.1:5000"]
"#;

/// Checks all roles. They hold each other's passwords, so each works only if all received theirs.
pub(super) fn run(container: &Container) -> Result<(), Failure> {
    reload_server(container)?;
    secrets(container)?;
    works(container, USER)?;
    reload_route(container)?;
    works(container, NEW_USER)?;
    reload_invalidator(container)?;
    for unit in UNITS {
        watchdog(container, unit)?;
    }
    works(container, NEW_USER)?;
    container.run(
        "rm /etc/holdall/users /etc/holdall/invalidate.toml /root/login /root/password \
         && sed -i /^auth_file/d /etc/holdall/server.toml && systemctl stop holdall-invalidate",
    )?;
    Ok(())
}

/// Makes a unit reload its settings. The process stays the same.
fn reload(container: &Container, unit: &str) -> Result<(), Failure> {
    let process = format!("systemctl show -P MainPID {unit}");
    let before = container.run(&process)?;
    container.run(&format!("systemctl reload {unit}"))?;
    container.run(&until(&format!("systemctl is-active -q {unit}")))?;
    expect("the process after a reload", &container.run(&process)?, &before)
}

fn reload_server(container: &Container) -> Result<(), Failure> {
    container.run("sed -i 's/^conn_limit = .*/conn_limit = 778/' /etc/holdall/server.toml")?;
    reload(container, "holdall")?;
    container.run(&until(
        "exec 3<>/dev/tcp/127.0.0.1/11211; printf 'stats settings\\r\\nquit\\r\\n' >&3; \
         timeout 10 grep -aqw 'maxconns 778' <&3",
    ))?;
    Ok(())
}

/// Stores the secrets where only root can read them, and starts each unit with its own.
fn secrets(container: &Container) -> Result<(), Failure> {
    container.run(&format!(
        "umask 077; echo app:secret >/root/login; echo secret >/root/password; \
         umask 027; echo app:secret >/etc/holdall/users; chgrp holdall /etc/holdall/users; \
         echo 'auth_file = \"/run/credentials/holdall.service/users\"' >>/etc/holdall/server.toml; \
         umask 022; cat >/etc/holdall/invalidate.toml <<'END'\n{CONFIG}END\n"
    ))?;
    for (unit, text) in UNITS.iter().zip([SERVER, ROUTE, INVALIDATE]) {
        container.run(&drop_in(unit, "roles", text))?;
    }
    let units = UNITS.join(" ");
    container.run(&format!(
        "systemctl restart {units} || {{ journalctl --no-pager -n 30 >&2; false; }}"
    ))?;
    Ok(())
}

/// A client that logs in as `user` reads an item through the proxy, which logs in to the server.
/// The invalidator sends the item's change to the proxy, to which it also logs in.
fn works(container: &Container, user: &str) -> Result<(), Failure> {
    let value = "VALUE kept 7 5\r\nvalue\r\nEND\r\n";
    let set = format!("{LOGIN}{USER}\\r\\nset kept 7 0 5\\r\\nvalue\\r\\n");
    expect("a set", &container.run(&ask(11211, &set))?, "STORED\r\nSTORED\r\n")?;
    let get = ask(5000, &format!("{LOGIN}{user}\\r\\nget kept\\r\\n"));
    expect("a get through the proxy", &container.run(&get)?, &format!("STORED\r\n{value}"))?;
    container.run(&until(
        r#"exec 3<>/dev/tcp/127.0.0.1/7000 && printf '{"keys":["kept"],"position":"1"}\n' >&3 \
           && timeout 10 grep -qm 1 delivered <&3"#,
    ))?;
    container.run(&until(&format!("({get}) | grep -qv VALUE && ! ({get}) | grep -q VALUE")))?;
    Ok(())
}

/// Adds a user.
fn reload_route(container: &Container) -> Result<(), Failure> {
    container.run("echo new:change >>/etc/holdall/users")?;
    reload(container, "holdall-route")?;
    let login = ask(5000, &format!("{LOGIN}{NEW_USER}\\r\\n"));
    container.run(&until(&format!("({login}) | grep -q STORED")))?;
    Ok(())
}

fn reload_invalidator(container: &Container) -> Result<(), Failure> {
    container.run("sed -i s/:9152/:9153/ /etc/holdall/invalidate.toml")?;
    reload(container, "holdall-invalidate")?;
    container.run(&until(
        "exec 3<>/dev/tcp/127.0.0.1/9153; printf 'GET /livez HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; \
         timeout 10 head -n 1 <&3 | grep -q 200",
    ))?;
    Ok(())
}

/// Hangs the process. systemd ends and restarts it; a server then still has its items.
fn watchdog(container: &Container, unit: &str) -> Result<(), Failure> {
    let kept = format!("{LOGIN}{USER}\\r\\nset still 7 0 5\\r\\nvalue\\r\\n");
    container.run(&ask(11211, &kept))?;
    let restarts = format!("systemctl show -P NRestarts {unit}");
    let before = container.run(&restarts)?;
    container.run(&format!("systemctl kill --kill-whom=main --signal=STOP {unit}"))?;
    container.run(&until(&format!(
        "[ $({restarts}) = {} ] && systemctl is-active -q {unit}",
        before.trim().parse().unwrap_or(0) + 1
    )))?;
    let get = ask(11211, &format!("{LOGIN}{USER}\\r\\nget still\\r\\n"));
    let right = "STORED\r\nVALUE still 7 5\r\nvalue\r\nEND\r\n";
    expect("the item after the watchdog", &container.run(&get)?, right)
}
