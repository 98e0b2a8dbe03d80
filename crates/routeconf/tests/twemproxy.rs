//! twemproxy's configurations become trees.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use routeconf::ast::{Entry, HashFunction, KeyPart, Member, Route};
use routeconf::{Loaded, MemorySources, Params, Rejected, load};

fn read(text: &str) -> Result<Loaded, Rejected> {
    load("n.yml", text, &Params::default(), &mut MemorySources::default())
}

const WHOLE: &str = "# comment
alpha:
  listen: 127.0.0.1:22121
  hash: fnv1a_64
  hash_tag: \"{}\"
  distribution: ketama
  timeout: 400
  auto_eject_hosts: true
  server_retry_timeout: 2000
  server_failure_limit: 3
  servers:
   - 127.0.0.1:11211:1
   - 127.0.0.1:11212:2 server2
   - /var/run/m.sock:1 local
beta:
  listen: /tmp/beta.sock 0666
  distribution: random
  timeout: 400
  servers: [ \"10.0.0.1:11211:1\", \"10.0.0.2:11211:1\" ]
";

#[test]
fn the_settings_of_a_pool() {
    let config = read(WHOLE).unwrap().config;
    let listen = config.listeners.iter().map(|listener| listener.listen.as_ref().unwrap());
    let listen: Vec<_> = listen.map(|listen| (listen.address.as_str(), listen.mode)).collect();
    assert_eq!(listen, [("127.0.0.1:22121", None), ("/tmp/beta.sock", Some(0o666))]);
    let Entry::Plain(route) = config.listeners[0].entry else { panic!("no route") };
    let Route::Pool(route) = &config.handle(route).route else { panic!("no pool") };
    assert_eq!(
        (route.hash.key_part.clone(), route.asynclog.as_deref()),
        (KeyPart::HashTag(*b"{}"), None)
    );
    let HashFunction::TwemproxyKetama { servers, .. } = &route.hash.function else { panic!() };
    let servers: Vec<_> = servers.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
    assert_eq!(servers, [("127.0.0.1", 1), ("server2", 2), ("local", 1)]);
    let pool = config.pool(route.pool);
    assert_eq!((pool.server_timeout_ms, pool.eject), (Some(400), Some((3, 2000))));
    let Member::Server(server) = &pool.members[2] else { panic!("no server") };
    assert_eq!((server.address.to_string(), server.at.line), ("unix:/var/run/m.sock".into(), 14));
    let Entry::Plain(route) = config.listeners[1].entry else { panic!("no route") };
    let Route::Random(children) = &config.handle(route).route else { panic!("no random") };
    assert_eq!(children.len(), 2);
}

/// twemproxy leaves out the port 11211 of a server without a name, but a path keeps its colon.
#[test]
fn servers_without_a_name_have_twemproxys() {
    let text = "a:\n  listen: 127.0.0.1:1\n  servers:\n   - /run/m.sock:1\n   - h:11211:1\n   \
                - h:1:1\n   - /run/n.sock:1 n\n";
    let config = read(text).unwrap().config;
    let routes = config.handles.iter().map(|handle| &handle.route);
    let named = routes.filter_map(|route| match route {
        Route::Pool(pool) => match &pool.hash.function {
            HashFunction::TwemproxyKetama { servers, .. } => Some(servers),
            _ => None,
        },
        _ => None,
    });
    let names: Vec<_> = named.flatten().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["/run/m.sock:", "h", "h:1", "n"]);
}

#[test]
fn settings_without_effect_cause_a_warning() {
    assert_eq!(read(WHOLE).unwrap().warnings, []);
    let unused = "backlog: 512\n  client_connections: 9\n  mbuf_size: 512\n  reuseport: true\n  tcpkeepalive: true\n  preconnect: true\n  server_connections: 4";
    let text =
        format!("a:\n  listen: 127.0.0.1:1\n  timeout: 1\n  {unused}\n  servers: [ \"h:1:1\" ]\n");
    let loaded = read(&text).unwrap();
    let files = &loaded.config.files;
    let told: Vec<_> = loaded.warnings.iter().map(|warning| warning.render(files)).collect();
    assert_eq!(told.len(), 7, "{told:?}");
    assert!(
        told[0].starts_with("n.yml:4:") && told[0].contains("'backlog' changes nothing"),
        "{}",
        told[0]
    );
}

/// twemproxy then waits without a limit.
#[test]
fn a_pool_without_a_timeout_is_warned_of() {
    for timeout in ["", "  timeout: 0\n"] {
        let text = format!("a:\n  listen: 127.0.0.1:1\n{timeout}  servers: [ 'h:1:1' ]\n");
        let loaded = read(&text).unwrap();
        let told: Vec<_> =
            loaded.warnings.iter().map(|warning| warning.render(&loaded.config.files)).collect();
        let want = "n.yml:2:3: warning: the pool 'a' has no 'timeout': a server has \
                    --server-timeout to reply (in twemproxy there is no limit; set 'timeout' for a \
                    longer one)";
        assert_eq!(told, [want]);
        assert_eq!(loaded.config.pools[0].server_timeout_ms, None);
    }
}

/// One pass reports all errors.
#[test]
fn every_invalid_setting_is_reported() {
    let text = "a:\n  listen: x\n  hsh: fnv1a_64\n  timout: 1\n  server_retry_timeout: soon\n  \
                auto_eject_hosts: perhaps\n  servers: [ 'h:1:1' ]\nb:\n  listen: y\n  \
                distribution: far\n  servers: [ 'h:1:1' ]\n";
    let told: Vec<String> = read(text).unwrap_err().render().lines().map(str::to_owned).collect();
    let want = [
        "n.yml:3:8: error: the pool 'a' has no setting 'hsh' (did you mean hash?)",
        "n.yml:4:11: error: the pool 'a' has no setting 'timout' (did you mean timeout?)",
        "n.yml:5:25: error: 'server_retry_timeout' is a number from 0 to 4294967295, not 'soon'",
        "n.yml:6:21: error: 'auto_eject_hosts' is true or false",
        "n.yml:10:17: error: 'distribution' is ketama, modula or random",
    ];
    assert_eq!(told, want);
}

#[test]
fn errors_contain_their_position() {
    for (text, error) in [
        ("", "n.yml:1:1: error: the file is empty"),
        ("a: b", "n.yml:1:4: error: the pool 'a' is settings by name, not a string"),
        (
            "\"a\\nb\":\n  listen: x\n  servers: [ 'h:1:1' ]",
            "n.yml:2:3: error: the pool 'a\u{fffd}b' has a control character in its name",
        ),
        ("a:\n  listen: x", "n.yml:2:3: error: the pool 'a' needs 'servers'"),
        ("a:\n  servers: [ 'h:1:1' ]", "n.yml:2:3: error: the pool 'a' needs 'listen'"),
        (
            "a:\n  listen: /x 0868\n  servers: [ 'h:1:1' ]",
            "n.yml:2:11: error: '0868' is not an access mode from 0 to 0777, in octal",
        ),
        (
            "a:\n  listen: /x 01777\n  servers: [ 'h:1:1' ]",
            "n.yml:2:11: error: '01777' is not an access mode from 0 to 0777, in octal",
        ),
        (
            "a:\n  listen: h:1 0666\n  servers: [ 'h:1:1' ]",
            "n.yml:2:11: error: 'listen' is an address, or a path with an access mode",
        ),
        (
            "a:\n  listen: x\n  servers: [ 'h:1' ]",
            "n.yml:3:14: error: 'h:1' is not of the form host:port:weight name",
        ),
        (
            "a:\n  listen: x\n  servers: [ 'h:1:0' ]",
            "n.yml:3:14: error: '0' of the server 'h:1:0' is not a weight of at least 1",
        ),
        (
            "a:\n  listen: x\n  hash: fnv1a64\n  servers: [ 'h:1:1' ]",
            "n.yml:3:9: error: there is no hash 'fnv1a64' (did you mean fnv1a_64?)",
        ),
        (
            "a:\n  listen: x\n  hash_tag: '{'\n  servers: [ 'h:1:1' ]",
            "n.yml:3:13: error: 'hash_tag' is two characters, \"{}\" for instance, not '{'",
        ),
        (
            "a:\n  listen: x\n  redis: true\n  servers: [ 'h:1:1' ]",
            "n.yml:2:3: error: the pool 'a' is for Redis; only memcached's protocols are spoken here",
        ),
        (
            "a:\n  listn: x\n  servers: [ 'h:1:1' ]",
            "n.yml:2:3: error: the pool 'a' needs 'listen'\n\
             n.yml:2:10: error: the pool 'a' has no setting 'listn' (did you mean listen?)",
        ),
        (
            "a:\n  listen: x\n  timeout: 1\n  servers: [ 'h:1:1', 'h:1:2' ]",
            "n.yml:4:23: error: two servers are called 'h:1'",
        ),
        ("a: &x\n  listen: y", "n.yml:1:4: error: anchors and tags are not known here"),
        ("a: *x", "n.yml:1:4: error: while parsing node, found unknown anchor"),
    ] {
        assert_eq!(read(text).unwrap_err().render(), error, "{text}");
    }
}
