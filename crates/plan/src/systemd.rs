//! Units and configurations for hosts with systemd: a folder for each host.

use std::fmt::Write as _;

use crate::Files;
use crate::PlanError;
use crate::invalidator::{Places, STATUS_PORT, invalidator};
use crate::routes::{prefix, routes};
use crate::topology::{Cluster, Hosts, Region, Topology};

/// The files of every host, as `<address>/<path on the host>`.
///
/// # Errors
///
/// When the topology gives a number of pods in place of addresses.
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
        "/usr/bin/holdall serve -l {address} -p {} -m {} -t {} -c {} -u holdall -o drop_privileges",
        cache.port, cache.memory_mb, cache.threads, cache.connections
    );
    if let Some(file) = &cache.memory_file {
        let _ = write!(start, " -e {}", file.display());
    }
    let what = format!("{} cache server of {group}", topology.name);
    let extra = "Type=notify\n";
    unit(&what, &start, extra, "CAP_SETGID CAP_SETUID CAP_SYS_RESOURCE CAP_NET_BIND_SERVICE")
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
    unit(&what, &start, "Type=notify\nUser=holdall\nStateDirectory=holdall holdall/spool\n", "")
}

fn invalidate_unit(topology: &Topology, region: &Region) -> String {
    let what = format!("{} invalidator of {}", topology.name, region.name);
    let start = "/usr/bin/holdall invalidate run --config /etc/holdall/invalidate.toml";
    unit(&what, start, "Type=notify\nUser=holdall\nStateDirectory=holdall\n", "")
}

/// A unit that may do no more than it must.
fn unit(what: &str, start: &str, extra: &str, capabilities: &str) -> String {
    format!(
        "[Unit]\n\
         Description={what}\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={start}\n\
         {extra}\
         Restart=always\n\
         RestartSec=1\n\
         LimitNOFILE=1048576\n\
         CapabilityBoundingSet={capabilities}\n\
         NoNewPrivileges=true\n\
         PrivateDevices=true\n\
         PrivateTmp=true\n\
         ProtectHome=true\n\
         ProtectKernelModules=true\n\
         ProtectKernelTunables=true\n\
         ProtectControlGroups=true\n\
         ProtectSystem=full\n\
         RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\n\
         RestrictNamespaces=true\n\
         LockPersonality=true\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
