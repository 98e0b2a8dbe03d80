//! The packages: `.deb`, `.rpm`, image, tarball, wheel, bill of materials, and their checksums.

use super::stage::{Family, fill, put};
use super::{Extent, Release, fresh, materials, python};
use crate::failure::Failure;
use crate::steps::{Steps, program};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes them.
pub(super) fn make(steps: &mut Steps, release: &Release, extent: Extent) -> Result<(), Failure> {
    fs::create_dir_all(&release.folder).map_err(Failure::path(&release.folder))?;
    deb(steps, release)?;
    rpm(steps, release)?;
    image(steps, release)?;
    tarball(steps, release)?;
    if extent == Extent::Whole {
        python::make(steps, release, extent)?;
        materials::make(steps, release)?;
    }
    sums(steps, release)
}

/// A command whose output is dated by the commit.
fn dated(release: &Release, mut command: Command) -> Command {
    command.env("SOURCE_DATE_EPOCH", &release.epoch);
    command
}

/// The package for Debian and related distributions.
pub(super) fn deb(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let root = release.file("stage/deb");
    fill(steps, release, &root, Family::Debian)?;
    let control = root.join("DEBIAN");
    fs::create_dir(&control).map_err(Failure::path(&control))?;
    for script in ["postinst", "prerm", "postrm"] {
        put(&Path::new("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    let kilobytes = release.binary.metadata().map_err(Failure::path(&release.binary))?.len() / 1024;
    let template = Path::new("packaging/debian/control");
    let text = fs::read_to_string(template).map_err(Failure::path(template))?;
    let text = text.replace("@VERSION@", &release.version);
    let text = text.replace("@KILOBYTES@", &kilobytes.to_string());
    let settings = "/etc/holdall/server.toml\n/etc/holdall/routes.json\n";
    for (name, text) in [("control", text.as_str()), ("conffiles", settings)] {
        let path = control.join(name);
        fs::write(&path, text).map_err(Failure::path(&path))?;
    }
    let mut build = program("dpkg-deb", ["--root-owner-group", "-Zxz"]);
    build.arg(format!("-z{}", release.compression)).arg("--build").arg(&root).arg(release.deb());
    steps.run("deb", dated(release, build))
}

/// The package for Fedora and related distributions.
pub(super) fn rpm(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let root = release.file("stage/rpm");
    fill(steps, release, &root, Family::Rpm)?;
    let work = release.file("stage/rpmbuild");
    fresh(&work)?;
    let mut build = program("rpmbuild", ["-bb", "--quiet", "--target", "x86_64"]);
    let (work, root) = (work.display(), root.display());
    for definition in [
        format!("_topdir {work}"),
        format!("_rpmdir {}", release.folder.display()),
        "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        format!("stage {root}"),
        format!("holdall_version {}", release.version),
        // The files are packed unchanged, and without anything of this machine.
        "__os_install_post %{nil}".to_owned(),
        "debug_package %{nil}".to_owned(),
        "_build_id_links none".to_owned(),
        "_buildhost localhost".to_owned(),
        format!("_binary_payload w{}.xzdio", release.compression),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
    ] {
        build.args(["--define", &definition]);
    }
    build.arg("packaging/rpm/holdall.spec");
    steps.run("rpm", dated(release, build))
}

/// An OCI image with only the binary, as an archive that `podman load` and `skopeo` accept.
fn image(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let layout = release.file("stage/image");
    fresh(&release.file("stage"))?;
    let binary = release.file("stage/holdall");
    put(&release.binary, &binary, 0o755)?;
    let stamp = format!("@{}", release.epoch);
    let mut touch = program("touch", ["-d", &stamp]);
    touch.arg(&binary);
    steps.run("date", touch)?;
    let created =
        super::git(&["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"])?;
    let name = format!("{}:{}", layout.display(), release.version);
    let umoci = |words: &[&str]| program("umoci", words);
    let mut init = umoci(&["init", "--layout"]);
    init.arg(&layout);
    steps.run("image, layout", init)?;
    steps.run("image, name", umoci(&["new", "--image", &name]))?;
    let mut insert = umoci(&["insert", "--image", &name, "--history.created", &created]);
    insert.arg(&binary).arg("/usr/bin/holdall");
    steps.run("image, binary", insert)?;
    let mut config = umoci(&["config", "--image", &name, "--history.created", &created]);
    config.args(["--created", &created, "--config.user", "65532:65532"]);
    config.args(["--config.entrypoint", "/usr/bin/holdall"]);
    config.args(["--config.exposedports", "11211/tcp", "--config.stopsignal", "SIGTERM"]);
    config.args(["--config.label", "org.opencontainers.image.licenses=Apache-2.0"]);
    let label = format!("org.opencontainers.image.version={}", release.version);
    config.args(["--config.label", &label]);
    // Clients reach a container through its network, so loopback would serve none.
    for word in ["serve", "-l", "0.0.0.0"] {
        config.arg(format!("--config.cmd={word}"));
    }
    steps.run("image, settings", config)?;
    let mut clean = umoci(&["gc", "--layout"]);
    clean.arg(&layout);
    steps.run("image, leftovers", clean)?;
    pack(steps, release, &layout, ".", &release.image(), &[])
}

/// The binary, its manual and completions, for any Linux.
fn tarball(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let whole = release.file("stage/whole");
    fill(steps, release, &whole, Family::Debian)?;
    let folder = release.file("stage").join(release.stem());
    fs::rename(&whole, &folder).map_err(Failure::path(&folder))?;
    pack(
        steps,
        release,
        &release.file("stage"),
        &release.stem(),
        &release.tarball(),
        &["-I", "gzip -n -9"],
    )
}

/// A tar file with sorted names, without owners, and dated by the commit.
fn pack(
    steps: &mut Steps,
    release: &Release,
    folder: &Path,
    what: &str,
    to: &Path,
    words: &[&str],
) -> Result<(), Failure> {
    let mut tar = program("tar", ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.epoch));
    tar.args(["--format=gnu", "-c", "-f"]).arg(to).args(words).arg("-C").arg(folder).arg(what);
    steps.run("tar", tar)
}

/// The checksums of all published files.
fn sums(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let script =
        "rm -f SHA256SUMS; files=$(find * -maxdepth 0 -type f); sha256sum $files | tee SHA256SUMS";
    let mut sums = program("sh", ["-c", script]);
    sums.current_dir(&release.folder);
    steps.run("checksums", sums)
}
