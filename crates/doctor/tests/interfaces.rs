//! The checks of driver settings, on synthetic hosts with their own `ethtool`: silent on a sound
//! interface, a finding for each fault, and the former settings after `undo`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use doctor::{ChangeError, Finding, Host, apply, examine, text, undo};
use tempfile::TempDir;

const RINGS: &str = "Ring parameters for eth1:\nPre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\n\
                     Current hardware settings:\nRX:\t\t512\nTX:\t\t512\n";
const CHANNELS: &str = "Channel parameters for eth1:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t8\n\
                        Current hardware settings:\nRX:\t\tn/a\nCombined:\t2\n";
const TABLE: &str = "RX flow hash indirection table for eth1 with 2 RX ring(s):\n\
                     \x20   0:      0     1     0     1     0     1     0     1\n\
                     \x20   8:      1     0     1     0     1     0     1     0\n\
                     RSS hash key:\n12:34\nRSS hash function:\n    toeplitz: on\n";
const FEATURES: &str = "Features for eth1:\nrx-checksumming: on\ntx-checksumming: on [fixed]\n\
                        \ttx-checksum-ipv4: off [fixed]\nscatter-gather: on\n\
                        tcp-segmentation-offload: on\ngeneric-receive-offload: on\n\
                        large-receive-offload: off [fixed]\n";
const COALESCING: &str = "Coalesce parameters for eth1:\nAdaptive RX: off  TX: off\nrx-usecs: 50\n\
                          rx-frames: n/a\ntx-usecs: 50\n";
const BUSY: &str = "cpu  100000 0 100000 900000 10 1000 900000 0 0 0\n";

/// A host of two cores with one interface and no fault.
const SOUND: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-1"),
    ("sys/class/net/eth1/device/vendor", "0x8086"),
    ("sys/class/net/eth1/queues/rx-0/rps_cpus", "0"),
    ("sys/class/net/eth1/queues/rx-1/rps_cpus", "0"),
    ("sys/class/net/eth1/queues/tx-0/xps_cpus", "1"),
    ("sys/class/net/eth1/queues/tx-1/xps_cpus", "2"),
    ("sys/class/net/eth1/statistics/rx_missed_errors", "0"),
    ("sys/class/net/eth1/statistics/rx_bytes", "5000000000"),
    ("sys/class/net/eth1/statistics/rx_packets", "10000000"),
    ("proc/stat", "cpu  500000 0 300000 900000 10 1000 90000 0 0 0\n"),
    ("ethtool/-g.eth1", RINGS),
    ("ethtool/-l.eth1", CHANNELS),
    ("ethtool/-x.eth1", TABLE),
    ("ethtool/-k.eth1", FEATURES),
    ("ethtool/-c.eth1", COALESCING),
];

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn host(changed: &[(&str, &str)]) -> (TempDir, Host) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in SOUND.iter().chain(changed) {
        put(folder.path(), name, text);
    }
    for cpu in 0..2 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        put(folder.path(), &format!("{topology}/physical_package_id"), "0");
        put(folder.path(), &format!("{topology}/core_id"), &cpu.to_string());
    }
    // A link: a script that another thread's child still has open for writing cannot be run.
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ethtool.py");
    fs::create_dir_all(folder.path().join("usr/sbin")).unwrap();
    symlink(program, folder.path().join("usr/sbin/ethtool")).unwrap();
    let host = Host::at(folder.path());
    (folder, host)
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.check).collect()
}

/// A fault: the check, changed files, and the command that fixes it.
type Fault = (&'static str, Vec<(&'static str, String)>, &'static str);

fn faults() -> Vec<Fault> {
    let owned = |pairs: &[(&'static str, &str)]| {
        pairs.iter().map(|(name, text)| (*name, (*text).to_owned())).collect::<Vec<_>>()
    };
    let missed = "sys/class/net/eth1/statistics/rx_missed_errors";
    let bytes = "sys/class/net/eth1/statistics/rx_bytes";
    let (features, coalescing) = ("ethtool/-k.eth1", "ethtool/-c.eth1");
    let late = COALESCING.replace("rx-usecs: 50", "rx-usecs: 1000");
    let no_sums = FEATURES.replace("rx-checksumming: on", "rx-checksumming: off");
    let no_joins = FEATURES.replace("receive-offload: on", "receive-offload: off");
    let one_of_two = TABLE.replace("     1", "     0").replace(":      1", ":      0");
    vec![
        ("ring", owned(&[(missed, "9")]), "ethtool -G eth1 rx 4096"),
        ("coalescing", owned(&[("proc/stat", BUSY)]), "ethtool -C eth1 rx-usecs 350"),
        ("coalescing", owned(&[(coalescing, &late)]), "ethtool -C eth1 rx-usecs 350"),
        ("offloads", owned(&[(features, &no_sums)]), "ethtool -K eth1 rx-checksumming on"),
        ("gro", owned(&[(bytes, "900000000")]), "ethtool -K eth1 generic-receive-offload off"),
        (
            "gro",
            owned(&[(bytes, "14000000000"), (features, &no_joins)]),
            "ethtool -K eth1 generic-receive-offload on",
        ),
        ("hash", owned(&[("ethtool/-x.eth1", &one_of_two)]), "ethtool -X eth1 equal 2"),
        (
            "queues",
            owned(&[("ethtool/-l.eth1", &CHANNELS.replace("Combined:\t2", "Combined:\t1"))]),
            "ethtool -L eth1 combined 2",
        ),
        (
            "sending",
            owned(&[
                ("sys/class/net/eth1/queues/tx-0/xps_cpus", "0"),
                ("sys/class/net/eth1/queues/tx-1/xps_cpus", "00000000,00000000"),
            ]),
            "echo 1 >/sys/class/net/eth1/queues/tx-0/xps_cpus",
        ),
    ]
}

fn borrowed<'t>(changed: &'t [(&'static str, String)]) -> Vec<(&'static str, &'t str)> {
    changed.iter().map(|(name, text)| (*name, text.as_str())).collect()
}

#[test]
fn a_sound_interface_has_no_finding() {
    let (_folder, host) = host(&[]);
    assert_eq!(examine(&host, &[]), []);
}

#[test]
fn each_fault_of_an_interface_is_found_and_nothing_else() {
    for (check, changed, command) in faults() {
        let (_folder, host) = host(&borrowed(&changed));
        let findings = examine(&host, &[]);
        assert_eq!(names(&findings), [check], "{changed:?}\n{findings:?}");
        assert!(findings[0].command.starts_with(command), "{:?}", findings[0]);
        assert!(text(&findings).contains("why: "));
    }
}

#[test]
fn unknown_and_unchangeable_settings_are_no_findings() {
    let adaptive = COALESCING.replace("Adaptive RX: off", "Adaptive RX: on");
    let fixed = FEATURES.replace("rx-checksumming: on", "rx-checksumming: off [fixed]");
    let (folder, host) = host(&[
        ("proc/stat", BUSY),
        ("ethtool/-c.eth1", &adaptive),
        ("ethtool/-k.eth1", &fixed),
        ("ethtool/-x.eth1", "RX flow hash indirection table for eth1 with 2 RX ring(s):\n"),
        ("ethtool/-g.eth1", "Ring parameters for eth1:\n"),
    ]);
    assert_eq!(examine(&host, &[]), []);
    // Without ethtool, the time in interrupts is still a finding.
    fs::remove_file(folder.path().join("usr/sbin/ethtool")).unwrap();
    let findings = examine(&host, &[]);
    assert_eq!(names(&findings), ["coalescing"]);
    assert_eq!(findings[0].settings, []);
}

#[test]
fn interface_settings_are_changed_and_restored() {
    for (check, changed, _) in faults() {
        let (folder, host) = host(&borrowed(&changed));
        let findings = examine(&host, &[]);
        if findings[0].settings.is_empty() {
            continue;
        }
        let all = || -> Vec<(String, String)> {
            let read = |folder: &Path| {
                let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
                let text = |path: &Path| fs::read_to_string(path).unwrap().trim().to_owned();
                files.map(|path| (path.display().to_string(), text(&path))).collect::<Vec<_>>()
            };
            let queues = folder.path().join("sys/class/net/eth1/queues");
            let mut files = read(&folder.path().join("ethtool"));
            files.extend(["tx-0", "tx-1"].iter().flat_map(|queue| read(&queues.join(queue))));
            files.sort();
            files
        };
        let before = all();
        assert!(!apply(&host, &findings).unwrap().is_empty(), "{check}");
        let after = all();
        assert_ne!(after, before, "{check}");
        // The time in interrupts is historical.
        assert_eq!(names(&examine(&host, &[])), Vec::<&str>::new(), "{check}");
        undo(&host).unwrap();
        assert_eq!(all(), before, "{check}");
    }
}

#[test]
fn a_driver_that_refuses_is_an_error() {
    let late = COALESCING.replace("rx-usecs: 50", "rx-usecs: 1000");
    let (folder, host) = host(&[("ethtool/-c.eth1", &late)]);
    let findings = examine(&host, &[]);
    fs::remove_file(folder.path().join("ethtool/-c.eth1")).unwrap();
    let refused = apply(&host, &findings).unwrap_err();
    assert!(matches!(refused, ChangeError::Write { .. }), "{refused}");
    assert!(refused.to_string().contains("ethtool -C eth1 rx-usecs"), "{refused}");
}
