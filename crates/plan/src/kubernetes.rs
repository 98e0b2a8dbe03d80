//! Manifests for Kubernetes: a file for each region, and one that lists them for kustomize.
//!
//! Servers are StatefulSets, because a key's server must keep its name. Routers are Deployments
//! behind a Service. The invalidator is a StatefulSet of one pod, whose checkpoint is on a volume.
//! The manifests use only the core kinds of the API.

mod policies;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hashing::spooky_hash64;
use serde_json::{Value, json};

use crate::Files;
use crate::PlanError;
use crate::accepted;
use crate::invalidator::{Places, STATUS_PORT, invalidator};
use crate::routes::{prefix, routes};
use crate::topology::{Cluster, Database, Hosts, KUSTOMIZATION, Region, Topology};
use policies::{autoscaler, disruption_budget, servers_network};

/// The default number of a cluster's router pods.
const ROUTERS: u32 = 2;

/// Memory of a router's pod, in MiB.
const ROUTER_MB: u32 = 256;

/// The part of it for clients, in MiB. The rest is for the program, values in transit from servers,
/// and the kernel's connection buffers.
const ROUTER_CLIENTS_MB: u32 = ROUTER_MB / 2;

/// Memory of a server's pod, in MiB, for `-m`: 3 percent more, and the needs of the program.
const fn pod_mb(memory_mb: u32) -> u32 {
    memory_mb + memory_mb.div_ceil(33) + 64
}

/// The most letters of a name. A label has 63, and a StatefulSet adds 11 to its name in one.
const NAME_MAX: usize = 52;

/// One file of manifests for each region, and [`KUSTOMIZATION`].
///
/// # Errors
///
/// If the topology has addresses instead of a number of pods, `routers_max` is less than that of a
/// router, Kubernetes would refuse a name, or a program its configuration.
pub fn kubernetes(topology: &Topology) -> Result<Files, PlanError> {
    let mut files = Files::new();
    let mut names = BTreeSet::new();
    for region in &topology.regions {
        let made = manifests(topology, region)?;
        made.iter().try_for_each(|manifest| named_once(manifest, &mut names))?;
        let texts: Vec<String> =
            made.iter().map(serde_saphyr::to_string).collect::<Result<_, _>>()?;
        files.insert(format!("{}.yaml", region.name), format!("---\n{}", texts.join("---\n")));
    }
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": files.keys().collect::<Vec<_>>(),
    });
    files.insert(KUSTOMIZATION.to_owned(), serde_saphyr::to_string(&kustomization)?);
    Ok(files)
}

/// Refuses a manifest that would overwrite another one, or whose name is too long.
fn named_once(manifest: &Value, names: &mut BTreeSet<(String, String)>) -> Result<(), PlanError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    if name.len() > NAME_MAX {
        return Err(PlanError::LongName { name, most: NAME_MAX });
    }
    match names.insert((kind.clone(), name.clone())) {
        true => Ok(()),
        false => Err(PlanError::Name { kind, name }),
    }
}

fn manifests(topology: &Topology, region: &Region) -> Result<Vec<Value>, PlanError> {
    let mut made = Vec::new();
    for (group, hosts) in region.servers() {
        let name = named(topology, region, &group);
        made.push(service(topology, &name, topology.cache.port, true));
        made.push(servers(topology, &name, count(hosts, &group)?));
        made.push(disruption_budget(topology, &name));
        made.push(servers_network(topology, &name));
    }
    let config = routes(topology, region, |group| addresses(topology, region, group));
    let config = accepted::by_routers(region, config)?;
    let routes_name = named(topology, region, "routes");
    made.push(config_map(topology, &routes_name, "routes.json", &config));
    for cluster in &region.clusters {
        let name = router_name(topology, region, cluster);
        made.push(service(topology, &name, topology.router.port, false));
        let pods =
            cluster.routers.as_ref().map_or(Ok(ROUTERS), |hosts| count(hosts, &cluster.name))?;
        let mut deployment = router(topology, (&name, &routes_name), &prefix(region, cluster));
        match topology.kubernetes.routers_max {
            // The autoscaler sets the number; each `kubectl apply` would reset it.
            Some(most) if most < pods => {
                return Err(PlanError::RoutersMax { cluster: cluster.name.clone(), pods, most });
            }
            Some(most) => made.push(autoscaler(topology, &name, pods, most)),
            None => deployment["spec"]["replicas"] = json!(pods),
        }
        made.push(deployment);
        made.push(disruption_budget(topology, &name));
    }
    if let Some(database) = &region.database {
        let name = named(topology, region, "invalidator");
        let of_cluster = |cluster: &str| {
            let found = region.clusters.iter().find(|other| other.name == cluster);
            let names = found.map(|cluster| router_name(topology, region, cluster));
            names.iter().map(|name| format!("{name}:{}", topology.router.port)).collect()
        };
        let places = Places {
            password_file: "/etc/holdall/secret/password",
            folder: "/var/lib/holdall",
            status: &format!("0.0.0.0:{STATUS_PORT}"),
        };
        let config = invalidator(topology, region, database, of_cluster, &places);
        let config = accepted::by_invalidator(region, config)?;
        made.push(config_map(topology, &name, "invalidate.toml", &config));
        made.push(service(topology, &name, STATUS_PORT, true));
        made.push(invalidation(topology, &name, database, &config));
    }
    Ok(made)
}

fn count(hosts: &Hosts, group: &str) -> Result<u32, PlanError> {
    match hosts {
        Hosts::Count(count) => Ok(*count),
        Hosts::Named(_) => Err(PlanError::Addresses { group: group.to_owned() }),
    }
}

fn named(topology: &Topology, region: &Region, group: &str) -> String {
    format!("{}-{}-{group}", topology.name, region.name)
}

fn router_name(topology: &Topology, region: &Region, cluster: &Cluster) -> String {
    named(topology, region, &format!("{}-router", cluster.name))
}

/// The servers of a group, by their names in the headless Service.
fn addresses(topology: &Topology, region: &Region, group: &str) -> Vec<String> {
    let found = region.servers().find(|(name, _)| name == group);
    let pods = found.map_or(0, |(_, hosts)| hosts.len());
    let name = named(topology, region, group);
    let namespace = &topology.kubernetes.namespace;
    let port = topology.cache.port;
    (0..pods)
        .map(|pod| format!("{name}-{pod}.{name}.{namespace}.svc.cluster.local:{port}"))
        .collect()
}

fn metadata(topology: &Topology, name: &str) -> Value {
    json!({ "name": name, "namespace": topology.kubernetes.namespace, "labels": labels(name) })
}

fn labels(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": "holdall", "app.kubernetes.io/instance": name })
}

fn service(topology: &Topology, name: &str, port: u16, is_headless: bool) -> Value {
    let mut spec = BTreeMap::from([
        ("selector", labels(name)),
        ("ports", json!([{ "name": "main", "port": port, "targetPort": port }])),
    ]);
    if is_headless {
        spec.insert("clusterIP", json!("None"));
    }
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(topology, name), "spec": spec })
}

fn config_map(topology: &Topology, name: &str, file: &str, text: &str) -> Value {
    let data = BTreeMap::from([(file, text)]);
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(topology, name), "data": data })
}

/// The port for metrics and health of servers and routers.
const METRICS_PORT: u16 = 9150;

/// Seconds for which servers and routers keep serving while clients learn of their end.
const DRAIN_SECS: u32 = 10;

/// Seconds until a pod that does not end is killed.
const GRACE_SECS: u32 = 30;

/// Seconds between two startup probes of servers with a memory file, and the number of failed ones
/// after which the container is restarted: an hour for the recovery of a crashed server's items.
const STARTUP_PERIOD_SECS: u32 = 5;
const STARTUP_FAILURES_MAX: u32 = 720;

/// Guaranteed processor time of a thread, in thousandths.
const THREAD_CPU: u32 = 250;

/// Flags of servers and routers for the probes, and for an end without failed requests.
fn operated() -> [String; 2] {
    [format!("--metrics=0.0.0.0:{METRICS_PORT}"), format!("--drain={DRAIN_SECS}")]
}

/// The program in a container.
struct Program<'a> {
    arguments: &'a [String],
    /// Its ports, by name. The last one serves metrics and health.
    ports: &'a [(&'static str, u16)],
    memory_mb: u32,
    threads: u32,
}

/// A container that may only serve: no root, no capability, and no writable files except its
/// volumes.
fn container(topology: &Topology, program: &Program<'_>) -> Value {
    let memory = format!("{}Mi", program.memory_mb);
    let cpu = format!("{}m", program.threads * THREAD_CPU);
    let ports = program.ports.iter();
    let ports: Vec<_> =
        ports.map(|(name, port)| json!({ "name": name, "containerPort": port })).collect();
    let health = program.ports.last().map_or("", |(name, _)| name);
    let probe = |path, period_secs| probe(health, path, period_secs);
    json!({
        "name": "holdall",
        "image": topology.kubernetes.image,
        "args": program.arguments,
        "ports": ports,
        "readinessProbe": probe("/readyz", 2),
        "livenessProbe": probe("/livez", 10),
        "resources": {
            "requests": { "memory": memory, "cpu": cpu },
            "limits": { "memory": memory },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    })
}

fn probe(port: &str, path: &str, period_secs: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": port },
        "periodSeconds": period_secs,
        "timeoutSeconds": 2,
    })
}

fn servers(topology: &Topology, name: &str, pods: u32) -> Value {
    let cache = &topology.cache;
    let mut arguments = vec![
        "serve".to_owned(),
        "--listen=0.0.0.0".to_owned(),
        format!("--port={}", cache.port),
        format!("--memory-limit={}", cache.memory_mb),
        format!("--threads={}", cache.threads),
        format!("--conn-limit={}", cache.connections),
        "--extended=drop_privileges".to_owned(),
    ];
    arguments
        .extend(cache.memory_file.iter().map(|file| format!("--memory-file={}", file.display())));
    arguments.extend(operated());
    let mut container = container(
        topology,
        &Program {
            arguments: &arguments,
            ports: &[("main", cache.port), ("metrics", METRICS_PORT)],
            memory_mb: pod_mb(cache.memory_mb),
            threads: cache.threads,
        },
    );
    let mut pod = json!({ "terminationGracePeriodSeconds": GRACE_SECS });
    if let Some(folder) = cache.memory_file.as_deref().and_then(Path::parent) {
        // Memory of the pod, as without a volume: it survives the container, but not the pod.
        let size = format!("{}Mi", pod_mb(cache.memory_mb));
        let memory = json!({ "medium": "Memory", "sizeLimit": size });
        container["volumeMounts"] = json!([{ "name": "items", "mountPath": folder }]);
        let mut startup = probe("metrics", "/startupz", STARTUP_PERIOD_SECS);
        startup["failureThreshold"] = json!(STARTUP_FAILURES_MAX);
        container["startupProbe"] = startup;
        pod["volumes"] = json!([{ "name": "items", "emptyDir": memory }]);
        pod["securityContext"] = json!({ "fsGroup": 65532 });
    }
    pod["topologySpreadConstraints"] = spread(name);
    pod["containers"] = json!([container]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(topology, name),
        "spec": {
            "serviceName": name,
            "replicas": pods,
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels(name) },
            "template": { "metadata": { "labels": labels(name) }, "spec": pod },
        },
    })
}

/// Spreads pods of one name over machines: two on one would be lost together.
fn spread(name: &str) -> Value {
    json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": { "matchLabels": labels(name) },
    }])
}

fn router(topology: &Topology, (name, routes): (&str, &str), prefix: &str) -> Value {
    let router = &topology.router;
    let arguments = [
        "route".to_owned(),
        "--config-file=/etc/holdall/routes.json".to_owned(),
        "--listen-addresses=0.0.0.0".to_owned(),
        format!("--port={}", router.port),
        format!("--num-proxies={}", router.threads),
        // Beyond the pod's limit, the kernel would end the router before it closes a client.
        format!("--client-memory-max={}", u64::from(ROUTER_CLIENTS_MB) << 20),
        format!("--route-prefix={prefix}"),
        "--async-dir=/var/lib/holdall".to_owned(),
    ];
    let mut container = container(
        topology,
        &Program {
            arguments: &[&arguments[..], &operated()].concat(),
            ports: &[("main", router.port), ("metrics", METRICS_PORT)],
            memory_mb: ROUTER_MB,
            threads: router.threads,
        },
    );
    container["volumeMounts"] = json!([
        { "name": "routes", "mountPath": "/etc/holdall", "readOnly": true },
        { "name": "spool", "mountPath": "/var/lib/holdall" },
    ]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(topology, name),
        "spec": {
            "selector": { "matchLabels": labels(name) },
            "template": {
                "metadata": { "labels": labels(name) },
                "spec": {
                    "terminationGracePeriodSeconds": GRACE_SECS,
                    "securityContext": { "fsGroup": 65532 },
                    "topologySpreadConstraints": spread(name),
                    "containers": [container],
                    "volumes": [
                        { "name": "routes", "configMap": { "name": routes } },
                        { "name": "spool", "emptyDir": { "sizeLimit": "2Gi" } },
                    ],
                },
            },
        },
    })
}

fn invalidation(topology: &Topology, name: &str, database: &Database, config: &str) -> Value {
    // The invalidator reads its file at its start, and on a signal that Kubernetes does not send.
    let checksum = format!("{:016x}", spooky_hash64(config.as_bytes(), 0));
    let arguments =
        ["invalidate", "run", "--config=/etc/holdall/invalidate.toml"].map(str::to_owned);
    let mut container = container(
        topology,
        &Program {
            arguments: &arguments,
            ports: &[("main", STATUS_PORT)],
            memory_mb: 512,
            threads: 1,
        },
    );
    container["volumeMounts"] = json!([
        { "name": "config", "mountPath": "/etc/holdall/invalidate.toml", "subPath": "invalidate.toml" },
        { "name": "secret", "mountPath": "/etc/holdall/secret", "readOnly": true },
        { "name": "state", "mountPath": "/var/lib/holdall" },
    ]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(topology, name),
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": { "matchLabels": labels(name) },
            "template": {
                "metadata": {
                    "labels": labels(name),
                    "annotations": { "checksum/config": checksum },
                },
                "spec": {
                    "securityContext": { "fsGroup": 65532 },
                    "containers": [container],
                    "volumes": [
                        { "name": "config", "configMap": { "name": name } },
                        { "name": "secret", "secret": { "secretName": database.password } },
                    ],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "state" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }],
        },
    })
}
