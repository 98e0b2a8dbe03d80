//! Every check on synthetic hosts: silent on a sound one, and a finding for each fault.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use doctor::{
    ChangeError, Finding, Host, Level, UNDO_FILE, apply, examine, layout, report, text, undo,
};
use tempfile::TempDir;

/// A host without a fault: four cores with two threads each, one server, one interface with four
/// queues, whose interrupts are spread.
const SOUND: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-7"),
    ("sys/devices/system/cpu/smt/control", "on"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
    ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/node/node0/cpulist", "0-7"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("sys/fs/cgroup/system.slice/memory.max", "max"),
    ("sys/fs/cgroup/system.slice/cache.service/memory.max", "3221225472"),
    ("sys/class/net/eth1/device/vendor", "0x8086"),
    ("sys/class/net/eth1/queues/rx-0/rps_cpus", "00"),
    ("sys/class/net/eth1/queues/rx-1/rps_cpus", "00"),
    ("sys/class/net/eth1/queues/rx-2/rps_cpus", "00"),
    ("sys/class/net/eth1/queues/rx-3/rps_cpus", "00"),
    ("sys/class/net/lo/queues/rx-0/rps_cpus", "00"),
    ("proc/cpuinfo", "model name\t: A CPU\nflags\t\t: fpu aes sse2\n"),
    ("proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n"),
    ("proc/swaps", "Filename Type Size Used Priority\n"),
    ("proc/stat", "cpu  500000 0 300000 900000 10 1000 90000 0 0 0\n"),
    ("proc/interrupts", SPREAD),
    ("proc/net/softnet_stat", "00000010 00000000 00000000\n00000020 00000000 00000000\n"),
    ("proc/net/netstat", "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 5 0\n"),
    ("proc/irq/30/smp_affinity_list", "0-7"),
    ("proc/irq/31/smp_affinity_list", "0-7"),
    ("proc/sys/kernel/osrelease", "6.1.0"),
    ("proc/sys/vm/swappiness", "60"),
    ("proc/sys/vm/overcommit_memory", "0"),
    ("proc/sys/net/core/somaxconn", "4096"),
    ("proc/sys/net/core/netdev_max_backlog", "1000"),
    ("proc/sys/net/core/rps_sock_flow_entries", "0"),
    ("proc/sys/net/ipv4/tcp_max_syn_backlog", "4096"),
    ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
    ("proc/sys/net/ipv4/ip_local_reserved_ports", ""),
    ("proc/1/comm", "init"),
    ("proc/1/cmdline", "/sbin/init\0"),
    ("proc/77/cmdline", "/usr/bin/holdall\0serve\0-m2048\0-t4\0-Y\0/etc/users\0-l[fd00::5]\0"),
    ("proc/77/cgroup", "0::/system.slice/cache.service\n"),
    (
        "proc/77/limits",
        "Limit Soft Hard Units\nMax open files            8192       8192       files\n",
    ),
    (
        "proc/77/status",
        "Name:\tholdall\nUid:\t107\t107\t107\t107\nVmSwap:\t       0 kB\nCpus_allowed_list:\t0-7\n",
    ),
    ("etc/users", "app:secret"),
    ("etc/key.pem", "a key"),
];

const SPREAD: &str = "           CPU0  CPU1  CPU2  CPU3  CPU4 CPU5 CPU6 CPU7\n\
  30:  90000 0 0 0 0 0 0 0  PCI-MSI 1-edge  eth1-TxRx-0\n\
  31:  0 95000 0 0 0 0 0 0  PCI-MSI 2-edge  eth1-TxRx-1\n\
  32:  9999999 0 0 0 0 0 0 0  PCI-MSI 3-edge  eth10-TxRx-0\n\
 NMI:  1 1 1 1 1 1 1 1  Non-maskable interrupts\n";

/// The parts of a server's command line that replace the sound ones in a case.
fn line(words: &str) -> String {
    words.replace(' ', "\0")
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
}

/// The sound host with some files changed.
fn host(changed: &[(&str, &str)]) -> (TempDir, Host) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in SOUND.iter().chain(changed) {
        put(folder.path(), name, text);
    }
    for cpu in 0..8 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        put(folder.path(), &format!("{topology}/physical_package_id"), "0");
        put(folder.path(), &format!("{topology}/core_id"), &(cpu % 4).to_string());
    }
    let host = Host::at(folder.path());
    (folder, host)
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.check).collect()
}

#[test]
fn a_sound_host_has_no_finding() {
    let (_folder, host) = host(&[]);
    assert_eq!(examine(&host, &[]), []);
    assert_eq!(text(&examine(&host, &[])), "nothing found\n");
}

#[test]
fn a_host_without_readable_files_has_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(examine(&Host::at(folder.path()), &["eth0".to_owned()]), []);
}

#[test]
fn each_fault_is_found_and_nothing_else() {
    let served = |flags: &str| line(&format!("/usr/bin/holdall serve -Y /etc/users {flags}"));
    let cpu = "sys/devices/system/cpu";
    let one_queue = [
        ("sys/class/net/ens3/device/vendor", "0x1"),
        ("sys/class/net/ens3/queues/rx-0/rps_cpus", "00"),
        ("sys/class/net/ens3/queues/rx-0/rps_flow_cnt", "0"),
    ];
    let cases: Vec<(&str, Vec<(String, String)>)> = vec![
        ("threads", vec![("proc/77/cmdline".into(), served("-m 2048 -t 5"))]),
        ("threads", (1..=5).map(|n| (format!("proc/77/task/{n}/comm"), "worker-7\n".into())).collect()),
        ("affinity", vec![("proc/77/status".into(), "Uid:\t7\t7\nCpus_allowed_list:\t0-1\n".into())]),
        ("smt", vec![(format!("{cpu}/smt/control"), "off".into())]),
        ("turbo", vec![(format!("{cpu}/intel_pstate/no_turbo"), "1".into())]),
        ("turbo", vec![(format!("{cpu}/cpufreq/boost"), "0".into())]),
        ("governor", vec![(format!("{cpu}/cpu0/cpufreq/scaling_governor"), "powersave".into())]),
        ("idle states", vec![(format!("{cpu}/cpuidle/current_driver"), "none".into())]),
        ("aes", vec![
            ("proc/cpuinfo".into(), "flags\t: fpu sse2\n".into()),
            ("proc/77/cmdline".into(), served("-Z -o ssl_chain_cert=/c,ssl_key=/etc/key.pem -m 2048")),
        ]),
        ("numa", vec![("sys/devices/system/node/node1/cpulist".into(), "4-7".into())]),
        ("memory", vec![("proc/meminfo".into(), "MemTotal: 2000000 kB\n".into())]),
        ("control group", vec![("sys/fs/cgroup/system.slice/cache.service/memory.max".into(), "2147483648".into())]),
        ("control group", vec![("sys/fs/cgroup/system.slice/memory.max".into(), "1073741824".into())]),
        ("control group", vec![("proc/77/cgroup".into(), "0::/\n".into()),
            ("sys/fs/cgroup/memory.max".into(), "1073741824".into())]),
        ("swap", vec![("proc/77/status".into(), "Uid:\t7\t7\nVmSwap:\t 52 kB\n".into())]),
        ("swappiness", vec![("proc/swaps".into(), "Filename\n/swap file 5 5 -1\n".into())]),
        ("overcommit", vec![("proc/sys/vm/overcommit_memory".into(), "2".into())]),
        ("huge pages", vec![
            ("sys/kernel/mm/transparent_hugepage/enabled".into(), "always madvise [never]".into()),
            ("proc/77/cmdline".into(), served("-L -m 2048")),
        ]),
        ("backlog", vec![("proc/sys/net/core/somaxconn".into(), "128".into())]),
        ("backlog", vec![("proc/77/cmdline".into(), served("-m 2048 -b 9000")),
            ("proc/sys/net/core/somaxconn".into(), "16384".into())]),
        ("overflows", vec![("proc/net/netstat".into(), "TcpExt: A ListenOverflows\nTcpExt: 5 9\n".into())]),
        ("ports", vec![("proc/sys/net/ipv4/ip_local_port_range".into(), "50000\t60000".into())]),
        ("port taken", vec![("proc/77/cmdline".into(), served("-m 2048 -p 40000"))]),
        ("dropped", vec![("proc/net/softnet_stat".into(), "00000010 0000000a 00000000\n".into())]),
        ("queues", vec![("sys/class/net/ens4/device/vendor".into(), "0x1".into()),
            ("sys/class/net/ens4/queues/rx-0/rps_cpus".into(), "00".into()),
            ("sys/class/net/ens4/queues/rx-1/rps_cpus".into(), "00".into())]),
        ("steering", one_queue.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()),
        ("interrupts", vec![("proc/interrupts".into(),
            "  30:  90000 0 0 0 0 0 0 0  PCI 1-edge  eth1-TxRx-0\n  31:  95000 0 0 0 0 0 0 0  PCI 2-edge  eth1-TxRx-1\n".into())]),
        ("irqbalance", vec![("proc/99/comm".into(), "irqbalance\n".into())]),
        ("coalescing", vec![("proc/stat".into(), "cpu  100000 0 100000 900000 10 1000 900000 0 0 0\n".into())]),
        ("open files", vec![("proc/77/limits".into(), "Max open files            1024       8192       files\n".into())]),
        ("clock", vec![("sys/devices/system/clocksource/clocksource0/current_clocksource".into(), "hpet".into())]),
        ("exposed", vec![("proc/77/cmdline".into(), line("/usr/bin/memcached -m 2048"))]),
        ("root", vec![("proc/77/status".into(), "Uid:\t0\t0\t0\t0\n".into())]),
    ];
    for (check, changed) in cases {
        let changed: Vec<(&str, &str)> =
            changed.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (_folder, host) = host(&changed);
        let findings = examine(&host, &[]);
        let mut found = names(&findings);
        found.dedup();
        // A full backlog has two settings that are too small.
        assert_eq!(found, [check], "{changed:?}\n{findings:?}");
        let shown = text(&findings);
        assert!(findings.iter().all(|finding| !finding.command.is_empty()), "{check}");
        assert!(shown.contains(check) && shown.contains("why: ") && shown.contains("do:  "));
    }
}

#[test]
fn memcached_limits_its_files_to_its_connections() {
    let flags = line("/usr/bin/memcached -l 127.0.0.1 -c 1024");
    for (limit, wanted) in [("1024", &[][..]), ("512", &["open files"])] {
        let limits = format!("Max open files            {limit}       {limit}       files\n");
        let (_folder, host) = host(&[("proc/77/cmdline", &flags), ("proc/77/limits", &limits)]);
        assert_eq!(names(&examine(&host, &[])), wanted, "{limit}");
    }
}

#[test]
fn world_readable_secret_files_are_found() {
    let tls = line(
        "/usr/bin/holdall serve -Z -o ssl_chain_cert=/c,ssl_key=/etc/key.pem -Y /etc/users -m 2048",
    );
    let (folder, host) = host(&[("proc/77/cmdline", &tls)]);
    assert_eq!(examine(&host, &[]), []);
    for name in ["etc/users", "etc/key.pem"] {
        let path = folder.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let findings = examine(&host, &[]);
        assert_eq!(names(&findings), ["readable"], "{name}");
        assert_eq!(findings[0].command, format!("chmod o= /{name}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn flags_in_a_servers_file_count() {
    let flags = line("/usr/bin/holdall serve --config /etc/holdall.conf");
    let file =
        "# memory\n-m 2048\n-t 9\n-Y /etc/users\n-o ssl_chain_cert=/c\n-o ssl_key=/etc/key.pem\n";
    let (folder, host) = host(&[("proc/77/cmdline", &flags), ("etc/holdall.conf", file)]);
    let key = folder.path().join("etc/key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(names(&examine(&host, &[])), ["threads", "readable"]);
    let overridden = line("/usr/bin/holdall serve --config=/etc/holdall.conf -t 4");
    put(folder.path(), "proc/77/cmdline", &overridden);
    assert_eq!(names(&examine(&host, &[])), ["readable"]);
}

/// A server's file, of any kind and place, has the same effect as flags.
#[test]
fn settings_count_from_every_source() {
    const TOML: &str = "memory_limit = 900000\nlisten = ['127.0.0.1', '0.0.0.0']\n\
        conn_limit = 50000\nlisten_backlog = 9000\nport = 40000\n";
    const VARIABLES: &str = "PATH=/bin\0HOLDALL_MEMORY_LIMIT=900000\0HOLDALL_LISTEN=0.0.0.0\0\
        HOLDALL_CONN_LIMIT=50000\0HOLDALL_LISTEN_BACKLOG=9000\0HOLDALL_PORT=40000\0";
    let of_config = |file: &str| line(&format!("/usr/bin/holdall serve --config {file}"));
    let absolute = of_config("/etc/holdall/server.toml");
    let relative = of_config("server.toml");
    let alone = line("/usr/bin/holdall serve");
    let cases = [
        vec![("proc/77/cmdline", absolute.as_str()), ("etc/holdall/server.toml", TOML)],
        // A container's own path.
        vec![("proc/77/cmdline", &absolute), ("proc/77/root/etc/holdall/server.toml", TOML)],
        vec![("proc/77/cmdline", &relative), ("proc/77/cwd/server.toml", TOML)],
        vec![("proc/77/cmdline", &alone), ("proc/77/environ", VARIABLES)],
        vec![
            ("proc/77/cmdline", &alone),
            ("proc/77/environ", "HOLDALL_CONFIG=here/server.toml\0"),
            ("proc/77/cwd/here/server.toml", TOML),
        ],
    ];
    for changed in cases {
        let (_folder, host) = host(&changed);
        let found = examine(&host, &[]);
        let wanted = [
            "memory",
            "control group",
            "backlog",
            "backlog",
            "port taken",
            "open files",
            "exposed",
        ];
        assert_eq!(names(&found), wanted, "{changed:?}\n{found:?}");
        let shown = report(&host, &found);
        assert!(shown.contains("memory_limit=900000"), "{shown}");
    }
}

#[test]
fn logins_and_secrets_in_a_settings_file_are_detected() {
    let words = line("/usr/bin/holdall serve --config srv.toml -l 0.0.0.0 -m 2048");
    let toml = "auth_file = 'users'\nmemory_limit = 900000\n";
    let (folder, host) = host(&[
        ("proc/77/cmdline", words.as_str()),
        ("proc/77/cwd/srv.toml", toml),
        ("proc/77/cwd/users", "a:b"),
    ]);
    assert_eq!(examine(&host, &[]), []);
    let shown = report(&host, &[]);
    assert!(shown.contains("from its file or environment: auth_file=..\n"), "{shown}");
    let users = folder.path().join("proc/77/cwd/users");
    fs::set_permissions(users, fs::Permissions::from_mode(0o644)).unwrap();
    let found = examine(&host, &[]);
    assert_eq!(names(&found), ["readable"]);
    assert_eq!(found[0].command, "chmod o= users");
}

#[test]
fn settings_that_cannot_be_read_are_a_finding() {
    let words = line("/usr/bin/holdall serve --config /etc/gone.toml -m 2048");
    let (folder, host) = host(&[("proc/77/cmdline", &words)]);
    let found = examine(&host, &[]);
    assert_eq!(names(&found), ["settings"]);
    assert!(found[0].found.contains("gone.toml"), "{found:?}");
    put(folder.path(), "etc/gone.toml", "memory_limit = true\n");
    let found = examine(&host, &[]);
    assert_eq!(names(&found), ["settings"]);
    assert!(found[0].found.contains("gone.toml:1:"), "{found:?}");
}

/// Settings that `apply` writes, all at once.
const TO_APPLY: &[(&str, &str)] = &[
    ("proc/sys/net/core/somaxconn", "128"),
    ("proc/sys/net/ipv4/ip_local_port_range", "50000\t60000"),
    ("proc/sys/vm/overcommit_memory", "2"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
    ("sys/devices/system/cpu/smt/control", "off"),
    ("sys/class/net/ens3/device/vendor", "0x1"),
    ("sys/class/net/ens3/queues/rx-0/rps_cpus", "00"),
    ("sys/class/net/ens3/queues/rx-0/rps_flow_cnt", "0"),
    (
        "proc/interrupts",
        "  30:  90000 0 0 0 0 0 0 0  PCI 1-edge  eth1-TxRx-0\n  31:  95000 0 0 0 0 0 0 0  PCI 2-edge  eth1-TxRx-1\n",
    ),
];

fn settings(folder: &Path, findings: &[Finding]) -> Vec<String> {
    let files = findings.iter().flat_map(|finding| &finding.settings);
    let read = |file: &str| fs::read_to_string(folder.join(file.trim_start_matches('/'))).unwrap();
    files
        .map(|setting| read(&setting.file).split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn apply_fixes_the_findings_and_undo_restores_the_settings() {
    let (folder, host) = host(TO_APPLY);
    let findings = examine(&host, &[]);
    let before = settings(folder.path(), &findings);
    assert!(matches!(undo(&host), Err(ChangeError::NothingToUndo)));
    let changed = apply(&host, &findings).unwrap();
    assert_eq!(changed.len(), before.len());
    // Interrupt counts are historical.
    assert_eq!(names(&examine(&host, &[])), ["interrupts"]);
    assert_eq!(
        fs::read_to_string(folder.path().join("proc/irq/31/smp_affinity_list")).unwrap(),
        "1\n"
    );
    assert_eq!(apply(&host, &findings).unwrap(), [], "nothing is left to change");
    assert_eq!(undo(&host).unwrap().len(), before.len());
    assert_eq!(settings(folder.path(), &findings), before);
    assert!(!folder.path().join(UNDO_FILE.trim_start_matches('/')).exists());
}

#[test]
fn ports_of_servers_are_added_to_the_reserved_ones() {
    const RESERVED: &str = "proc/sys/net/ipv4/ip_local_reserved_ports";
    let served = |port: &str| line(&format!("/usr/bin/holdall serve -l 127.0.0.1 -p {port}"));
    let (first, second) = (served("40002"), served("40001"));
    for (before, after) in [
        ("35000,36000-36010", "35000,36000-36010,40001,40002"),
        ("40001-40001", "40001-40001,40002"),
        ("", "40001,40002"),
    ] {
        let (folder, host) = host(&[
            (RESERVED, before),
            ("proc/78/cmdline", &first),
            ("proc/79/cmdline", &second),
            // The same port at another address.
            ("proc/80/cmdline", &second.replace("127.0.0.1", "127.0.0.2")),
        ]);
        let reserved = || fs::read_to_string(folder.path().join(RESERVED)).unwrap();
        let findings = examine(&host, &[]);
        assert_eq!(names(&findings), ["port taken"]);
        apply(&host, &findings).unwrap();
        assert_eq!(reserved(), format!("{after}\n"));
        assert_eq!(examine(&host, &[]), [], "{after}");
        undo(&host).unwrap();
        assert_eq!(reserved(), format!("{before}\n"));
    }
}

#[test]
fn a_greater_table_of_flows_stays() {
    const TABLE: &str = "proc/sys/net/core/rps_sock_flow_entries";
    let (folder, host) = host(TO_APPLY);
    put(folder.path(), TABLE, "65536");
    apply(&host, &examine(&host, &[])).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join(TABLE)).unwrap().trim(), "65536");
    let flows = folder.path().join("sys/class/net/ens3/queues/rx-0/rps_flow_cnt");
    assert_eq!(fs::read_to_string(flows).unwrap(), "32768\n");
}

#[test]
fn apply_raises_the_limit_of_queued_packets_once() {
    let (folder, host) = host(&[("proc/net/softnet_stat", "00000010 0000000a 00000000\n")]);
    for _ in 0..2 {
        apply(&host, &examine(&host, &[])).unwrap();
        let limit = folder.path().join("proc/sys/net/core/netdev_max_backlog");
        assert_eq!(fs::read_to_string(limit).unwrap().trim(), "4000");
    }
    let findings = examine(&host, &[]);
    assert_eq!((names(&findings), findings[0].level), (vec!["dropped"], Level::Note));
    assert!(findings[0].command.contains("netdev_max_backlog=8000"), "{}", findings[0].command);
}

#[test]
fn earlier_changes_can_be_undone_after_a_failed_write() {
    let (folder, host) = host(TO_APPLY);
    let findings = examine(&host, &[]);
    let before = settings(folder.path(), &findings);
    let last = folder.path().join("proc/irq/31/smp_affinity_list");
    fs::remove_file(&last).unwrap();
    assert!(matches!(apply(&host, &findings), Err(ChangeError::Write { .. })));
    put(folder.path(), "proc/irq/31/smp_affinity_list", "0-7");
    undo(&host).unwrap();
    assert_eq!(settings(folder.path(), &findings), before);
}

#[test]
fn a_damaged_undo_file_changes_nothing() {
    let (folder, host) = host(TO_APPLY);
    put(folder.path(), UNDO_FILE.trim_start_matches('/'), "{");
    let findings = examine(&host, &[]);
    let before = settings(folder.path(), &findings);
    assert!(matches!(apply(&host, &findings), Err(ChangeError::Damaged(_))));
    assert!(matches!(undo(&host), Err(ChangeError::Damaged(_))));
    assert_eq!(settings(folder.path(), &findings), before);
}

/// Table 2 of the paper: threads on the first CPU of each core, interrupts on its sibling.
#[test]
fn threads_and_interrupts_share_a_core() {
    let (_folder, host) = host(&[]);
    let table = layout(&host);
    assert!(table.contains("     0     1              1                  5\n"), "{table}");
    assert!(table.ends_with("holdall serve -t 4 -o affinity=0:1:2:3\n"), "{table}");
}

#[test]
fn a_report_has_the_host_and_no_secret() {
    let (_folder, host) = host(&[("proc/sys/net/core/somaxconn", "128")]);
    let shown = report(&host, &examine(&host, &[]));
    for wanted in ["6.1.0", "8 on 4 cores", "A CPU", "-m2048", "net.core.somaxconn is 128"] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
    assert!(!shown.contains("/etc/users") && !shown.contains("secret"), "{shown}");
}
