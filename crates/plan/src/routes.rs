//! The routers' configuration, in mcrouter's language: one for each region.
//!
//! A key without a routing prefix goes to its router's own cluster (`--route-prefix`);
//! `/region/*/key`, the form of invalidators, goes to the whole region. A failed server's keys go
//! to the gutter, with a short lifetime. Keys with regional prefixes go to the regional pool from
//! every cluster. A cold cluster is filled from a warm one of the same region, with leases, so no
//! old value can be copied, however late a delete is.

use serde_json::{Map, Value, json};

use crate::topology::{Cluster, Region, Topology};

/// The configuration of `region`'s routers. `addresses` returns the servers of a group (a cluster,
/// `<cluster>-gutter`, `regional`).
#[must_use]
pub fn routes(
    topology: &Topology,
    region: &Region,
    addresses: impl Fn(&str) -> Vec<String>,
) -> String {
    let pools: Map<String, Value> = region
        .servers()
        .map(|(group, _)| {
            let servers = addresses(&group);
            (group, json!({ "servers": servers }))
        })
        .collect();
    let routes: Vec<Value> = region
        .clusters
        .iter()
        .map(|cluster| {
            json!({
                "aliases": [prefix(region, cluster)],
                "route": with_regional(region, warmed(topology, cluster)),
            })
        })
        .collect();
    let config = json!({ "pools": pools, "routes": routes });
    // Values made of strings and numbers can always be written.
    let mut text = serde_json::to_string_pretty(&config).unwrap_or_default();
    text.push('\n');
    text
}

/// The routing prefix of a cluster.
#[must_use]
pub fn prefix(region: &Region, cluster: &Cluster) -> String {
    format!("/{}/{}/", region.name, cluster.name)
}

fn warmed(topology: &Topology, cluster: &Cluster) -> Value {
    let cold = of_cluster(topology, cluster);
    let Some(warm) = &cluster.warm_from else { return cold };
    json!({
        "type": "WarmUpRoute",
        "cold": cold,
        "warm": format!("PoolRoute|{warm}"),
        "leases": true,
    })
}

fn of_cluster(topology: &Topology, cluster: &Cluster) -> Value {
    let normal = format!("PoolRoute|{}", cluster.name);
    if cluster.gutter.is_none() {
        return json!(normal);
    }
    json!({
        "type": "FailoverWithExptimeRoute",
        "normal": normal,
        "failover": format!("PoolRoute|{}-gutter", cluster.name),
        "failover_exptime": topology.router.gutter_ttl,
    })
}

fn with_regional(region: &Region, wildcard: Value) -> Value {
    let Some(regional) = &region.regional else { return wildcard };
    let policies: Map<String, Value> = regional
        .prefixes
        .iter()
        .map(|prefix| (prefix.clone(), json!("PoolRoute|regional")))
        .collect();
    json!({ "type": "PrefixSelectorRoute", "policies": policies, "wildcard": wildcard })
}
