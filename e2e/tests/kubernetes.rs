//! Manifests of `holdall plan`, checked against Kubernetes' own schemas and by kustomize.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::clients::tool;
use testkit::server::holdall_path;

/// The Kubernetes releases whose schemas are used: the oldest and the newest of the validator that
/// have all used kinds.
const RELEASES: [&str; 2] = ["1.25.0", "1.37.0"];

/// A topology with every possible setting.
const EVERYTHING: &str = concat!(
    include_str!("../../crates/plan/tests/pods.toml"),
    r#"
[[region]]
name = "west"
[[region.cluster]]
name = "a"
servers = 2
[cache]
memory_file = "/run/holdall/items"
[kubernetes]
namespace = "caches"
routers_max = 9
"#
);

fn packaged() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes/topology.toml");
    fs::read_to_string(file).unwrap()
}

/// The manifests of a topology, in a separate folder.
fn planned(name: &str, topology: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kubernetes-{name}-{}", std::process::id()));
    let base = folder.join("base");
    fs::create_dir_all(&base).unwrap();
    let file = folder.join("topology.toml");
    fs::write(&file, topology).unwrap();
    let mut plan = Command::new(holdall_path());
    plan.arg("plan").arg(&file).args(["--emit", "kubernetes", "-o"]).arg(&base);
    run(&mut plan);
    folder
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn run(command: &mut Command) -> String {
    let done = output(command);
    let errors = String::from_utf8_lossy(&done.stderr);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{command:?}: {errors}{text}");
    text
}

fn validate(release: &str, file: &Path) -> Command {
    let mut command = Command::new(tool("venv/bin/kubernetes-validate"));
    command.args(["--strict", "--kubernetes-version", release]).arg(file);
    command
}

/// Kinds and names, in order.
fn named(manifests: &str) -> Vec<(String, String)> {
    let text = |value: &str| value.trim().trim_matches('"').to_owned();
    let mut named: Vec<_> = manifests
        .split("---\n")
        .filter(|one| !one.trim().is_empty())
        .map(|one| {
            let kind = one.lines().find_map(|line| line.strip_prefix("kind:")).unwrap();
            let metadata = one.split("\nmetadata:\n").nth(1).unwrap();
            let name = metadata.lines().find_map(|line| line.strip_prefix("  name:")).unwrap();
            (text(kind), text(name))
        })
        .collect();
    named.sort();
    named
}

#[test]
fn manifests_match_the_schemas_of_kubernetes() {
    for (name, topology) in [("packaged", packaged()), ("everything", EVERYTHING.to_owned())] {
        let folder = planned(name, &topology);
        let mut files: Vec<_> = fs::read_dir(folder.join("base")).unwrap().collect();
        files.retain(|entry| entry.as_ref().unwrap().file_name() != "kustomization.yaml");
        assert!(!files.is_empty());
        for file in files {
            for release in RELEASES {
                run(&mut validate(release, &file.as_ref().unwrap().path()));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// The validator does detect errors.
#[test]
fn an_invalid_manifest_is_refused() {
    let folder = planned("wrong", &packaged());
    let file = folder.join("base/main.yaml");
    let text = fs::read_to_string(&file).unwrap();
    for (right, wrong) in [("podManagementPolicy", "podManagement"), ("maxReplicas: 8", "max: 8")] {
        assert!(text.contains(right), "{right}");
        fs::write(&file, text.replacen(right, wrong, 1)).unwrap();
        assert!(!output(&mut validate(RELEASES[1], &file)).status.success(), "{wrong}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kustomize_accepts_manifests_as_a_base() {
    let folder = planned("kustomize", EVERYTHING);
    let base = folder.join("base");
    let built = run(Command::new(tool("kustomize")).arg("build").arg(&base));
    let files = ["east.yaml", "west.yaml"].map(|name| fs::read_to_string(base.join(name)).unwrap());
    assert_eq!(named(&built), named(&files.join("---\n")));
    // Typical changes by users: the image, and a removed resource.
    let own = folder.join("own");
    fs::create_dir(&own).unwrap();
    let overlay = "resources: [../base]\n\
        images: [{name: holdall, newName: registry.example/holdall, newTag: 1.2.3}]\n\
        patches:\n\
        - target: {kind: NetworkPolicy}\n  \
          patch: |\n    \
            $patch: delete\n    \
            apiVersion: networking.k8s.io/v1\n    \
            kind: NetworkPolicy\n    \
            metadata: {name: any}\n";
    fs::write(own.join("kustomization.yaml"), overlay).unwrap();
    let built = run(Command::new(tool("kustomize")).arg("build").arg(&own));
    assert!(built.contains("image: registry.example/holdall:1.2.3"), "{built}");
    assert!(!built.contains("image: holdall:latest") && !built.contains("NetworkPolicy"));
    fs::remove_dir_all(&folder).unwrap();
}
