//! Manifests beside those that run a group of pods: who may connect, how many may be away, how many
//! there are.

use serde_json::{Value, json};

use super::{METRICS_PORT, labels, metadata};
use crate::topology::Topology;

/// Thousandths of a processor that a thread of a router uses before pods are added.
const BUSY_CPU: u32 = 700;

/// At most one pod of a group is away by intent.
pub(super) fn disruption_budget(topology: &Topology, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(topology, name),
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels(name) } },
    })
}

/// Only pods of holdall in the namespace reach a cache server, which asks nobody for a login.
/// Metrics and health are everybody's: who scrapes lives in other namespaces.
pub(super) fn servers_network(topology: &Topology, name: &str) -> Value {
    let ours =
        json!([{ "podSelector": { "matchLabels": { "app.kubernetes.io/name": "holdall" } } }]);
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(topology, name),
        "spec": {
            "podSelector": { "matchLabels": labels(name) },
            "policyTypes": ["Ingress"],
            "ingress": [
                { "from": ours, "ports": [{ "protocol": "TCP", "port": topology.cache.port }] },
                { "ports": [{ "protocol": "TCP", "port": METRICS_PORT }] },
            ],
        },
    })
}

/// Adds and removes pods of a router by the processors' time that they use. Cache servers have
/// none: another number of servers moves keys.
pub(super) fn autoscaler(topology: &Topology, name: &str, least: u32, most: u32) -> Value {
    let busy = format!("{}m", topology.router.threads * BUSY_CPU);
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(topology, name),
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": { "type": "AverageValue", "averageValue": busy },
                },
            }],
        },
    })
}
