//! Items under the service manager: they survive restarts, killed processes and refused settings,
//! with the units of a package and of `holdall plan`.

use super::container::{Container, ask, drop_in, expect, until};
use crate::failure::Failure;

/// The settings of the packages' server.
const SETTINGS: &str = "/etc/holdall/server.toml";

/// An invalidator that receives lines, so there is no database.
const CHANGES: &str = r#"checkpoint = "/var/lib/holdall/lines"
[source]
kind = "ndjson"
listen = "127.0.0.1:7000"
[keys.tables]
"a.b" = "{id}"
[[cluster]]
name = "here"
routers = ["127.0.0.1:5000"]
"#;

/// A host with a cache server and a router, in addition to those of the packages.
const TOPOLOGY: &str = r#"name = "check"
[cache]
port = 11212
memory_mb = 64
threads = 1
memory_file = "/dev/shm/planned"
[router]
port = 5001
[[region]]
name = "here"
master = true
[[region.cluster]]
name = "a"
servers = ["127.0.0.1"]
"#;

/// systemd gives up soon, however long a start takes.
const FEW_STARTS: &str = "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=2\n";

/// The reply to a get of the item.
const VALUE: &str = "VALUE kept 7 5\r\nvalue\r\nEND\r\n";

/// Restarts, kills and stops the units of a package and of a plan.
/// An upgrade by the command `upgrade` restarts the planned server, too.
pub(super) fn run(container: &Container, upgrade: &str) -> Result<(), Failure> {
    container.run(&format!(
        "systemctl stop holdall-route holdall && cp -a {SETTINGS} /root \
         && sed -i s,/run/holdall/items,/dev/shm/packaged, {SETTINGS} \
         && echo 'drop_privileges = true' >>{SETTINGS} && systemctl start holdall"
    ))?;
    outlives(container, "holdall", 11211)?;
    container.run(&format!(
        "systemctl stop holdall && mv /root/server.toml {SETTINGS} && rm /dev/shm/packaged"
    ))?;
    planned(container, upgrade)?;
    container.run("systemctl reset-failed holdall; systemctl start holdall")?;
    get(container, "the item in the folder of the unit", 11211)?;
    unix_sockets(container)
}

/// The sockets of docs/operation.md: one of systemd's, and one of the settings.
const SOCKETS: &str = "[Socket]
ListenStream=127.0.0.1:11211
ListenStream=/run/holdall/cache
";

/// A client on a unix socket without any rights.
const NOBODY: &str = r#"setpriv --reuid=65534 --regid=65534 --clear-groups python3 -c '
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.settimeout(10)
client.connect(sys.argv[1])
client.sendall(b"get kept\r\nquit\r\n")
print(client.makefile().read(), end="")' "#;

/// Any user reaches the server's unix sockets whose mode allows it, but not its items.
fn unix_sockets(container: &Container) -> Result<(), Failure> {
    let unit = "/etc/systemd/system/holdall.socket";
    container.run(&format!(
        "systemctl stop holdall && cat >{unit} <<'END'\n{SOCKETS}END\n\
         systemctl daemon-reload && systemctl start holdall.socket"
    ))?;
    let get = |socket: &str| container.run(&format!("{NOBODY}{socket}"));
    expect("a get at systemd's socket", &get("/run/holdall/cache")?, &VALUE.replace('\r', ""))?;
    container.run("! setpriv --reuid=65534 --clear-groups --regid=65534 cat /run/holdall/items")?;
    container.run(&format!(
        "systemctl stop holdall.socket holdall && rm {unit} && cp -a {SETTINGS} /root \
         && printf 'unix_socket = \"/run/holdall/own\"\nunix_mask = \"0777\"\n' >>{SETTINGS} \
         && systemctl daemon-reload && systemctl start holdall"
    ))?;
    expect("a get at the server's socket", &get("/run/holdall/own")?, &VALUE.replace('\r', ""))?;
    container.run(&format!(
        "systemctl stop holdall && mv /root/server.toml {SETTINGS} && systemctl start holdall"
    ))?;
    Ok(())
}

/// Upgrades over settings that the server and the invalidator refuse. Both continue, and after the
/// server ends, a start with fixed settings finds the items. The proxy, whose settings are valid,
/// is restarted.
pub(super) fn refused(container: &Container, upgrade: &str) -> Result<(), Failure> {
    let process = "systemctl show -P MainPID holdall";
    let proxy = "systemctl show -P MainPID holdall-route";
    let invalidator = "systemctl show -P MainPID holdall-invalidate";
    container.run(&format!(
        "cat >/etc/holdall/invalidate.toml <<'END'\n{CHANGES}END\nsystemctl start holdall-invalidate"
    ))?;
    let (before, proxy_before) = (container.run(process)?, container.run(proxy)?);
    let invalidator_before = container.run(invalidator)?;
    container.run(&format!(
        "sed -i s/^conn_limit/con_limit/ {SETTINGS} \
         && sed -i s/^listen/lisen/ /etc/holdall/invalidate.toml"
    ))?;
    let told = container.run(&format!("({upgrade}) 2>&1"))?;
    if !told.contains("con_limit") || !told.contains("lisen") {
        return Err(Failure::Release(format!("the upgrade named no refused setting: {told}")));
    }
    expect("the process after that upgrade", &container.run(process)?, &before)?;
    expect("the invalidator after it", &container.run(invalidator)?, &invalidator_before)?;
    container.run(
        "systemctl stop holdall-invalidate && systemctl reset-failed holdall-invalidate; \
         rm -r /etc/holdall/invalidate.toml /var/lib/holdall/lines*",
    )?;
    if container.run(proxy)? == proxy_before {
        return Err(Failure::Release("the upgrade left the old proxy running".to_owned()));
    }
    get(container, "the item after that upgrade", 11211)?;
    container.run(&drop_in("holdall", "refused", FEW_STARTS))?;
    container.run("systemctl reset-failed holdall; ! systemctl restart holdall")?;
    container.run(&until("systemctl is-failed -q holdall"))?;
    container.run(&format!(
        "sed -i s/^con_limit/conn_limit/ {SETTINGS} && rm -r /etc/systemd/system/holdall.service.d \
         && systemctl daemon-reload && systemctl reset-failed holdall && systemctl start holdall"
    ))?;
    get(container, "the item after refused starts", 11211)
}

/// The proxy's host number is the same inside its unit and outside.
pub(super) fn host_id(container: &Container) -> Result<(), Failure> {
    let inside = container.run(&ask(5000, "get __mcrouter__.hostid\\r\\n"))?;
    let question = ask(5009, "get __mcrouter__.hostid\\r\\n");
    let outside = container.run(&format!(
        "holdall route -f /etc/holdall/routes.json -p 5009 --asynclog-disable \
         >/dev/null 2>&1 & process=$!; ({}); {question}; kill $process; wait",
        until("(: </dev/tcp/127.0.0.1/5009) 2>/dev/null")
    ))?;
    expect("the number of the host", &inside, &outside)
}

/// A removal stops a server with the name of a planned one, and `install` then starts the package's
/// server. One of these is left running for the next removal.
pub(super) fn again(container: &Container, install: &str) -> Result<(), Failure> {
    let start = "systemd-run --quiet --unit holdall-cache -p User=holdall /usr/bin/holdall serve \
                 -p 11212";
    container.run(start)?;
    container.run("dpkg -r holdall && ! pidof holdall")?;
    container.run(&format!("{install} && systemctl is-active --quiet holdall"))?;
    container.run(&until("systemctl reset-failed holdall-cache; ! systemctl cat holdall-cache"))?;
    container.run(start)?;
    Ok(())
}

/// The units of `holdall plan`, while no other unit runs as their user.
fn planned(container: &Container, upgrade: &str) -> Result<(), Failure> {
    container.run(&format!(
        "cp -a /etc/holdall/routes.json /root && cd /root && cat >topology.toml <<'END'\n\
         {TOPOLOGY}END\n\
         holdall plan topology.toml --emit systemd -o plan && cp -r plan/127.0.0.1/etc/. /etc \
         && systemd-sysusers && systemctl daemon-reload \
         && systemctl enable --now --quiet holdall-cache"
    ))?;
    outlives(container, "holdall-cache", 11212)?;
    container.run("systemctl enable --now --quiet holdall-route")?;
    get(container, "the item through the planned router", 5001)?;
    let process = "systemctl show -P MainPID holdall-cache";
    let before = container.run(process)?;
    container.run(upgrade)?;
    if container.run(process)? == before {
        return Err(Failure::Release("the upgrade left the old planned server running".to_owned()));
    }
    get(container, "the item of the planned server after an upgrade", 11212)?;
    container.run(
        "systemctl disable --now --quiet holdall-cache holdall-route && cd /etc/systemd/system \
         && rm holdall-cache.service holdall-route.service && rm -r /etc/sysusers.d \
         && rm -r /dev/shm/planned /root/plan && systemctl daemon-reload \
         && mv /root/routes.json /etc/holdall",
    )?;
    Ok(())
}

/// An item survives a restart of its server, an end by SIGKILL and a stop.
fn outlives(container: &Container, unit: &str, port: u16) -> Result<(), Failure> {
    let set = container.run(&ask(port, "set kept 7 0 5\\r\\nvalue\\r\\n"))?;
    expect("a set", &set, "STORED\r\n")?;
    // systemd counts starts, and refuses the sixth within ten seconds.
    container.run(&format!("systemctl restart {unit}; systemctl reset-failed {unit}"))?;
    get(container, "the item after a restart", port)?;
    let restarts = format!("systemctl show -P NRestarts {unit}");
    let before = container.run(&restarts)?;
    container.run(&format!("systemctl kill --kill-whom=main --signal=KILL {unit}"))?;
    container.run(&until(&format!(
        "[ $({restarts}) != {} ] && systemctl is-active -q {unit}",
        before.trim()
    )))?;
    get(container, "the item after SIGKILL", port)?;
    container.run(&format!("systemctl stop {unit} && systemctl start {unit}"))?;
    get(container, "the item after a stop", port)
}

fn get(container: &Container, moment: &str, port: u16) -> Result<(), Failure> {
    expect(moment, &container.run(&ask(port, "get kept\\r\\n"))?, VALUE)
}
