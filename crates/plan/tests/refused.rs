//! Topologies whose files would be wrong or unusable are refused, and no file is made.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;

use options::{Environment, Invocation, Style};
use plan::{Files, Topology, kubernetes, systemd};

const EXAMPLE: &str = include_str!("../../../packaging/topology.toml");

const PODS: &str = include_str!("pods.toml");

/// The example with one change, which must apply.
fn changed(example: &str, from: &str, to: &str) -> String {
    assert!(example.contains(from), "{from}");
    example.replacen(from, to, 1)
}

/// The reason why a form refuses a topology.
fn reason<E: std::fmt::Display>(
    text: &str,
    form: impl Fn(&Topology) -> Result<Files, E>,
) -> String {
    match Topology::parse(Path::new("t.toml"), text) {
        Err(error) => error.to_string(),
        Ok(topology) => form(&topology).map_or_else(|error| error.to_string(), |_| "made".into()),
    }
}

#[test]
fn a_host_with_two_units_of_one_kind_is_refused() {
    for (from, to, why) in [
        // Two routers: one cluster would get no deletes.
        ("\"10.1.2.20\"", "\"10.1.1.20\"", "10.1.1.20: holdall-route of east/a and of east/b"),
        ("\"10.1.2.20\"", "\"10.1.2.20\", \"10.1.2.20\"", "holdall-route of east/b and of east/b"),
        // Routers run on the servers' hosts by default.
        ("\"10.1.2.20\"", "\"10.2.1.1\"", "10.2.1.1: holdall-route of east/b and of west/a"),
        ("\"10.2.1.1\"", "\"10.1.1.1\"", "10.1.1.1: holdall-cache of east/a and of west/a"),
        (
            "name = \"west\"",
            "name = \"west\"\ninvalidator = \"10.1.1.20\"",
            "10.1.1.20: holdall-invalidate of east and of west",
        ),
        // Two spellings of one host.
        ("\"10.1.1.1\", \"10.1.1.2\"", "\"fd00::1\", \"[fd00::1]\"", "fd00::1: holdall-cache of"),
    ] {
        let reason = reason(&changed(EXAMPLE, from, to), systemd);
        assert!(reason.contains(why), "{to}: {reason}");
    }
}

#[test]
fn hosts_that_are_no_addresses_are_refused() {
    for (from, to, why) in [
        ("[\"10.1.1.20\"]", "[]", "cluster 'a': routers is empty"),
        ("[\"10.1.1.9\"]", "[]", "cluster 'a': gutter is empty"),
        ("[\"10.1.9.1\", \"10.1.9.2\"]", "[]", "regional.servers is empty"),
        ("\"10.1.1.20\"", "\"\"", "'' is not an address"),
        ("\"10.1.1.20\"", "\"/etc\"", "'/etc' is not an address"),
        ("\"10.1.1.1\"", "\"../x\"", "'../x' is not an address"),
        ("\"10.1.1.1\"", "\"..\"", "'..' is not an address"),
        ("\"10.1.1.9\"", "\"a b\"", "'a b' is not an address"),
        ("\"10.1.1.1\"", "\"10.1.1.1,10.1.1.2\"", "is not an address"),
        ("name = \"west\"", "name = \"west\"\ninvalidator = \"a/b\"", "'a/b' is not an address"),
        ("\"10.1.1.1\"", "\"10.1.1.1:11211\"", "'10.1.1.1:11211': leave out the port"),
        ("\"10.1.1.1\"", "\"[10.1:1]\"", "'[10.1:1]' is not an address"),
        ("\"10.1.1.20\"", "\"router1\"", "'router1': a router needs an IP address"),
    ] {
        let reason = reason(&changed(EXAMPLE, from, to), systemd);
        assert!(reason.contains(why), "{to}: {reason}");
    }
    let none = reason(&changed(PODS, "routers = 4", "routers = 0"), kubernetes);
    assert!(none.contains("cluster 'b': routers is empty"), "{none}");
    // Without a database, no delete is lost.
    let caches = "name = \"shop\"\n[[region]]\nname = \"east\"\nmaster = true\n\
                  [[region.cluster]]\nname = \"a\"\nservers = [\"10.1.1.1\"]\nrouters = []\n";
    assert_eq!(reason(caches, systemd), "made");
}

#[test]
fn addresses_of_ipv6_work_with_and_without_brackets() {
    for address in ["fd00::1", "[fd00::1]"] {
        let text = changed(EXAMPLE, "\"10.2.1.1\"", &format!("\"{address}\""));
        let files = systemd(&Topology::parse(Path::new("t.toml"), &text).unwrap()).unwrap();
        assert!(files["fd00::1/etc/holdall/routes.json"].contains("\"[fd00::1]:11211\""));
        assert!(files["fd00::1/etc/holdall/invalidate.toml"].contains("\"[fd00::1]:5000\""));
        let unit = &files["fd00::1/etc/systemd/system/holdall-route.service"];
        assert!(unit.contains(" --listen-addresses 127.0.0.1,fd00::1 "), "{unit}");
        let unit = &files["fd00::1/etc/systemd/system/holdall-cache.service"];
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let environment = Environment { cpus: 4, port_file: None, ..Environment::default() };
        let arguments = line.split(' ').skip(2).map(Into::into);
        let parsed = options::parse(Style::Holdall, arguments, &environment);
        let Ok(Invocation::Run { options, .. }) = parsed else { panic!("{line}: {parsed:?}") };
        assert!(format!("{:?}", options.tcp).contains("fd00::1"), "{:?}", options.tcp);
    }
}

#[test]
fn names_that_collide_are_refused() {
    for (from, to, why) in [
        ("name = \"b\"", "name = \"regional\"", "two groups of servers have the name 'regional'"),
        ("name = \"b\"", "name = \"a-gutter\"", "two groups of servers have the name 'a-gutter'"),
        ("name = \"b\"", "name = \"invalidator\"", "would be named shop-east-invalidator"),
        ("name = \"b\"", "name = \"routes\"", "made"),
        ("name = \"b\"", "name = \"a-router\"", "would be named shop-east-a-router"),
    ] {
        let reason = reason(&changed(PODS, from, to), kubernetes);
        assert!(reason.contains(why), "{to}: {reason}");
    }
    // A group may have the name of a group of another region.
    let west =
        "[[region]]\nname = \"east-a\"\n[[region.cluster]]\nname = \"router\"\nservers = 1\n";
    let reason = reason(&format!("{PODS}{west}"), kubernetes);
    assert!(reason.contains("would be named shop-east-a-router"), "{reason}");
}

#[test]
fn names_that_are_too_long_for_kubernetes_are_refused() {
    // shop-east-NAME-router has 46 letters or more.
    let of_length = |letters: usize| {
        let region = "e".repeat(letters - "shop--b-router".len() - 20);
        let text = changed(PODS, "name = \"east\"", &format!("name = \"{region}\""));
        let cluster = "b".repeat(21);
        reason(&changed(&text, "name = \"b\"", &format!("name = \"{cluster}\"")), kubernetes)
    };
    assert_eq!(of_length(52), "made");
    assert!(of_length(53).contains("has 53 letters"), "{}", of_length(53));
}

#[test]
fn numbers_that_servers_and_routers_refuse_are_refused() {
    for (table, entry) in [
        ("cache", "memory_mb = 0"),
        ("cache", "memory_mb = 4000000000"),
        ("cache", "threads = 0"),
        ("cache", "threads = 1025"),
        ("cache", "connections = 0"),
        ("cache", "port = 0"),
        ("router", "port = 0"),
        ("router", "threads = 0"),
    ] {
        let reason = reason(&format!("{PODS}[{table}]\n{entry}\n"), kubernetes);
        let name = entry.split(' ').next().unwrap();
        assert!(reason.contains(&format!("{table}.{name}: from 1 to ")), "{entry}: {reason}");
    }
    // Both listen on the address of the host.
    let text = changed(EXAMPLE, "[router]", "[router]\nport = 11211");
    let reason = reason(&text, systemd);
    assert!(
        reason.contains("10.2.1.1: its cache server and its router have port 11211"),
        "{reason}"
    );
}

#[test]
fn a_memory_file_that_a_unit_cannot_name_is_refused() {
    let files = [
        "/dev/shm/my items",
        "/run/../etc/items",
        "/run/holdall-cache/%n",
        "/run/holdall-cache/items/",
        "/run/a\\\\b/c",
        "/run/$HOME/items",
    ];
    for file in files {
        let reason = reason(&changed(EXAMPLE, "/dev/shm/holdall", file), systemd);
        assert!(reason.contains("cache.memory_file: "), "{file}: {reason}");
    }
}

/// The readers of the programs decide, so that no rule is missing here.
#[test]
fn configurations_that_the_programs_refuse_are_refused() {
    for (from, to, why) in [
        ("\"user:{id}\"", "\"user:{id\"", "'{' has no '}'"),
        ("\"shop.users\"", "users", "database.table"),
        (", server_id = 7001", ", server_id = 7001, sslmode = \"verify-ca\"", "verify-full"),
        ("[\"10.1.0.5:3306\"]", "[]", "source.servers"),
    ] {
        let reason = reason(&changed(EXAMPLE, from, to), systemd);
        let prefix = "region 'east': its invalidator would refuse its configuration: ";
        assert!(reason.starts_with(prefix) && reason.contains(why), "{to}: {reason}");
    }
    let reason = reason(&changed(PODS, "\"user:{id}\"", "\"user:{id\""), kubernetes);
    assert!(reason.contains("'{' has no '}'"), "{reason}");
}
