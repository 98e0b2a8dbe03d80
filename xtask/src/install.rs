//! Installs the tests' requirements, and lists them: Debian packages for the whole machine, and
//! client libraries of other languages inside the target folder and `e2e/clients`.
//!
//! Each part is checked first, so a second run installs nothing and takes a second.

mod apart;
mod databases;
mod suites;
mod unstable;

pub(crate) use databases::newer as databases;
pub(crate) use unstable::memcached;

use crate::failure::Failure;
use crate::python;
use crate::steps::{Steps, program, succeeds, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian packages, and the purpose of each.
const PACKAGES: [(&str, &str); 34] = [
    ("memcached", "the server that ours is compared with"),
    (
        "libmemcached-tools",
        "memccapable, the protocol check of libmemcached, and the library: where it puts keys",
    ),
    ("nutcracker", "twemproxy: where it puts keys"),
    ("g++", "builds the fuzz targets"),
    ("python3-venv", "the Python clients"),
    ("php-cli", "the PHP clients, and our library for PHP"),
    ("php-memcached", "its library, over libmemcached"),
    ("default-jdk-headless", "the Java client"),
    ("libspymemcached-java", "its library"),
    ("ruby", "the Ruby client"),
    ("ruby-dalli", "its library"),
    ("strace", "makes system calls fail on purpose"),
    ("faketime", "moves a server's clock"),
    ("valgrind", "counts the server's instructions"),
    ("openssl", "certificates, and a TLS client"),
    ("python3-pylibmc", "a client with SASL"),
    ("libsasl2-modules", "its mechanisms"),
    ("sasl2-bin", "users of memcached's SASL"),
    ("redis-server", "the other server that the bench measures"),
    ("chromium", "opens the bench's report"),
    ("mariadb-server", "a database whose log the invalidator follows"),
    ("postgresql", "another"),
    ("libaio1", "what MySQL needs, which is no package"),
    ("libnuma1", "the same"),
    ("curl", "fetches it"),
    ("haproxy", "the balancer before servers that are restarted"),
    ("prometheus", "loads the alerts and dashboards, and scrapes"),
    ("etcd-server", "servers are found in it"),
    ("etcd-client", "puts them there"),
    ("dnsmasq-base", "a resolver with SRV records"),
    ("iproute2", "counts the segments of connections"),
    ("ethtool", "what drivers of interfaces say to the doctor"),
    ("netcat-openbsd", "asks a server in the pages' examples"),
    ("nftables", "drops packets and resets connections"),
];

/// Programs that may also come from elsewhere; the Debian package is the fallback.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("go", "golang-go", "the Go client, and our library for Go (1.22)"),
    ("node", "nodejs", "the Node clients, and our library for Node"),
    ("npm", "npm", "the same"),
    ("python3", "python3", "the Python clients"),
];

/// The folder of the test tools: the Python environment and the built Go client.
pub(crate) fn tools() -> PathBuf {
    target().join("e2e")
}

/// Installs all missing parts.
pub(crate) fn all(steps: &mut Steps) -> Result<(), Failure> {
    for_files(steps, &[])
}

/// Test files of e2e that use our library for Python, which is rebuilt each time.
const USE_WHEEL: [&str; 2] = ["libraries", "python"];

/// The same for these test files of e2e; none means all. Parts that are quick to check are always
/// checked.
pub(crate) fn for_files(steps: &mut Steps, names: &[String]) -> Result<(), Failure> {
    debian(steps, "The tests need these Debian packages:", &PACKAGES)?;
    programs(steps)?;
    libraries(steps)?;
    collector(steps)?;
    node(steps)?;
    suites::install(steps, &tools())?;
    databases::mysql(steps, &tools())?;
    apart::kustomize(steps, &tools())?;
    let uses_wheel = |name: &String| USE_WHEEL.contains(&name.as_str());
    if names.is_empty() || names.iter().any(uses_wheel) {
        python_library(steps)?;
    }
    Ok(())
}

/// The libraries for Go and Python, with their programs.
pub(crate) fn libraries(steps: &mut Steps) -> Result<(), Failure> {
    python(steps)?;
    go(steps)
}

/// Installs the missing ones of these packages.
pub(crate) fn debian(
    steps: &mut Steps,
    title: &str,
    packages: &[(&str, &str)],
) -> Result<(), Failure> {
    let mut missing: Vec<&str> = Vec::new();
    println!("{title}");
    for (name, reason) in packages {
        let there = installed(name);
        println!("  {name:<20} {reason}{}", if there { "" } else { " (will be installed)" });
        if !there {
            missing.push(name);
        }
    }
    fetch(steps, &missing)
}

fn programs(steps: &mut Steps) -> Result<(), Failure> {
    let mut missing: Vec<&str> = Vec::new();
    for (command, package, reason) in PROGRAMS {
        let there = succeeds(program("sh", ["-c", &format!("command -v {command}")]));
        println!("  {command:<20} {reason}{}", if there { "" } else { " (will be installed)" });
        if !there {
            missing.push(package);
        }
    }
    fetch(steps, &missing)
}

fn fetch(steps: &mut Steps, missing: &[&str]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    steps.run("apt update", privileged(&["apt-get", "update", "-q"]))?;
    let mut words = vec!["apt-get", "install", "-q", "-y", "--no-install-recommends"];
    words.extend(missing);
    steps.run("apt install", privileged(&words))
}

fn installed(package: &str) -> bool {
    let query = ["-W", "-f", "${Status}", package];
    Command::new("dpkg-query")
        .args(query)
        .output()
        .is_ok_and(|output| output.stdout.ends_with(b"install ok installed"))
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}

/// The command as root: directly, or through sudo for other users.
fn privileged(words: &[&str]) -> Command {
    let mut command = if is_root() { program("env", words) } else { program("sudo", words) };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn python(steps: &mut Steps) -> Result<(), Failure> {
    let wanted = "e2e/clients/python/requirements.txt";
    let venv = tools().join("venv");
    if is_newer(&venv.join("done"), wanted) {
        return Ok(());
    }
    println!("Python clients, and what their suites need: {}", venv.display());
    let fresh = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), venv.as_os_str()];
    steps.run("python venv", program("python3", fresh))?;
    let pip = ["install", "--quiet", "--disable-pip-version-check", "-r", wanted];
    steps.run("python clients", program(venv.join("bin/pip"), pip))?;
    mark(&venv.join("done"))
}

fn go(steps: &mut Steps) -> Result<(), Failure> {
    let binary = tools().join("go-client");
    let sources = ["main.go", "load.go", "own_data.go"];
    if sources.iter().all(|name| is_newer(&binary, &format!("e2e/clients/go/{name}"))) {
        return Ok(());
    }
    println!("Go client (gomemcache): {}", binary.display());
    let mut build = program("go", ["build".as_ref(), "-o".as_ref(), binary.as_os_str()]);
    build.current_dir("e2e/clients/go");
    steps.run("go client", build)
}

/// An OpenTelemetry Collector with the tests' components, from its project's own modules.
fn collector(steps: &mut Steps) -> Result<(), Failure> {
    let binary = tools().join("otelcol");
    let sources = ["e2e/clients/collector/main.go", "e2e/clients/collector/go.sum"];
    if sources.iter().all(|source| is_newer(&binary, source)) {
        return Ok(());
    }
    println!("OpenTelemetry Collector: {}", binary.display());
    let mut build = program("go", ["build".as_ref(), "-o".as_ref(), binary.as_os_str()]);
    // It has little to do, and compiles in two thirds of the time.
    build.args(["-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w"]);
    build.current_dir("e2e/clients/collector");
    steps.run("OpenTelemetry Collector", build)
}

fn node(steps: &mut Steps) -> Result<(), Failure> {
    for (folder, what) in [
        ("e2e/clients/node", "Node clients (memjs, memcached), and what runs their suites"),
        (
            "e2e/clients/browser",
            "what drives the browser (playwright-core) and checks pages (axe-core)",
        ),
    ] {
        let done = Path::new(folder).join("node_modules/.done");
        if is_newer(&done, &format!("{folder}/package-lock.json")) {
            continue;
        }
        println!("{what}: {folder}/node_modules");
        let mut command = program("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
        command.current_dir(folder);
        steps.run("node clients", command)?;
        mark(&done)?;
    }
    Ok(())
}

/// The library for Python: its wheel, built and installed, and Django with its tests, which only
/// its source has.
fn python_library(steps: &mut Steps) -> Result<(), Failure> {
    let wanted = "python/tests/requirements.txt";
    let home = tools().join("python-library");
    let (venv, wheels) = (home.join("venv"), home.join("wheels"));
    let pip = |words: &[&str]| {
        let mut command = program(venv.join("bin/pip"), words);
        command.args(["--quiet", "--disable-pip-version-check"]);
        command
    };
    if !is_newer(&home.join("done"), wanted) {
        println!("Our library for Python, with maturin and Django: {}", home.display());
        let fresh = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), venv.as_os_str()];
        steps.run("python library, venv", program("python3", fresh))?;
        steps.run("maturin and Django", pip(&["install", "-r", wanted]))?;
        let mut source = pip(&["download", "--no-deps", "--no-binary", "django", "django==5.2.19"]);
        source.arg("-d").arg(&home);
        steps.run("Django's source", source)?;
        let mut unpack = program("tar", ["xzf", "django-5.2.19.tar.gz", "django-5.2.19/tests"]);
        unpack.current_dir(&home);
        steps.run("Django's tests", unpack)?;
        mark(&home.join("done"))?;
    }
    // An earlier build may have another name.
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).map_err(Failure::path(&wheels))?;
    }
    python::wheel_for_tests(steps, &wheels)?;
    let mut install = pip(&["install", "--force-reinstall", "--no-deps", "--no-index", "holdall"]);
    install.arg("--find-links").arg(&wheels);
    steps.run("python library, install", install)?;
    check_wheel_in_empty_environment(steps, &home.join("alone"), &wheels)
}

/// Installs the wheel in an otherwise empty environment, and imports it: it needs no other package,
/// and contains all of its files.
fn check_wheel_in_empty_environment(
    steps: &mut Steps,
    venv: &Path,
    wheels: &Path,
) -> Result<(), Failure> {
    let fresh = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), venv.as_os_str()];
    steps.run("wheel alone, venv", program("python3", fresh))?;
    let mut install = program(venv.join("bin/pip"), ["install", "--quiet", "--no-index"]);
    install.args(["--disable-pip-version-check", "--find-links"]).arg(wheels).arg("holdall");
    steps.run("wheel alone, install", install)?;
    let import = "import holdall; holdall.Client; holdall.__version__";
    let mut import = program(venv.join("bin/python"), ["-c", import]);
    // The library's sources are in a folder of the same name.
    import.current_dir(venv);
    steps.run("wheel alone, import", import)
}

pub(super) fn mark(path: &Path) -> Result<(), Failure> {
    std::fs::write(path, "").map_err(Failure::path(path))
}

/// True when `made` exists and is not older than `source`.
pub(super) fn is_newer(made: &Path, source: &str) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    match (time(made), time(Path::new(source))) {
        (Some(made), Some(source)) => made >= source,
        _ => false,
    }
}
