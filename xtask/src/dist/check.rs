//! Installs, runs, upgrades and removes each package in a clean root.

use super::container::{Container, ask, expect};
use super::{Extent, Release, TOOLS, fresh};
use super::{kept, materials, packages, python, rollout};
use crate::failure::Failure;
use crate::install;
use crate::steps::{Steps, program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Additional Debian packages for this, besides those of a release.
const NEEDED: [(&str, &str); 3] = [
    ("debootstrap", "a clean root"),
    ("systemd-container", "boots it"),
    ("runc", "runs the image"),
];

/// The version to upgrade from.
const BEFORE: &str = "0.0.1";

/// The files of a root that a package could leave behind, except the records of package managers
/// and of the system.
const LIST: &str = r#"find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
    -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /root \
    -o -path /var/tmp -o -path /var/lib/systemd -o -name '*-' -o -name .pwd.lock -o -path '/*.deb' -o -path '/*.rpm' \) \
    -prune -o -print | sort; ls -d /run/holdall /dev/shm/* 2>/dev/null; getent passwd; getent group"#;

/// A package manager's commands, with `FILE` for the package.
struct Manager {
    name: &'static str,
    install: &'static str,
    upgrade: &'static str,
    remove: &'static str,
}

const DPKG: Manager = Manager {
    name: "deb",
    install: "dpkg -i FILE",
    // Like apt when no user can be asked.
    upgrade: "dpkg --force-confdef --force-confold -i FILE",
    remove: "dpkg -P holdall",
};

/// The wheel in a separate environment: a get of an existing item, and a set.
const WHEEL: &str = r#"export PYTHONDONTWRITEBYTECODE=1 && python3 -m venv /tmp/venv \
    && /tmp/venv/bin/pip install --quiet --no-index /root/holdall-*.whl && /tmp/venv/bin/python -c '
from holdall import Client
client = Client(["127.0.0.1:11211"], timeout=60)
assert client.set("by", b"wheel", noreply=False)
print(client.get("kept"), client.get("by"))'"#;

/// rpm has no records of Debian's packages, so it needs `--nodeps`.
const RPM: Manager = Manager {
    name: "rpm",
    install: "rpm -i --nodeps FILE && systemctl start holdall",
    upgrade: "rpm -U --nodeps --replacepkgs FILE",
    // It keeps an operator's changes, queued data, and the user who owns both.
    remove: "touch /var/lib/holdall/kept && rpm -e --nodeps holdall && rm /var/lib/holdall/kept \
        && rm -r /etc/holdall /var/lib/holdall && userdel holdall",
};

/// Installs the tools that make and test the packages.
pub(super) fn install_tools(steps: &mut Steps) -> Result<(), Failure> {
    let tools: Vec<_> = TOOLS.into_iter().chain(NEEDED).collect();
    install::debian(steps, "Packages are made and tried by these Debian packages:", &tools)
}

/// Checks everything that `cargo xtask dist` made.
pub(super) fn run(steps: &mut Steps, release: &Release, extent: Extent) -> Result<(), Failure> {
    install_tools(steps)?;
    let mut sums = program("sha256sum", ["--check", "SHA256SUMS"]);
    sums.current_dir(&release.folder);
    steps.run("checksums", sums)?;
    // First, because it detects a release that is not HEAD's.
    steps.check("tarball: unpacked, run", || tarball(release))?;
    install::libraries(steps)?;
    match extent {
        Extent::Whole => materials::check(steps, release)?,
        Extent::Brief => python::make(steps, release, extent)?,
    }
    let base = base(steps, release)?;
    let before = release.before(BEFORE);
    fresh(&before.folder)?;
    packages::deb(steps, &before)?;
    packages::rpm(steps, &before)?;
    let pair = [(DPKG, before.deb(), release.deb()), (RPM, before.rpm(), release.rpm())];
    for (manager, old, new) in pair {
        let root = release.file("roots").join(manager.name);
        copy(steps, &base, &root)?;
        for (file, name) in [(&old, "old"), (&new, "new")] {
            let to = root.join(format!("{name}.{}", manager.name));
            fs::copy(file, &to).map_err(Failure::path(&to))?;
        }
        let wheel = release.wheel(extent);
        let to = root.join("root").join(wheel.file_name().unwrap_or_default());
        fs::copy(&wheel, &to).map_err(Failure::path(&to))?;
        let name = format!("{}: installed, upgraded, removed", manager.name);
        steps.check(&name, || life(&manager, &root))?;
    }
    image(steps, release)
}

/// The clean root's additions to a minimal system: a service manager, rpm's package manager, and
/// the tools that create an environment for the wheel.
const INCLUDED: &str = "--include=systemd,systemd-sysv,dbus,rpm,python3-venv";

/// A Debian 12 with only these packages.
fn base(steps: &mut Steps, release: &Release) -> Result<PathBuf, Failure> {
    let base = release.file("roots/base");
    let done = release.file("roots/base.done");
    if !fs::read_to_string(&done).is_ok_and(|made| made == INCLUDED) {
        fresh(&base)?;
        let mut make = program("debootstrap", ["--variant=minbase", INCLUDED, "bookworm"]);
        make.arg(&base);
        steps.run("clean root", make)?;
        fs::write(&done, INCLUDED).map_err(Failure::path(&done))?;
    }
    Ok(base)
}

fn copy(steps: &mut Steps, base: &Path, root: &Path) -> Result<(), Failure> {
    fresh(root)?;
    let mut copy = program("cp", ["-a", "--reflink=auto"]);
    copy.arg(base.join(".")).arg(root);
    steps.run("clean root, copied", copy)
}

/// One package from its installation to its removal.
fn life(manager: &Manager, root: &Path) -> Result<(), Failure> {
    let container = Container::boot(root)?;
    container.run("rpm --initdb")?;
    let clean = container.run(LIST)?;
    let file = |name: &str| format!("/{name}.{}", manager.name);

    let begin = Instant::now();
    container.run(&manager.install.replace("FILE", &file("old")))?;
    let set = container.run(&ask(11211, "set kept 7 0 5\\r\\nvalue\\r\\nget kept\\r\\n"))?;
    expect("the first hit", &set, "STORED\r\nVALUE kept 7 5\r\nvalue\r\nEND\r\n")?;
    println!("  {:.1} s from the package to the first hit", begin.elapsed().as_secs_f64());
    let user = container.run("stat -c %U /proc/$(systemctl show -P MainPID holdall)")?;
    expect("the user", &user, "holdall\n")?;
    container
        .run("systemctl is-enabled holdall && test -s /usr/share/man/man1/holdall-serve.1.gz")?;
    container.run("systemd-analyze security --no-pager --threshold=15 holdall >/dev/null")?;

    // A changed setting works at once, and the upgrade keeps it.
    let limit = "exec 3<>/dev/tcp/127.0.0.1/11211; printf 'stats settings\\r\\nquit\\r\\n' >&3; \
        timeout 10 grep -a 'maxconns ' <&3";
    container.run("sed -i 's/^conn_limit = .*/conn_limit = 777/' /etc/holdall/server.toml")?;
    let taken =
        format!("for i in $(seq 50); do ({limit}) | grep -qw 777 && exit; sleep 0.2; done; exit 1");
    container.run(&taken)?;

    let process = container.run("systemctl show -p MainPID holdall")?;
    container.run(&manager.upgrade.replace("FILE", &file("new")))?;
    if container.run("systemctl show -p MainPID holdall")? == process {
        return Err(Failure::Release("the upgrade left the old process running".to_owned()));
    }
    let kept = container.run(&ask(11211, "get kept\\r\\n"))?;
    expect("the item after the upgrade", &kept, "VALUE kept 7 5\r\nvalue\r\nEND\r\n")?;
    expect("the setting after the upgrade", &container.run(limit)?, "STAT maxconns 777\r\n")?;
    expect("the item by the wheel", &container.run(WHEEL)?, "b'value' b'wheel'\n")?;
    container.run("systemctl start holdall-route")?;
    let routed = container.run(&ask(5000, "get kept\\r\\n"))?;
    expect("the item through the proxy", &routed, "VALUE kept 7 5\r\nvalue\r\nEND\r\n")?;
    container.run(
        "systemd-analyze security --no-pager --threshold=15 holdall-route holdall-invalidate >/dev/null",
    )?;

    let upgrade = manager.upgrade.replace("FILE", &file("new"));
    kept::refused(&container, &upgrade)?;

    // The units are the same in all packages.
    if manager.name == DPKG.name {
        kept::host_id(&container)?;
        kept::run(&container, &upgrade)?;
        rollout::run(&container)?;
        kept::again(&container, &upgrade)?;
    }
    container.run(manager.remove)?;
    expect("what is left", &container.run(LIST)?, &clean)?;
    let running = container.run("pidof holdall || true")?;
    expect("processes that are left", &running, "")
}

fn tarball(release: &Release) -> Result<(), Failure> {
    let folder = release.file("roots/tarball");
    fresh(&folder)?;
    let mut unpack = program("tar", ["xzf"]);
    unpack.arg(release.tarball()).arg("-C").arg(&folder);
    said("tarball", unpack)?;
    let version = program(folder.join(release.stem()).join("usr/bin/holdall"), ["version"]);
    let text = said("tarball", version)?;
    of_commit(&text, &release.commit)?;
    if text.contains(&format!("holdall {}\n", release.version)) && text.contains("musl, static") {
        return Ok(());
    }
    Err(Failure::Release(format!("the tarball's program says {text}")))
}

/// Whether `holdall version` names this commit: HEAD may have moved since `dist`.
fn of_commit(text: &str, commit: &str) -> Result<(), Failure> {
    let built = text.lines().find_map(|line| line.strip_prefix("commit"));
    match built.and_then(|rest| rest.split_whitespace().next()) {
        Some(built) if built == commit => Ok(()),
        built => Err(Failure::Release(format!(
            "the packages are of commit {}, and HEAD is {commit}: build them again by \
             `cargo xtask dist`",
            built.unwrap_or("unknown")
        ))),
    }
}

/// A command's output.
fn said(step: &str, mut command: Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| Failure::command(step, &command, error))?;
    if !output.status.success() {
        return Err(Failure::Status { step: step.to_owned(), status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the image as a container, by its own entry point and user.
fn image(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let (layout, bundle) = (release.file("roots/image"), release.file("roots/bundle"));
    fresh(&layout)?;
    let mut unpack = program("tar", ["xf"]);
    unpack.arg(release.image()).arg("-C").arg(&layout);
    steps.run("image, archive", unpack)?;
    if bundle.exists() {
        fs::remove_dir_all(&bundle).map_err(Failure::path(&bundle))?;
    }
    let name = format!("{}:{}", layout.display(), release.version);
    let mut unpack = program("umoci", ["unpack", "--image", &name]);
    unpack.arg(&bundle);
    steps.run("image, unpacked", unpack)?;
    without_terminal(&bundle.join("config.json"))?;
    steps.check("image: run", || {
        let name = format!("holdall-check-{}", std::process::id());
        let mut run = program("runc", ["run", "--bundle"]);
        run.arg(&bundle).arg(&name).stdin(Stdio::null());
        let mut runc = run.spawn().map_err(|error| Failure::command("image", &run, error))?;
        let answer = answer_of(&name);
        let _ = program("runc", ["kill", &name, "TERM"]).status();
        let status = runc.wait().map_err(|error| Failure::command("image", &run, error))?;
        expect("the image", &answer?, "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n")?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::Status { step: "image".to_owned(), status })
    })
}

/// umoci's settings request a terminal, which a check does not have.
fn without_terminal(settings: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(settings).map_err(Failure::path(settings))?;
    let text = text.replace("\"terminal\": true", "\"terminal\": false");
    fs::write(settings, text).map_err(Failure::path(settings))
}

/// A set and a get in the network of a container, once it replies.
fn answer_of(name: &str) -> Result<String, Failure> {
    let state = "for i in $(seq 100); do runc state \"$0\" 2>/dev/null | sed -n 's/.*\"pid\": \\([1-9][0-9]*\\).*/\\1/p' \
        | grep . && break; sleep 0.1; done";
    let process = said("image", program("sh", ["-c", state, name]))?;
    let process: u32 = process
        .trim()
        .parse()
        .map_err(|_| Failure::Release(format!("the image has no process: {process:?}")))?;
    // The image has no shell, so only its network is entered.
    let mut words = program("nsenter", ["--net", "--target", &process.to_string(), "bash", "-c"]);
    let wait = "for i in $(seq 100); do (: </dev/tcp/127.0.0.1/11211) 2>/dev/null && break; sleep 0.1; done; ";
    words.arg(format!("{wait}{}", ask(11211, "set a 0 0 1\\r\\nb\\r\\nget a\\r\\n")));
    said("image", words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_of_another_commit_is_reported_with_the_fix() {
        let text = "holdall 0.1.0\ncommit    0123456789ab\nsystem    linux\n";
        assert!(of_commit(text, "0123456789ab").is_ok());
        let why = of_commit(text, "ba9876543210").unwrap_err().to_string();
        for part in ["0123456789ab", "ba9876543210", "cargo xtask dist"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(of_commit("holdall 0.1.0\n", "0123456789ab").is_err());
    }
}
