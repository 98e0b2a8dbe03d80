//! Configurations of memcached's proxy: their routes, and the servers of their keys.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use migrate::from_memcached_proxy;
use routeconf::ast::{Handle, KeyPart, Route};
use routeconf::{MemorySources, Params, load};
use serde_json::{Value, json};

fn routes(lua: &str) -> (Value, Vec<String>) {
    let made = from_memcached_proxy("proxy.lua", lua, "default").unwrap();
    let whole: Value = serde_json::from_str(&made.text).unwrap();
    (whole["route"].clone(), made.notes)
}

fn refused(lua: &str) -> String {
    from_memcached_proxy("proxy.lua", lua, "default").unwrap_err().to_string()
}

const POOLS: &str = r#"
pools{
    foo = { backends = { "127.0.0.1:11322" } },
    bar = { backends = { "127.0.0.1:11323", "127.0.0.1:11324" } },
    set_all = {
        east = { backends = { "10.0.0.1:11211" } },
        west = { backends = { { host = "10.0.0.2", port = 11212 } } },
    },
}
"#;

fn with_pools(rest: &str) -> String {
    format!("{POOLS}{rest}")
}

const BAR: &str =
    r#"{"type": "PoolRoute", "pool": "bar", "hash": {"hash_func": "Jump", "filter": "none"}}"#;

fn bar() -> Value {
    serde_json::from_str(BAR).unwrap()
}

#[test]
fn prefixes_commands_and_handlers_become_routes() {
    let (route, notes) = routes(&with_pools(
        r#"
        local_zone("west")
        routes{
            map = {
                direct = route_direct{ child = "bar" },
                split = route_split{ child_a = "foo", child_b = route_allsync{ children = { "foo", "bar" } } },
                failover = route_failover{ children = { "foo", "bar", "foo" }, failover_count = 2, miss = true },
                zones = route_zfailover{ children = "set_all", miss = false },
                kinds = cmdmap{
                    [mcp.CMD_SET] = route_ttl{ ttl = 60, child = "foo" },
                    mg = route_allfastest{ children = { "foo", "bar" } },
                },
            },
            default = route_direct{ child = "foo" },
        }"#,
    ));
    assert_eq!(notes, Vec::<String>::new());
    let policies = &route["policies"];
    assert_eq!(route["wildcard"], "PoolRoute|foo");
    assert_eq!(policies["direct/"], bar());
    let both = json!(["PoolRoute|foo", bar()]);
    let all_sync = json!({ "type": "AllSyncRoute", "children": both });
    let split = json!({ "type": "AllInitialRoute", "children": ["PoolRoute|foo", all_sync] });
    assert_eq!(policies["split/"], split);
    assert_eq!(policies["failover/"], json!({ "type": "MissFailoverRoute", "children": both }));
    let far = json!({ "type": "AllFastestRoute", "children": ["PoolRoute|set_all_east"] });
    let zones = json!({ "type": "FailoverRoute", "children": ["PoolRoute|set_all_west", far] });
    assert_eq!(policies["zones/"], zones);
    let set = json!({ "type": "ModifyExptimeRoute", "target": "PoolRoute|foo", "exptime": 60 });
    let get = json!({ "type": "AllFastestRoute", "children": both });
    assert_eq!(policies["kinds/"]["operation_policies"], json!({ "get": get, "set": set }));
    assert_eq!(policies["kinds/"]["default_policy"], "PoolRoute|foo");
}

#[test]
fn variables_loops_and_functions_are_evaluated() {
    let (route, _) = routes(
        r#"
        require("routelib")
        local port = 11210
        local function backends(n)
            local all = {}
            for i = 1, n do all[i] = string.format("10.0.0.%d:%d", i, port + i) end
            return all
        end
        pools{ main = { backends = backends(3) } }
        print("loading")
        routes{ conf = { mode = "anchor", start = "_", stop = ":" }, map = { a = route_direct{ child = "main" } } }"#,
    );
    assert_eq!(route["policies"]["_a:"]["pool"], "main");
}

#[test]
fn settings_become_pool_settings_or_notes() {
    let made = from_memcached_proxy(
        "proxy.lua",
        r#"
        settings{ backend_connect_timeout = 2.5, backend_failure_limit = 4, backend_retry_waittime = 3,
                  active_request_limit = 100, pool_options = { filter = "tags", filter_conf = "{}" } }
        pools{ p = {
            options = { seed = "hello", dist = mcp.dist_ring_hash },
            backend_options = { readtimeout = 1, tls = true, connections = 2 },
            backends = { "h:1", "h:2 label", "h:3 _down_" },
        } }
        routes{ default = route_direct{ child = "p" } }
        routes{ tag = "other", default = route_direct{ child = "p" } }"#,
        "default",
    )
    .unwrap();
    let whole: Value = serde_json::from_str(&made.text).unwrap();
    let pool = &whole["pools"]["p"];
    assert_eq!((&pool["connect_timeout"], &pool["server_timeout"]), (&json!(2500), &json!(1000)));
    let servers = json!(["h:1:ascii:tls", "h:2:ascii:tls", { "type": "ErrorRoute", "response": "h:3 is down by the configuration" }]);
    assert_eq!(pool["servers"], servers);
    let hash =
        json!({ "hash_func": "Jump", "seed": "hello", "filter": "tags", "filter_conf": "{}" });
    assert_eq!(whole["route"]["hash"], hash);
    for part in [
        "--timeouts-until-tko 4",
        "--probe-timeout-initial 3000",
        "active_request_limit",
        "its dist is not known",
        "connections is left out",
        "--listener other",
    ] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    assert_eq!(made.notes.len(), 6, "{:#?}", made.notes);
}

#[test]
fn unusable_files_are_refused_with_a_reason() {
    for (lua, why) in [
        ("pools{", "proxy.lua:1:"),
        ("routes{ default = route_direct{ child = 'x' } }", "names the pool 'x'"),
        ("pools{}", "calls no routes"),
        ("routes{ default = route_mine{ child = 'x' } }", "route_mine"),
        ("function mcp_config_routes() end", "defines mcp_config_routes"),
        ("while true do end", "without an end"),
        ("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end", "not enough memory"),
        ("os.execute('true')", "os"),
        ("io.open('/etc/passwd')", "io"),
        ("local t = {} t.t = t pools(t)", "recursive"),
        (
            "pools{ p = { backends = { 'h' } } } routes{ default = route_direct{ child = 'p' } }",
            "no host and port",
        ),
        ("routes{ default = route_zfailover{ children = {} } }", "local_zone"),
    ] {
        let said = refused(lua);
        assert!(said.contains(why), "{lua}: {said}");
        assert!(!said.contains("traceback"), "{said}");
    }
    for (options, why) in [
        ("filter = 'stop'", "pool p: the filter_conf of 'stop' must have 2 to 5 characters"),
        ("filter = 'stop', filter_conf = '/'", "2 to 5 characters"),
        ("filter = 'tags', filter_conf = 'xx'", "two different characters"),
    ] {
        let lua = format!(
            "pools{{ p = {{ options = {{ {options} }}, backends = {{ 'h:1', 'h:2' }} }} }}
            routes{{ default = route_direct{{ child = 'p' }} }}"
        );
        let said = refused(&lua);
        assert!(said.contains(why) && !said.contains("routes.json"), "{options}: {said}");
    }
    let tagged = "pools{ p = { backends = { 'h:1' } } } routes{ tag = 't', default = route_direct{ child = 'p' } }";
    assert!(refused(tagged).contains("there are t"));
}

/// Keys and their servers in memcached 1.6.45, with five servers in the pool and these options; a
/// key starts with the name of its row and a slash.
const PLACES: [(&str, &str, [u32; 11]); 4] = [
    ("plain", "{}", [2, 1, 4, 4, 4, 2, 0, 0, 1, 3, 2]),
    ("seeded", r#"{ seed = "hello" }"#, [3, 1, 0, 2, 1, 0, 1, 4, 1, 4, 0]),
    ("tags", r#"{ filter = "tags", filter_conf = "{}" }"#, [2, 1, 3, 3, 0, 3, 3, 0, 1, 2, 4]),
    ("stop", r#"{ filter = "stop", filter_conf = "|#|" }"#, [0, 3, 0, 1, 0, 3, 0, 0, 2, 4, 3]),
];

/// The proxy takes any stop of 2 to 5 bytes, the first two bytes of longer tags, and no notice of a
/// 'filter_conf' without a filter.
#[test]
fn filters_are_those_of_the_proxy() {
    let part = |options: &str| {
        let lua = format!(
            "pools{{ p = {{ options = {{ {options} }}, backends = {{ 'h:1', 'h:2' }} }} }}
            routes{{ default = route_direct{{ child = 'p' }} }}"
        );
        let made = from_memcached_proxy("proxy.lua", &lua, "default").unwrap();
        let loaded =
            load("r.json", &made.text, &Params::default(), &mut MemorySources::default()).unwrap();
        let mut routes = loaded.config.handles.iter().map(|handle| &handle.route);
        let found = routes.find_map(|route| match route {
            Route::Pool(pool) => Some(pool.hash.key_part.clone()),
            _ => None,
        });
        found.unwrap()
    };
    assert_eq!(part("filter = 'stop', filter_conf = '//'"), KeyPart::Before("//".into()));
    assert_eq!(part("filter = 'stop', filter_conf = '|#|'"), KeyPart::BeforeHashStop);
    assert_eq!(part("filter = 'tags', filter_conf = '{}}'"), KeyPart::Tags(*b"{}"));
    assert_eq!(part("filter_conf = '{}'"), KeyPart::Whole);
}

#[test]
fn keys_map_to_the_same_servers_as_in_the_proxy() {
    let long = "long".repeat(50);
    let keys = [
        "a",
        "user:17",
        "user:{17}:name",
        "{17}",
        "x{}y",
        "{a",
        "a|#|b",
        "b|#|a",
        "{{a}}",
        "}a{b}c",
        long.as_str(),
    ];
    for (name, options, places) in PLACES {
        let lua = format!(
            r#"
            local backends = {{}}
            for i = 1, 5 do backends[i] = "127.0.0.1:" .. 21100 + i end
            pools{{ p = {{ options = {options}, backends = backends }} }}
            routes{{ default = route_direct{{ child = "p" }} }}"#
        );
        let made = from_memcached_proxy("proxy.lua", &lua, "default").unwrap();
        assert_eq!(made.notes, Vec::<String>::new());
        let loaded =
            load("r.json", &made.text, &Params::default(), &mut MemorySources::default()).unwrap();
        let mut handles = loaded.config.handles.iter();
        let pool = |handle: &Handle| match &handle.route {
            Route::Pool(pool) => Some(pool.clone()),
            _ => None,
        };
        let route = handles.find_map(pool).unwrap();
        let placement = route.hash.placement(5, &[]).unwrap();
        for (key, place) in keys.iter().zip(places) {
            let key = format!("{name}/{key}");
            assert_eq!(route.hash.pick(&placement, key.as_bytes()), place, "{key}");
        }
    }
}
