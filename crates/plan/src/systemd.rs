//! Units and configurations for hosts with systemd: a folder for each host.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use hostport::with_port;

use crate::Files;
use crate::PlanError;
use crate::accepted;
use crate::invalidator::{Places, STATUS_PORT, invalidator};
use crate::routes::{prefix, routes};
use crate::topology::{Cluster, Hosts, Region, Topology};

/// The files of every host, as `<address>/<path on the host>`.
///
/// # Errors
///
/// If the topology has a number of pods instead of addresses, a host would get two units with one
/// name, an address is unusable, or a program would refuse its configuration.
pub fn systemd(topology: &Topology) -> Result<Files, PlanError> {
    let mut made = Made::default();
    for region in &topology.regions {
        for (group, addresses) in region.servers() {
            for address in named(addresses, &group)? {
                let host = host(address)?;
                let of = format!("{}/{group}", region.name);
                made.put_unit(host, CACHE, &cache_unit(topology, host, &group), of)?;
            }
        }
        let config = routes(topology, region, |group| servers(topology, region, group));
        let config = accepted::by_routers(region, config)?;
        for cluster in &region.clusters {
            for address in routers(cluster)? {
                let host = host(address)?;
                let of = format!("{}/{}", region.name, cluster.name);
                made.put_unit(host, ROUTE, &route_unit(topology, region, cluster, host)?, of)?;
                made.put(host, "routes.json", config.clone());
            }
        }
        put_invalidator(topology, region, &mut made)?;
    }
    if topology.cache.port == topology.router.port {
        made.one_listener(topology.cache.port)?;
    }
    Ok(made.files)
}

/// The names of the units.
const CACHE: &str = "holdall-cache";
const ROUTE: &str = "holdall-route";
const INVALIDATE: &str = "holdall-invalidate";

/// The files of all hosts.
#[derive(Default)]
struct Made {
    files: Files,
    /// What each unit of a host is for: a second one of that name would overwrite it.
    units: BTreeMap<(String, &'static str), String>,
}

impl Made {
    fn put_unit(
        &mut self,
        host: &str,
        unit: &'static str,
        text: &str,
        of: String,
    ) -> Result<(), PlanError> {
        if let Some(first) = self.units.get(&(host.to_owned(), unit)) {
            let (host, first) = (host.to_owned(), first.clone());
            return Err(PlanError::Unit { host, unit, first, second: of });
        }
        self.units.insert((host.to_owned(), unit), of);
        self.files.insert(format!("{host}/etc/systemd/system/{unit}.service"), text.to_owned());
        self.files.insert(format!("{host}/etc/sysusers.d/holdall.conf"), USER.to_owned());
        Ok(())
    }

    /// Puts a configuration of one of the host's units.
    fn put(&mut self, host: &str, name: &str, text: String) {
        self.files.insert(format!("{host}/etc/holdall/{name}"), text);
    }

    /// Refuses a host with a cache server and a router, which both listen at `port`.
    fn one_listener(&self, port: u16) -> Result<(), PlanError> {
        let mut caches = self.units.keys().filter(|(_, unit)| *unit == CACHE);
        match caches.find(|(host, _)| self.units.contains_key(&(host.clone(), ROUTE))) {
            Some((host, _)) => Err(PlanError::Port { host: host.clone(), port }),
            None => Ok(()),
        }
    }
}

fn put_invalidator(topology: &Topology, region: &Region, made: &mut Made) -> Result<(), PlanError> {
    let Some(database) = &region.database else { return Ok(()) };
    let port = topology.router.port;
    let of_cluster = |name: &str| {
        let found = region.clusters.iter().find(|cluster| cluster.name == name);
        let hosts = found.and_then(|cluster| routers(cluster).ok()).unwrap_or_default();
        hosts.iter().map(|host| with_port(host, port)).collect()
    };
    let places = Places {
        password_file: &database.password,
        folder: "/var/lib/holdall",
        status: &format!("127.0.0.1:{STATUS_PORT}"),
    };
    let config = invalidator(topology, region, database, of_cluster, &places);
    let config = accepted::by_invalidator(region, config)?;
    let first = region.clusters.first().map(routers).transpose()?.and_then(<[String]>::first);
    let Some(address) = region.invalidator.as_ref().or(first) else { return Ok(()) };
    let host = host(address)?;
    made.put(host, "invalidate.toml", config);
    made.put_unit(host, INVALIDATE, &invalidate_unit(topology, region), region.name.clone())
}

/// The address without the brackets of IPv6. The ports are the topology's.
fn host(address: &str) -> Result<&str, PlanError> {
    match hostport::split(address) {
        (host, None) => Ok(host),
        (_, Some(_)) => Err(PlanError::AddressPort(address.to_owned())),
    }
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
    addresses.iter().map(|address| with_port(address, topology.cache.port)).collect()
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
    unit(&what, &start, &extra, cache.port, FAMILIES)
}

/// The lines that make a folder writable for a unit.
fn writable(folder: &Path) -> String {
    match folder.strip_prefix("/run") {
        // systemd makes it at each boot, and does not empty it when the unit fails or stops. Its
        // files have their own modes.
        Ok(name) if name != Path::new("") => format!(
            "RuntimeDirectory={}\nRuntimeDirectoryMode=0755\nRuntimeDirectoryPreserve=yes\n",
            name.display()
        ),
        // Folders below /dev are already writable.
        _ if folder.starts_with("/dev") => String::new(),
        _ => format!("ReadWritePaths={}\n", folder.display()),
    }
}

fn route_unit(
    topology: &Topology,
    region: &Region,
    cluster: &Cluster,
    address: &str,
) -> Result<String, PlanError> {
    if address.parse::<IpAddr>().is_err() {
        return Err(PlanError::RouterName(address.to_owned()));
    }
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
    let extra = "StateDirectory=holdall holdall/spool\n";
    Ok(unit(&what, &start, extra, router.port, ROUTE_FAMILIES))
}

fn invalidate_unit(topology: &Topology, region: &Region) -> String {
    let what = format!("{} invalidator of {}", topology.name, region.name);
    let start = "/usr/bin/holdall invalidate run --config /etc/holdall/invalidate.toml";
    unit(&what, start, "StateDirectory=holdall\n", STATUS_PORT, FAMILIES)
}

/// A unit with minimal rights, for a program that listens at `port` and uses these families of
/// sockets.
fn unit(what: &str, start: &str, extra: &str, port: u16, families: &str) -> String {
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
         RestrictAddressFamilies={families}\n\
         {CONFINED}\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// The families of sockets.
const FAMILIES: &str = "AF_INET AF_INET6 AF_UNIX";

/// Those of a router, which lists the addresses of the host for the macro `@isLocalIp`.
const ROUTE_FAMILIES: &str = "AF_INET AF_INET6 AF_UNIX AF_NETLINK";

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
