//! The emitted files are read by the programs for which they are made.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::OsString;
use std::path::Path;

use options::{Environment, Invocation, Style};
use plan::{Files, KUSTOMIZATION, Topology, kubernetes, systemd};
use routeconf::{MemorySources, Params};
use serde_json::Value;

const EXAMPLE: &str = include_str!("../../../packaging/topology.toml");

const PODS: &str = include_str!("pods.toml");

fn topology(text: &str) -> Topology {
    Topology::parse(Path::new("topology.toml"), text).unwrap()
}

fn assert_serves(arguments: impl Iterator<Item = String>) {
    let environment = Environment { cpus: 4, port_file: None, ..Environment::default() };
    let parsed = options::parse(Style::Holdall, arguments.map(OsString::from), &environment);
    match parsed {
        Ok(Invocation::Run { warnings, .. }) => assert!(warnings.is_empty(), "{warnings:?}"),
        other => panic!("{other:?}"),
    }
}

fn assert_routes(text: &str, own_prefix: &str) {
    let mut sources = MemorySources::default();
    let loaded = routeconf::load("routes.json", text, &Params::new(own_prefix), &mut sources);
    let loaded = loaded.unwrap_or_else(|rejected| panic!("{:?}", rejected.findings));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let found = routeconf::lint::lint(&loaded.config);
    assert!(found.is_empty(), "{found:?}");
}

/// The invalidator accepts it, too: its own reader checks the text.
fn assert_invalidates(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("invalidate.toml");
    std::fs::write(&path, text).unwrap();
    invalidator::config::Config::read(&path).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_invalidator_gets_the_tls_settings_of_its_database() {
    let tls = ", server_id = 7001, sslmode = \"verify-full\", sslrootcert = \"/etc/ca.crt\"";
    let files = systemd(&topology(&EXAMPLE.replace(", server_id = 7001", tls))).unwrap();
    let config =
        files.iter().find_map(|(name, text)| name.ends_with("invalidate.toml").then_some(text));
    let config: toml::Table = config.unwrap().parse().unwrap();
    assert_eq!(config["source"]["sslmode"].as_str(), Some("verify-full"));
    assert_eq!(config["source"]["sslrootcert"].as_str(), Some("/etc/ca.crt"));
}

fn start_line<'f>(files: &'f Files, name: &str) -> &'f str {
    let unit = &files[name];
    unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/holdall ")).unwrap()
}

/// Each unit has the same few rights as that of the packages, and reports like it.
#[test]
fn units_have_the_hardening_of_the_packaged_units() {
    let files = systemd(&topology(EXAMPLE)).unwrap();
    for (unit, packaged) in [
        ("holdall-cache.service", "holdall.service"),
        ("holdall-route.service", "holdall-route.service"),
        ("holdall-invalidate.service", "holdall-invalidate.service"),
    ] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
        let text = std::fs::read_to_string(Path::new(folder).join(packaged)).unwrap();
        let from = text.find("CapabilityBoundingSet=").unwrap();
        let confined = text[from..].split("\n\n").next().unwrap();
        let settings = confined.lines().filter(|line| !line.starts_with('#'));
        let reports = ["Type=notify", "WatchdogSec=30", "User=holdall", "Group=holdall"];
        let wanted: Vec<&str> = settings.chain(reports).collect();
        assert!(wanted.len() > 25, "{wanted:?}");
        let units: Vec<_> = files.iter().filter(|(name, _)| name.ends_with(unit)).collect();
        assert!(!units.is_empty(), "{unit}");
        for (name, unit) in units {
            for line in &wanted {
                assert!(unit.lines().any(|one| one == *line), "{name} lacks {line}");
            }
            assert!(unit.contains("\nExecReload="), "{name}");
        }
    }
    let at = |memory_file: &str, port: &str| {
        let text = EXAMPLE.replace("/dev/shm/holdall", memory_file);
        let text = text.replace("[cache]", &format!("[cache]\nport = {port}"));
        let files = systemd(&topology(&text)).unwrap();
        files["10.1.1.1/etc/systemd/system/holdall-cache.service"].clone()
    };
    let unit = at("/var/cache/holdall/items", "99");
    assert!(unit.contains("\nReadWritePaths=/var/cache/holdall\n"), "{unit}");
    assert!(unit.contains("\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"), "{unit}");
    assert!(unit.contains("\nPrivateUsers=false\n"), "{unit}");
    // A boot empties /run.
    let unit = at("/run/holdall-cache/items", "11211");
    let folder = "\nRuntimeDirectory=holdall-cache\nRuntimeDirectoryMode=0755\n\
                  RuntimeDirectoryPreserve=yes\n";
    assert!(unit.contains(folder) && !unit.contains("ReadWritePaths="), "{unit}");
}

#[test]
fn emitted_units_and_configurations_are_accepted() {
    let files = systemd(&topology(EXAMPLE)).unwrap();
    let line = start_line(&files, "10.1.1.1/etc/systemd/system/holdall-cache.service");
    assert_serves(line.split(' ').skip(1).map(str::to_owned));
    assert!(line.contains("-l 10.1.1.1 ") && line.contains(" -e /dev/shm/holdall"), "{line}");
    let line = start_line(&files, "10.1.2.20/etc/systemd/system/holdall-route.service");
    assert!(line.contains("--route-prefix /east/b/"), "{line}");
    // A region without a list of routers has one on each server's host.
    assert!(files.contains_key("10.2.1.2/etc/holdall/routes.json"));
    let routes: Vec<_> = files.iter().filter(|(name, _)| name.ends_with("routes.json")).collect();
    assert_eq!(routes.len(), 4);
    for (name, text) in &routes {
        assert_routes(text, if name.starts_with("10.1.") { "/east/b/" } else { "/west/a/" });
    }
    assert!(routes[0].1.contains("PoolRoute|a-gutter") && routes[0].1.contains("archive:"));
    let config = &files["10.1.1.20/etc/holdall/invalidate.toml"];
    assert_invalidates(config);
    let config: toml::Table = config.parse().unwrap();
    assert_eq!(config["source"]["kind"].as_str(), Some("mariadb"));
    assert_eq!(config["cluster"][1]["routers"][0].as_str(), Some("10.1.2.20:5000"));
    assert_eq!(config["keys"]["tables"]["shop.items"][1].as_str(), Some("items:{category}"));
}

#[test]
fn a_cold_cluster_is_filled_from_the_warm_one() {
    let text = EXAMPLE.replacen("name = \"b\"", "name = \"b\"\nwarm_from = \"a\"", 1);
    let files = systemd(&topology(&text)).unwrap();
    let routes = &files["10.1.2.20/etc/holdall/routes.json"];
    assert_routes(routes, "/east/b/");
    let routes: Value = serde_json::from_str(routes).unwrap();
    let cold = &routes["routes"][1]["route"]["wildcard"];
    assert_eq!((&cold["type"], &cold["warm"]), (&"WarmUpRoute".into(), &"PoolRoute|a".into()));
    assert_eq!(cold["leases"], true);
}

fn arguments_of(container: &Value) -> Vec<String> {
    let arguments = container["args"].as_array().unwrap().iter();
    arguments.map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

#[test]
fn manifests_are_consistent() {
    let files = kubernetes(&topology(PODS)).unwrap();
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&files["east.yaml"]).unwrap();
    let of_kind = |kind: &str| {
        let kind = kind.to_owned();
        manifests.iter().filter(move |manifest| manifest["kind"] == kind.as_str())
    };
    let name = |manifest: &Value| manifest["metadata"]["name"].as_str().unwrap().to_owned();
    let services: Vec<String> = of_kind("Service").map(name).collect();
    for set in of_kind("StatefulSet").chain(of_kind("Deployment")) {
        let labels = &set["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&set["spec"]["selector"]["matchLabels"], labels);
        assert!(services.contains(&name(set)), "{}", name(set));
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter();
        let mut arguments = arguments.map(|argument| argument.as_str().unwrap().to_owned());
        if arguments.next().unwrap() == "serve" {
            assert_serves(arguments);
        }
        let ports: Vec<&Value> = container["ports"].as_array().unwrap().iter().collect();
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/livez")] {
            let asked = &container[probe]["httpGet"];
            assert_eq!(asked["path"], path, "{}", name(set));
            let port = ports.iter().find(|port| port["name"] == asked["port"]).unwrap();
            let number = port["containerPort"].as_u64().unwrap();
            let answers = arguments_of(container).contains(&format!("--metrics=0.0.0.0:{number}"))
                || number == 5180;
            assert!(answers, "{}: nobody answers at {port}", name(set));
        }
        let seconds = |name: &str| {
            let arguments = arguments_of(container);
            let flag = arguments.iter().find_map(|argument| argument.strip_prefix(name));
            flag.map(|text| text.parse::<u64>().unwrap())
        };
        if let Some(drain) = seconds("--drain=") {
            let grace = &set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
            assert!(drain > 4 && grace.as_u64().unwrap() >= drain + 10, "{}", name(set));
        }
        assert_eq!(container["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert!(container["resources"]["requests"]["cpu"].is_string(), "{}", name(set));
        let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
        for mount in mounts {
            let spec = &set["spec"];
            let volumes = [&spec["template"]["spec"]["volumes"], &spec["volumeClaimTemplates"]];
            let named = |volume: &Value| {
                volume["name"] == mount["name"] || volume["metadata"]["name"] == mount["name"]
            };
            let found = volumes.iter().filter_map(|list| list.as_array()).flatten().any(named);
            assert!(found, "{}: no volume {}", name(set), mount["name"]);
        }
    }
    let maps: Vec<&Value> = of_kind("ConfigMap").collect();
    let routes = maps.iter().find_map(|map| map["data"]["routes.json"].as_str()).unwrap();
    assert_routes(routes, "/east/a/");
    assert!(routes.contains("shop-east-a-2.shop-east-a.default.svc.cluster.local:11211"));
    let config = maps.iter().find_map(|map| map["data"]["invalidate.toml"].as_str()).unwrap();
    assert_invalidates(config);
    let config: toml::Table = config.parse().unwrap();
    let router = config["cluster"][1]["routers"][0].as_str().unwrap();
    assert!(services.contains(&router.strip_suffix(":5000").unwrap().to_owned()), "{router}");
    let replicas = of_kind("Deployment").map(|set| set["spec"]["replicas"].as_u64().unwrap());
    assert_eq!(replicas.collect::<Vec<_>>(), [2, 4]);
}

/// The invalidator does not look for changes of its file.
#[test]
fn a_changed_configuration_replaces_the_pod_of_the_invalidator() {
    let template = |text: &str| {
        let made = manifests(text);
        let sets = of_kind(&made, "StatefulSet");
        let set = sets.iter().find(|set| set["metadata"]["name"] == "shop-east-invalidator");
        set.unwrap()["spec"]["template"].clone()
    };
    let before = template(PODS);
    assert_eq!(before, template(PODS));
    // Another table, and another cluster.
    assert_ne!(before, template(&PODS.replace("[keys]", "[keys]\n\"public.items\" = \"i:{id}\"")));
    let cluster = "[[region.cluster]]\nname = \"c\"\nservers = 1\n";
    assert_ne!(before, template(&format!("{PODS}{cluster}")));
    // Servers are not in its configuration.
    assert_eq!(before, template(&PODS.replace("servers = 3", "servers = 4")));
}

fn manifests(text: &str) -> Vec<Value> {
    let files = kubernetes(&topology(text)).unwrap();
    serde_saphyr::from_multiple(&files["east.yaml"]).unwrap()
}

fn of_kind<'m>(manifests: &'m [Value], kind: &str) -> Vec<&'m Value> {
    manifests.iter().filter(|manifest| manifest["kind"] == kind).collect()
}

/// Clients that do not read are closed before the kernel ends the router for its memory.
#[test]
fn a_routers_memory_limit_is_below_its_pods() {
    let made = manifests(PODS);
    let routers = of_kind(&made, "Deployment");
    assert_eq!(routers.len(), 2);
    for router in routers {
        let container = &router["spec"]["template"]["spec"]["containers"][0];
        let limit = container["resources"]["limits"]["memory"].as_str().unwrap();
        let limit: u64 = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        let arguments = arguments_of(container);
        let held = arguments.iter().find_map(|word| word.strip_prefix("--client-memory-max="));
        let held: u64 = held.unwrap().parse().unwrap();
        assert!((limit - 64) << 20 > held, "{held} bytes in {limit} MiB");
    }
}

#[test]
fn pods_of_a_set_are_spread_over_nodes() {
    let made = manifests(PODS);
    let sets = of_kind(&made, "StatefulSet").into_iter().chain(of_kind(&made, "Deployment"));
    for set in sets.filter(|set| set["metadata"]["name"] != "shop-east-invalidator") {
        let pod = &set["spec"]["template"];
        let spread = &pod["spec"]["topologySpreadConstraints"][0];
        assert_eq!(spread["topologyKey"], "kubernetes.io/hostname", "{}", set["metadata"]["name"]);
        assert_eq!(spread["labelSelector"]["matchLabels"], pod["metadata"]["labels"]);
    }
}

#[test]
fn only_pods_of_holdall_reach_the_servers() {
    let made = manifests(PODS);
    let policies = of_kind(&made, "NetworkPolicy");
    let servers: Vec<&Value> = of_kind(&made, "StatefulSet")
        .into_iter()
        .filter(|set| set["metadata"]["name"] != "shop-east-invalidator")
        .collect();
    assert_eq!((policies.len(), servers.len()), (4, 4));
    for (policy, set) in policies.iter().zip(servers) {
        let labels = &set["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], labels);
        let [cache, metrics] = &policy["spec"]["ingress"].as_array().unwrap()[..] else { panic!() };
        let from = &cache["from"][0]["podSelector"]["matchLabels"];
        assert_eq!(cache["ports"][0]["port"], 11211);
        assert_eq!((metrics.get("from"), &metrics["ports"][0]["port"]), (None, &9150.into()));
        for router in of_kind(&made, "Deployment") {
            let labels = router["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
            let chosen = from.as_object().unwrap().iter();
            assert!(chosen.clone().all(|(name, value)| labels.get(name) == Some(value)));
            assert_eq!(chosen.count(), 1);
        }
    }
}

#[test]
fn a_memory_file_is_on_a_volume_that_outlives_the_container() {
    let file = "[cache]\nmemory_file = \"/run/holdall/items\"\n[keys]";
    let made = manifests(&PODS.replace("[keys]", file));
    for set in of_kind(&made, "StatefulSet") {
        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let arguments = arguments_of(container);
        if arguments[0] != "serve" {
            continue;
        }
        assert_serves(arguments.iter().skip(1).cloned());
        assert!(arguments.contains(&"--memory-file=/run/holdall/items".to_owned()));
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/run/holdall");
        // Otherwise, the liveness probe ends a recovery, which then starts anew.
        assert_eq!(container["startupProbe"]["httpGet"]["path"], "/startupz");
        assert!(container["startupProbe"]["failureThreshold"].as_u64().unwrap() > 500);
        let volume = &pod["volumes"][0];
        assert_eq!(volume["name"], container["volumeMounts"][0]["name"]);
        assert_eq!(volume["emptyDir"]["medium"], "Memory");
        // The file's maximum size counts against the limit of the pod.
        assert_eq!(volume["emptyDir"]["sizeLimit"], container["resources"]["limits"]["memory"]);
    }
    // Without one, nothing is mounted.
    for set in of_kind(&manifests(PODS), "StatefulSet").iter().take(4) {
        assert!(set["spec"]["template"]["spec"].get("volumes").is_none(), "{set}");
    }
}

#[test]
fn routers_scale_by_processor_use() {
    let text = format!("{PODS}\n[kubernetes]\nrouters_max = 9\n[router]\nthreads = 4\n");
    let made = manifests(&text);
    let scalers = of_kind(&made, "HorizontalPodAutoscaler");
    let routers = of_kind(&made, "Deployment");
    assert_eq!((scalers.len(), routers.len()), (2, 2));
    for ((scaler, router), least) in scalers.iter().zip(routers).zip([2, 4]) {
        let spec = &scaler["spec"];
        assert_eq!(spec["scaleTargetRef"]["name"], router["metadata"]["name"]);
        assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&least.into(), &9.into()));
        assert_eq!(spec["metrics"][0]["resource"]["target"]["averageValue"], "2800m");
        // Otherwise two would set the number.
        assert!(router["spec"].get("replicas").is_none());
    }
    let refused = kubernetes(&topology(&text.replace("= 9", "= 3"))).unwrap_err().to_string();
    assert_eq!(refused, "b: 4 routers are more than kubernetes.routers_max = 3");
}

/// The base of the packages is the output of `plan` for the topology next to it.
#[test]
fn the_packaged_manifests_match_the_output_of_plan() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let files = kubernetes(&topology(&read("topology.toml"))).unwrap();
    let again = "holdall plan packaging/kubernetes/topology.toml --emit kubernetes \
                 -o packaging/kubernetes";
    for (name, text) in &files {
        assert_eq!(&read(name), text, "{name}: make it again by: {again}");
    }
    let made: Value = serde_saphyr::from_str(&files[KUSTOMIZATION]).unwrap();
    assert_eq!(made["resources"], serde_json::json!(["main.yaml"]));
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let yaml = names.filter(|name| name.to_string_lossy().ends_with(".yaml")).count();
    assert_eq!(yaml, files.len(), "a file that plan does not make");
}

#[test]
fn contradictory_topologies_are_refused_with_a_reason() {
    let refused = |from: &str, to: &str| {
        assert!(EXAMPLE.contains(from), "{from}");
        let text = EXAMPLE.replacen(from, to, 1);
        Topology::parse(Path::new("t.toml"), &text).unwrap_err().to_string()
    };
    for (from, to, why) in [
        ("master = true", "master = false", "0 regions have master"),
        ("name = \"west\"", "name = \"east\"", "region 'east' is there twice"),
        ("name = \"b\"", "name = \"a\"", "cluster 'a' is there twice"),
        ("name = \"shop\"", "name = \"My Shop\"", "'My Shop' is not"),
        ("\"10.1.1.9\"", "\"10.1.1.1\"", "10.1.1.1 is a cache server twice"),
        ("[\"archive:\"]", "[]", "regional.prefixes is empty"),
        ("\"/dev/shm/holdall\"", "\"holdall\"", "a path in a folder"),
        ("\"/dev/shm/holdall\"", "\"/holdall\"", "a path in a folder"),
        ("name = \"west\"", "name = \"kustomization\"", "kustomize's name"),
        ("memory_mb", "memory", "unknown field `memory`"),
        (", server_id = 7001", "", "database.server_id: give it a number"),
        (", server_id = 7001", ", server_id = 7001, sslmode = \"on\"", "unknown variant `on`"),
        ("\"mariadb\"", "\"oracle\"", "unknown variant `oracle`"),
        ("name = \"b\"", "name = \"b\"\nwarm_from = \"c\"", "warm_from names no other cluster"),
        ("name = \"b\"", "name = \"b\"\nwarm_from = \"b\"", "warm_from names no other cluster"),
    ] {
        let message = refused(from, to);
        assert!(message.contains(why), "{message}");
    }
    let pods = topology(PODS);
    assert!(systemd(&pods).unwrap_err().to_string().contains("systemd needs addresses"));
    assert!(kubernetes(&topology(EXAMPLE)).unwrap_err().to_string().contains("a number of pods"));
}
