//! Envoys in front of cache servers.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use migrate::from_envoy;
use serde_json::{Value, json};

const ENVOY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }
static_resources:
  listeners:
  - name: web
    filter_chains:
    - filters:
      - name: http
        typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager }
  - name: cache
    address: { socket_address: { address: 0.0.0.0, port_value: 6379 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: cache
          settings: { op_timeout: 0.25s, enable_hashtagging: true }
          prefix_routes:
            catch_all_route: { cluster: main }
            routes:
            - prefix: "session:"
              cluster: sessions
              remove_prefix: true
            - prefix: "user:"
              cluster: main
              request_mirror_policy:
              - cluster: sessions
  - name: raw
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          cluster: main
  clusters:
  - name: main
    type: STRICT_DNS
    lb_policy: MAGLEV
    connect_timeout: 1.5s
    health_checks: [ { timeout: 1s } ]
    load_assignment:
      cluster_name: main
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: cache1, port_value: 11211 } } }
        - endpoint: { address: { socket_address: { address: "2001:db8::1", port_value: 11212 } } }
  - name: sessions
    type: STATIC
    load_assignment:
      cluster_name: sessions
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 10.0.0.9, port_value: 11211 } } }
"#;

#[test]
fn prefixes_clusters_and_mirrors_of_redis_proxy_become_routes() {
    let made = from_envoy("envoy.yaml", ENVOY, None).unwrap();
    let whole: Value = serde_json::from_str(&made.text).unwrap();
    let main = json!({
        "type": "PoolRoute", "pool": "main",
        "hash": { "hash_func": "Jump", "filter": "tags", "filter_conf": "{}" },
    });
    let sessions = json!({
        "type": "ModifyKeyRoute", "target": "PoolRoute|sessions", "replace_key_prefix": "session:",
    });
    let users = json!({ "type": "AllInitialRoute", "children": [main, "PoolRoute|sessions"] });
    let route = json!({
        "type": "PrefixSelectorRoute",
        "policies": { "session:": sessions, "user:": users },
        "wildcard": main,
    });
    assert_eq!(whole["route"], route);
    let pool = json!({
        "servers": ["cache1:11211", "[2001:db8::1]:11212"],
        "connect_timeout": 1500,
        "server_timeout": 250,
    });
    assert_eq!(whole["pools"]["main"], pool);
    for part in [
        "speak memcached's protocol",
        "--listen-addresses 0.0.0.0 --port 6379",
        "MAGLEV",
        "dns:",
        "health_checks",
        "--listener raw",
    ] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    assert_eq!(made.notes.len(), 6, "{:#?}", made.notes);
}

#[test]
fn tcp_proxy_becomes_a_random_route_over_its_cluster() {
    let made = from_envoy("envoy.yaml", ENVOY, Some("raw")).unwrap();
    let whole: Value = serde_json::from_str(&made.text).unwrap();
    assert_eq!(whole["route"], json!({ "type": "RandomRoute", "children": "Pool|main" }));
    assert!(made.notes.iter().any(|note| note.contains("PoolRoute|main")), "{:#?}", made.notes);
}

#[test]
fn unusable_configurations_are_refused_with_a_reason() {
    for (text, wanted, why) in [
        ("a: [", None, "envoy.yaml:2:1: error"),
        ("admin: {}", None, "no listener of static_resources"),
        (ENVOY, Some("web"), "no listener 'web'"),
        (&ENVOY.replace("name: main\n", "name: other\n"), None, "no cluster 'main'"),
        (&ENVOY.replace("endpoint: {", "hidden: {"), None, "an endpoint has no address"),
        (&ENVOY.replace("lb_endpoints", "none"), None, "no endpoints in the file"),
        (&ENVOY.replace("port_value: 11211", "port_value: 70000"), None, "no port_value"),
    ] {
        let said = from_envoy("envoy.yaml", text, wanted).unwrap_err().to_string();
        assert!(said.contains(why), "{why}: {said}");
    }
}
