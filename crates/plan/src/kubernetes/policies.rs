//! Additional manifests for a group of pods: network access, disruption budgets, autoscaling.

use serde_json::{Value, json};

use super::{METRICS_PORT, labels, metadata};
use crate::topology::Topology;

/// Processor time of a router's thread, in thousandths, above which pods are added.
const BUSY_CPU: u32 = 700;

/// Allows at most one pod of a group to be down deliberately.
pub(super) fn disruption_budget(topology: &Topology, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(topology, name),
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels(name) } },
    })
}

/// Allows only pods of holdall in the namespace to reach a cache server, which requires no login.
/// Metrics and health are open to all, because scrapers are in other namespaces.
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

/// Adds and removes pods of a router by their processor time. Cache servers have no autoscaler,
/// because another number of servers moves keys.
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
