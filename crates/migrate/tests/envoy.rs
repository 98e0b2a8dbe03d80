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

/// [`ENVOY`] with these endpoints of `main`: its servers, and whether a note has each part.
fn servers_of_main(endpoints: &str, parts: &[&str]) -> Value {
    let (head, rest) = ENVOY.split_once("      - lb_endpoints:").unwrap();
    let (_, tail) = rest.split_once("  - name: sessions").unwrap();
    let text = format!("{head}{endpoints}  - name: sessions{tail}");
    let made = from_envoy("envoy.yaml", &text, None).unwrap();
    for part in parts {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    let whole: Value = serde_json::from_str(&made.text).unwrap();
    whole["pools"]["main"]["servers"].clone()
}

#[test]
fn standby_endpoints_and_those_out_of_service_are_left_out() {
    let endpoint = |host: &str, status: &str| {
        format!(
            "        - {{ health_status: {status}, endpoint: {{ address: {{ socket_address: {{ \
             address: {host}, port_value: 1 }} }} }} }}\n"
        )
    };
    let group = |priority: u8, endpoints: &[String]| {
        format!("      - priority: {priority}\n        lb_endpoints:\n{}", endpoints.concat())
    };
    let standby = group(1, &[endpoint("standby", "HEALTHY")]);
    let mixed = ["DRAINING", "TIMEOUT", "UNHEALTHY", "3", "DEGRADED", "UNKNOWN"];
    let mixed = group(0, &mixed.map(|status| endpoint(&status.to_lowercase(), status)));
    let parts = ["main: endpoints with health_status", "main: endpoints of a later priority"];
    assert_eq!(servers_of_main(&format!("{standby}{mixed}"), &parts), json!(["unknown:1"]));
    // The second priority serves if the first is out of service.
    let out = group(0, &[endpoint("out", "UNHEALTHY")]);
    assert_eq!(servers_of_main(&format!("{out}{standby}"), &parts[..1]), json!(["standby:1"]));
}

#[test]
fn settings_without_a_counterpart_are_noted() {
    let text = ENVOY
        .replace("stat_prefix: cache", "stat_prefix: cache\n          faults: [ { delay: 1s } ]")
        .replace("{ op_timeout: 0.25s,", "{ op_timeout: 0.25s, read_policy: REPLICA,")
        .replace("prefix_routes:", "prefix_routes:\n            case_insensitive: true")
        .replace("catch_all_route: { cluster: main }", "catch_all_route: { cluster: main, x: y }")
        .replace("remove_prefix: true", "key_formatter: '%KEY%x'");
    let made = from_envoy("envoy.yaml", &text, None).unwrap();
    for part in [
        "redis_proxy: faults has no counterpart",
        "settings: read_policy has no counterpart",
        "prefix_routes: case_insensitive has no counterpart",
        "prefix session:: key_formatter has no counterpart",
        "catch_all_route: x has no counterpart",
    ] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    let text =
        ENVOY.replace("prefix_routes:", "prefix_routes:\n            case_insensitive: false");
    assert_eq!(from_envoy("envoy.yaml", &text, None), from_envoy("envoy.yaml", ENVOY, None));
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
