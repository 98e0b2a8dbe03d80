//! Units and configurations for hosts with systemd: a folder for each host.

use std::fmt::Write as _;
use std::path::Path;

use crate::Files;
use crate::PlanError;
use crate::invalidator::{Places, STATUS_PORT, invalidator};
use crate::routes::{prefix, routes};
use crate::topology::{Cluster, Hosts, Region, Topology};

/// The files of every host, as `<address>/<path on the host>`.
///
/// # Errors
///
/// If the topology has a number of pods instead of addresses.
pub fn systemd(topology: &Topology) -> Result<Files, PlanError> {
    let mut files = Files::new();
    for region in &topology.regions {
        for (group, hosts) in region.servers() {
            for address in named(hosts, &group)? {
                put_unit(
                    &mut files,
                    address,
                    "holdall-cache",
                    &cache_unit(topology, address, &group),
                );
            }
        }
        for cluster in &region.clusters {
            for address in routers(cluster)? {
                let unit = route_unit(topology, region, cluster, address);
                put_unit(&mut files, address, "holdall-route", &unit);
                let config = routes(topology, region, |group| servers(topology, region, group));
                files.insert(format!("{address}/etc/holdall/routes.json"), config);
            }
        }
        put_invalidator(topology, region, &mut files)?;
    }
    Ok(files)
}

fn put_invalidator(
    topology: &Topology,
    region: &Region,
    files: &mut Files,
) -> Result<(), PlanError> {
    let Some(database) = &region.database else { return Ok(()) };
    let host = match (&region.invalidator, region.clusters.first()) {
        (Some(host), _) => host.clone(),
        (None, Some(cluster)) => routers(cluster)?.first().cloned().unwrap_or_default(),
        (None, None) => return Ok(()),
    };
    let port = topology.router.port;
    let of_cluster = |name: &str| {
        let found = region.clusters.iter().find(|cluster| cluster.name == name);
        let hosts = found.and_then(|cluster| routers(cluster).ok()).unwrap_or_default();
        hosts.iter().map(|host| format!("{host}:{port}")).collect()
    };
    let places = Places {
        password_file: &database.password,
        folder: "/var/lib/holdall",
        status: &format!("127.0.0.1:{STATUS_PORT}"),
    };
    let config = invalidator(topology, region, database, of_cluster, &places);
    files.insert(format!("{host}/etc/holdall/invalidate.toml"), config);
    put_unit(files, &host, "holdall-invalidate", &invalidate_unit(topology, region));
    Ok(())
}

fn put_unit(files: &mut Files, address: &str, name: &str, unit: &str) {
    files.insert(format!("{address}/etc/systemd/system/{name}.service"), unit.to_owned());
    files.insert(format!("{address}/etc/sysusers.d/holdall.conf"), USER.to_owned());
}

/// The user of all units, for systemd-sysusers.
const USER: &str = "u holdall - \"holdall cache tier\" /var/lib/holdall\n";

fn named<'h>(hosts: &'h Hosts, group: &str) -> Result<&'h [String], PlanError> {
    match hosts {
        Hosts::Named(addresses) => Ok(addresses),
        Hosts::Count(count) => Err(PlanError::Pods { group: group.to_owned(), count: *count }),
    }
}

fn routers(cluster: &Cluster) -> Result<&[String], PlanError> {
    named(cluster.routers.as_ref().unwrap_or(&cluster.servers), &cluster.name)
}

/// The servers of a group, as `host:port`.
fn servers(topology: &Topology, region: &Region, group: &str) -> Vec<String> {
    let hosts = region.servers().find(|(name, _)| name == group);
    let addresses = match hosts {
        Some((_, Hosts::Named(addresses))) => addresses.as_slice(),
        _ => &[],
    };
    addresses.iter().map(|address| format!("{address}:{}", topology.cache.port)).collect()
}

fn cache_unit(topology: &Topology, address: &str, group: &str) -> String {
    let cache = &topology.cache;
    let mut start = format!(
        "/usr/bin/holdall serve -l {address} -p {} -m {} -t {} -c {} -o drop_privileges",
        cache.port, cache.memory_mb, cache.threads, cache.connections
    );
    let mut extra = String::new();
    if let Some(file) = &cache.memory_file {
        let _ = write!(start, " -e {}", file.display());
        extra = file.parent().map(writable).unwrap_or_default();
    }
    let what = format!("{} cache server of {group}", topology.name);
    unit(&what, &start, &extra, cache.port)
}

/// The lines that make a folder writable for a unit.
fn writable(folder: &Path) -> String {
    match folder.strip_prefix("/run") {
        // systemd makes it at each boot, and does not empty it when the unit fails or stops.
        Ok(name) if name != Path::new("") => format!(
            "RuntimeDirectory={}\nRuntimeDirectoryMode=0700\nRuntimeDirectoryPreserve=yes\n",
            name.display()
        ),
        // Folders below /dev are already writable.
        _ if folder.starts_with("/dev") => String::new(),
        _ => format!("ReadWritePaths={}\n", folder.display()),
    }
}

fn route_unit(topology: &Topology, region: &Region, cluster: &Cluster, address: &str) -> String {
    let router = &topology.router;
    let listen =
        if address == "127.0.0.1" { address.to_owned() } else { format!("127.0.0.1,{address}") };
    let start = format!(
        "/usr/bin/holdall route -f /etc/holdall/routes.json --listen-addresses {listen} -p {} --num-proxies {} --route-prefix {} \
         --async-dir /var/lib/holdall/spool",
        router.port,
        router.threads,
        prefix(region, cluster)
    );
    let what = format!("{} router of {}", topology.name, cluster.name);
    unit(&what, &start, "StateDirectory=holdall holdall/spool\n", router.port)
}

fn invalidate_unit(topology: &Topology, region: &Region) -> String {
    let what = format!("{} invalidator of {}", topology.name, region.name);
    let start = "/usr/bin/holdall invalidate run --config /etc/holdall/invalidate.toml";
    unit(&what, start, "StateDirectory=holdall\n", STATUS_PORT)
}

/// A unit with minimal rights, for a program that listens at `port`.
fn unit(what: &str, start: &str, extra: &str, port: u16) -> String {
    // System ports need a capability, which is valid only for the host's users.
    let (capability, has_own_users) =
        if port < 1024 { ("CAP_NET_BIND_SERVICE", false) } else { ("", true) };
    format!(
        "[Unit]\n\
         Description={what}\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={start}\n\
         ExecReload=/bin/sh -c \"kill -HUP $MAINPID\"\n\
         User=holdall\n\
         Group=holdall\n\
         {extra}\
         Restart=always\n\
         RestartSec=1\n\
         WatchdogSec=30\n\
         LimitNOFILE=1048576\n\
         CapabilityBoundingSet={capability}\n\
         AmbientCapabilities={capability}\n\
         PrivateUsers={has_own_users}\n\
         {CONFINED}\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// The same as in `packaging/systemd`; a test compares them.
const CONFINED: &str = "\
DevicePolicy=closed
LockPersonality=true
MemoryDenyWriteExecute=true
NoNewPrivileges=true
PrivateDevices=true
PrivateTmp=true
# The program tells reboots by /proc/sys, and its own start by /proc/stat.
ProcSubset=all
ProtectClock=true
ProtectControlGroups=true
ProtectHome=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectProc=invisible
ProtectSystem=strict
# With true, systemd deletes memory files in /dev/shm when the last unit of this user ends.
RemoveIPC=false
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
# For drop_privileges: @system-service of systemd 252 lacks seccomp.
SystemCallFilter=seccomp
UMask=0077
";
