//! `holdall doctor` on real drivers: a pair of interfaces in a network namespace of the test. It
//! finds the settings that the test changed, in the kernel's own answers; `--apply` fixes them, and
//! `--undo` restores the previous ones.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::server::holdall_path;

/// A network namespace, removed on drop.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let namespace = Self(format!("doctor-{name}-{}", std::process::id()));
        ip(&format!("netns add {}", namespace.0));
        let queues = "numrxqueues 2 numtxqueues 2";
        ip(&format!("-n {} link add one {queues} type veth peer name two {queues}", namespace.0));
        namespace
    }

    fn run(&self, program: &str, words: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).args(words);
        command.output().unwrap()
    }

    fn ethtool(&self, words: &[&str]) -> String {
        let output = self.run("ethtool", words);
        assert!(output.status.success(), "ethtool {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// All settings that the checks may change.
    fn settings(&self) -> String {
        let queues = "cat /sys/class/net/one/queues/tx-*/xps_cpus";
        let masks = self.run("sh", &["-c", queues]).stdout;
        self.ethtool(&["-k", "one"]) + &String::from_utf8(masks).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The namespace may be missing already.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
}

#[test]
fn driver_settings_are_detected_fixed_and_restored() {
    let namespace = Namespace::new("driver");
    // The interfaces are in the namespace; nothing else of the host can be changed.
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("doctor");
    let _ = fs::remove_dir_all(&root);
    for folder in ["sys/class", "usr/sbin", "sys/devices/system/cpu"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    symlink("/sys/class/net", root.join("sys/class/net")).unwrap();
    symlink("/usr/sbin/ethtool", root.join("usr/sbin/ethtool")).unwrap();
    fs::write(root.join("sys/devices/system/cpu/online"), "0-1").unwrap();
    let root = root.display().to_string();
    let program = holdall_path().display().to_string();
    let doctor = |words: &[&str]| {
        let output = namespace.run(&program, &[&["doctor", "--root", &root], words].concat());
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let found = || -> Vec<String> {
        let list: Vec<Value> = serde_json::from_str(&doctor(&["--nic", "one", "--json"])).unwrap();
        list.iter().map(|finding| finding["check"].as_str().unwrap().to_owned()).collect()
    };

    // Two transmit queues are bound to no CPU, as the driver made them.
    assert_eq!(found(), ["sending"]);
    namespace.ethtool(&["-K", "one", "tcp-segmentation-offload", "off"]);
    let before = namespace.settings();
    assert_eq!(found(), ["offloads", "sending"]);
    let written = doctor(&["--nic", "one", "--apply"]);
    assert!(written.contains("ethtool -K one tcp-segmentation-offload on"), "{written}");
    assert_eq!(found(), [""; 0], "it is silent once nothing is wrong");
    assert!(namespace.ethtool(&["-k", "one"]).contains("tcp-segmentation-offload: on"));
    doctor(&["--undo"]);
    assert_eq!(namespace.settings(), before);
}

/// The kernel cuts a list off where the first read of it ends, and a write replaces it.
#[test]
fn reserved_ports_of_others_stay_reserved() {
    const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
    let namespace = Namespace::new("ports");
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("doctor-ports");
    let _ = fs::remove_dir_all(&root);
    for folder in ["proc/sys/net", "proc/7"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    symlink("/proc/sys/net/ipv4", root.join("proc/sys/net/ipv4")).unwrap();
    fs::write(root.join("proc/7/cmdline"), "memcached\0-l127.0.0.1\0-p40001\0").unwrap();
    let shell = |command: &str| {
        let output = namespace.run("sh", &["-c", command]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let others: Vec<String> = (30_000..40_000).step_by(2).map(|port| port.to_string()).collect();
    let others = others.join(",");
    let list = root.join("list");
    fs::write(&list, &others).unwrap();
    shell(&format!("cat {} >{RESERVED}", list.display()));
    let reserved = || shell(&format!("cat {RESERVED}"));
    assert_eq!(reserved(), others);
    let (root, program) = (root.display().to_string(), holdall_path().display().to_string());
    let doctor = |flag: &str| {
        let output = namespace.run(&program, &["doctor", "--root", &root, flag]);
        assert!(output.status.success(), "{output:?}");
    };
    doctor("--apply");
    assert_eq!(reserved(), format!("{others},40001"));
    doctor("--undo");
    assert_eq!(reserved(), others);
    shell(&format!("echo >{RESERVED}"));
    doctor("--apply");
    assert_eq!(reserved(), "40001");
    doctor("--undo");
    assert_eq!(reserved(), "");
}
