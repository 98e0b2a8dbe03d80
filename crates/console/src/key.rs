//! A key: its path through the proxy's configuration, and each server's item for it.

use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use plan::Target;
use routeconf::ast::Command;
use routeconf::walk::{Question, Walker};
use serde_json::{Value, json};
use tools::{Connection, Error, Options};

use crate::routes::Source;

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 250;

/// Maximum number of servers asked at a time.
const ASKED_MAX: usize = 16;

/// The reason why a text is not a valid key of the text protocol, if it is not.
pub(crate) fn fault(key: &str) -> Option<&'static str> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        Some("a key has 1 to 250 bytes")
    } else if key.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        Some("a key has no space and no control character")
    } else {
        None
    }
}

/// The path of a key, and the metadata of the servers' items of this name. Values are not
/// requested, and the items do not count as read.
pub(crate) fn look(
    key: &str,
    operation: &str,
    config: Option<&Source>,
    servers: &[Target],
    options: &Options,
) -> Value {
    let way = config.map(|source| KeyRoute::of(key, operation, source));
    let bare = way.as_ref().map_or(key, |way| way.bare.as_str());
    let held = each(servers, |address| held(address, bare, options));
    let held: Vec<Value> = servers
        .iter()
        .zip(held)
        .map(|(target, mut item)| {
            if let Some(fields) = item.as_object_mut() {
                fields.insert("address".to_owned(), json!(target.address));
                fields.insert("group".to_owned(), json!(target.group));
            }
            item
        })
        .collect();
    json!({
        "key": key,
        "asked_as": bare,
        "explained": way.as_ref().map(|way| &way.text),
        "answered_by": way.as_ref().map(|way| &way.servers),
        "servers": held,
    })
}

/// The path through a configuration.
struct KeyRoute {
    /// The text of `holdall explain`, or the reason why there is none.
    text: String,
    /// The responsible servers, one for each listener.
    servers: Vec<String>,
    /// The key that servers see.
    bare: String,
}

impl KeyRoute {
    fn of(key: &str, operation: &str, source: &Source) -> Self {
        let file = source.file.to_string_lossy();
        let mut words = vec!["--op", operation, "--config", &file];
        if let Some(prefix) = &source.route_prefix {
            words.extend(["--route-prefix", prefix]);
        }
        words.extend(["--", key]);
        let said = routeconf::cli::explain(words.iter().map(|word| (*word).to_owned()));
        let text = if said.out.is_empty() { said.err } else { said.out };
        let mut way = Self { text, servers: Vec::new(), bare: key.to_owned() };
        let Some(operation) = Command::by_name(operation) else { return way };
        let Ok(loaded) = source.load() else { return way };
        let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        let question = Question {
            operation,
            key: key.as_bytes(),
            host_id: routeconf::host_id(),
            client: None,
            now_secs,
        };
        let walker = Walker::new(&loaded.config);
        for listener in &loaded.config.listeners {
            if let Some(step) = walker.walk(listener, &question).first() {
                way.bare = String::from_utf8_lossy(&step.key).into_owned();
            }
            let server = walker.server(listener, &question);
            way.servers.extend(server.map(|server| walker.member_name(server)));
        }
        way
    }
}

/// Calls `ask` for each server, some at a time; returns the answers in the servers' order.
pub(crate) fn each<T: Send>(servers: &[Target], ask: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let chunk = servers.len().div_ceil(ASKED_MAX).max(1);
    let ask_all = &|targets: &[Target]| -> Vec<T> {
        targets.iter().map(|target| ask(&target.address)).collect()
    };
    thread::scope(|scope| {
        let begin = |targets| {
            (targets, thread::Builder::new().spawn_scoped(scope, move || ask_all(targets)))
        };
        let begun: Vec<_> = servers.chunks(chunk).map(begin).collect();
        let answers = begun.into_iter().map(|(targets, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system has no more threads: it takes longer.
            Err(_) => ask_all(targets),
        });
        answers.flatten().collect()
    })
}

/// One server's item of this name.
fn held(address: &str, key: &str, options: &Options) -> Value {
    match debugged(address, key, options) {
        Ok(Some(line)) => of_line(&line),
        Ok(None) => json!({"state": "absent"}),
        Err(error) => json!({"state": "unknown", "reason": error.to_string()}),
    }
}

/// The line of the meta command `me`, which does not count as a read.
fn debugged(address: &str, key: &str, options: &Options) -> Result<Option<String>, Error> {
    let mut connection = Connection::open(address, options)?;
    connection.send(format!("me {key}\r\n").as_bytes())?;
    let line = connection.line()?;
    if line == "EN" {
        return Ok(None);
    }
    match line.strip_prefix("ME ") {
        Some(rest) => Ok(Some(rest.to_owned())),
        None => Err(connection.unexpected("me", &line)),
    }
}

/// `KEY exp=100 la=0 cas=0 fetch=no cls=1 size=22`
fn of_line(line: &str) -> Value {
    let fields = || line.split(' ').skip(1).filter_map(|word| word.split_once('='));
    let of = |wanted: &str| fields().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let number = |wanted: &str| of(wanted).and_then(|value| value.parse::<i64>().ok());
    json!({
        "state": "held",
        "size_bytes": number("size"),
        // -1: never.
        "ttl_seconds": number("exp"),
        "since_read_seconds": number("la"),
        "was_read": of("fetch").map(|word| word == "yes"),
        "class": number("cls"),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn invalid_keys_are_refused_with_a_reason() {
        assert_eq!(fault("user:42"), None);
        for wrong in ["", "a b", "a\r\nflush_all", &"k".repeat(251), "a\x7f"] {
            assert!(fault(wrong).is_some(), "{wrong:?}");
        }
        assert!(fault("<img src=x onerror=alert(1)>").is_some(), "it has spaces");
        assert_eq!(fault("<img/src=x/onerror=alert(1)>"), None);
    }

    #[test]
    fn metadata_of_an_item_are_read() {
        let item = of_line("a exp=100 la=3 cas=0 fetch=yes cls=1 size=22");
        assert_eq!(item["ttl_seconds"], 100);
        assert_eq!((&item["size_bytes"], &item["was_read"]), (&json!(22), &json!(true)));
        assert_eq!(of_line("a exp=-1")["ttl_seconds"], -1);
        assert!(of_line("")["size_bytes"].is_null());
    }

    #[test]
    fn an_unavailable_server_delays_no_reply_of_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(b"ME k exp=5 la=1 cas=0 fetch=no cls=1 size=9\r\n").unwrap();
            line
        });
        let target = |address: &str| Target { address: address.to_owned(), group: String::new() };
        let servers = [target("127.0.0.1:1"), target(&address)];
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let found = look("k", "get", None, &servers, &options);
        assert_eq!(server.join().unwrap(), "me k\r\n");
        assert_eq!(found["servers"][0]["state"], "unknown");
        assert_eq!(found["servers"][1]["state"], "held");
        assert_eq!(found["servers"][1]["address"], json!(address));
        assert!(found["explained"].is_null());
    }

    #[test]
    fn a_route_shows_the_server_and_the_key_without_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcrouter.json");
        let text = r#"{"pools":{"A":{"servers":["127.0.0.1:7"]}},
            "routes":[{"aliases":["/a/b/"],"route":"PoolRoute|A"}]}"#;
        std::fs::write(&file, text).unwrap();
        let mut source = Source { file, route_prefix: Some("/a/b/".to_owned()) };
        let way = KeyRoute::of("/a/b/user:1", "get", &source);
        assert_eq!((way.bare.as_str(), way.servers.len()), ("user:1", 1));
        assert!(way.servers[0].contains("127.0.0.1:7") && way.text.contains("is answered by"));
        assert_eq!(KeyRoute::of("user:1", "get", &source).servers, way.servers);
        assert!(KeyRoute::of("a", "dance", &source).text.contains("there is no command"));
        source.file = "/nowhere".into();
        assert!(!KeyRoute::of("a", "get", &source).text.is_empty());
    }
}
