//! `holdall explain KEY --config A [--op OP] [--diff B]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::draw::{bar, tree};
use super::explain_json;
use super::offline::{self, Assumptions};
use super::sample::{Moves, SAMPLE, sample, server_of};
use super::{STATUS_BROKEN, STATUS_GOOD, Said, Words};
use crate::ast::{Command, Config};
use crate::host_id;
use crate::interval::exact_interval;
use crate::walk::{Question, Walker};

const HELP: &str = "\
Shows the way of a key through a router configuration, and its server. Asks nobody.

A source of servers (dns:, srv:, etcd:, elasticache:) is not asked, and counts as one server.

Usage: holdall explain KEY --config FILE [--op get] [--diff FILE] [--route-prefix /REGION/CLUSTER/] [--host-id N] [--json]

  --config FILE        mcrouter's language, or twemproxy's YAML
  --op OP              the command: get, set, delete, add, lease-get, incr, .. (default get)
  --diff FILE          another configuration: which share of keys like KEY would move to another server
  --route-prefix P     the prefix of keys without one (default /././, or where no route has that the first one's)
  --host-id N          the host id of the proxy, by which some routes choose (default this host's)
  --json               prints JSON

A meta command takes the way of its classic form: write get for mg, set for ms, delete for md, incr for ma.

With --diff 100,000 keys are tried, which are KEY with a number behind it (before |#|). The interval is exact
(Clopper and Pearson), 95 %.

Exit status: 0 done, 2 a configuration cannot be used, 64 wrong arguments.
";

/// Maximum number of listed moves between servers.
const MOVES_SHOWN: usize = 20;

/// Runs the command with these arguments.
#[must_use]
pub fn explain(arguments: impl Iterator<Item = String>) -> Said {
    match run(arguments) {
        Ok(said) | Err(said) => {
            Said { out: printable(&said.out), err: printable(&said.err), ..said }
        }
    }
}

/// The text without control characters except line ends: names of a configuration may contain any,
/// and a terminal obeys them.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

fn run(arguments: impl Iterator<Item = String>) -> Result<Said, Said> {
    let flags = ["--config", "--op", "--diff", "--route-prefix", "--host-id", "--json"];
    let words = Words::new("explain", arguments, &flags)?;
    if words.help {
        return Ok(Said::help(HELP));
    }
    if words.version {
        return Ok(Said::version("explain"));
    }
    let wrong = |message: &str| Said::usage("explain", message);
    let [key] = &words.words[..] else { return Err(wrong("name one key")) };
    let Some(file) = words.flag("--config") else { return Err(wrong("--config is missing")) };
    let name = words.flag("--op").unwrap_or("get");
    let Some(operation) = Command::by_name(name) else {
        let classic = ["mg", "ms", "md", "ma", "me"].contains(&name);
        let hint = if classic { "; name the classic form of a meta command" } else { "" };
        return Err(wrong(&format!("there is no command '{name}'{hint}")));
    };
    let prefix = words.flag("--route-prefix");
    let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let host_id = match words.flag("--host-id").map(str::parse) {
        Some(Ok(id)) => id,
        Some(Err(_)) => return Err(wrong("--host-id is no number from 0 to 4294967295")),
        None => host_id(),
    };
    let question = Question { operation, key: key.as_bytes(), host_id, client: None, now_secs };
    let other = words.flag("--diff");
    let (old, assumed) = read(file, prefix, host_id)?;
    let (new, of_other) = other.map(|file| read(file, prefix, host_id)).transpose()?.unzip();
    let of_other = of_other.unwrap_or_default();
    let err = assumed.notes("explain", file) + &of_other.notes("explain", other.unwrap_or(""));
    let said = |out| {
        let out = of_other.named(assumed.named(out));
        Ok(Said { out, err, status: STATUS_GOOD })
    };
    if words.json {
        let json = explain_json::explained(&old, new.as_ref(), &question);
        return said(format!("{json:#}\n"));
    }
    let mut out = String::new();
    let walker = Walker::new(&old);
    for listener in &old.listeners {
        if !listener.name.is_empty() {
            let _ = writeln!(
                out,
                "{}, {}:",
                listener.name,
                listener.listen.as_ref().map_or("", |listen| &listen.address)
            );
        }
        let steps = walker.walk(listener, &question);
        if steps.is_empty() {
            out.push_str("no route for this prefix: SERVER_ERROR\n");
        }
        let bare = steps.first().map(|step| step.key.clone()).unwrap_or_default();
        out.push_str(&tree(&old, &walker, &steps, &bare));
        let server = server_of(&walker, listener, &question);
        let server = server
            .unwrap_or_else(|| "no server, or one that the key alone does not decide".to_owned());
        let _ = writeln!(out, "{name} {key} is answered by {server}");
    }
    if let Some(new) = &new {
        difference(&old, new, &question, &mut out);
    }
    said(out)
}

fn read(file: &str, prefix: Option<&str>, host_id: u32) -> Result<(Config, Assumptions), Said> {
    let (loaded, assumed) = offline::read(Path::new(file), prefix, host_id);
    match loaded {
        Ok(loaded) => Ok((loaded.config, assumed)),
        Err(rejected) => {
            let err = format!("{}\n", rejected.render());
            Err(Said { out: String::new(), err, status: STATUS_BROKEN })
        }
    }
}

fn difference(old: &Config, new: &Config, question: &Question<'_>, out: &mut String) {
    for listener in &old.listeners {
        let Some(other) = new.listeners.iter().find(|other| other.name == listener.name) else {
            let _ = writeln!(out, "\nthe other configuration has no pool '{}'", listener.name);
            continue;
        };
        let moves = sample((old, listener), (new, other), question);
        let moved = moves.iter().filter(|((from, to), _)| from != to).map(|(_, count)| count).sum();
        let share = |count: u32| f64::from(count) / f64::from(SAMPLE);
        let (low, high) = exact_interval(moved, SAMPLE);
        let percent = |share: f64| share * 100.0;
        let _ = writeln!(
            out,
            "\n{:.2} % of keys move ({moved} of {SAMPLE}; with 95 % certainty {:.2} to {:.2} %)",
            percent(share(moved)),
            percent(low),
            percent(high)
        );
        servers(&moves, out);
        let mut listed: Vec<_> = moves.iter().filter(|((from, to), _)| from != to).collect();
        listed.sort_by_key(|(names, count)| (std::cmp::Reverse(**count), *names));
        if !listed.is_empty() {
            out.push_str("\nmoves\n");
        }
        for ((from, to), count) in listed.iter().take(MOVES_SHOWN) {
            let _ = writeln!(out, "  {:6.2} %  {from} -> {to}", percent(share(**count)));
        }
        if listed.len() > MOVES_SHOWN {
            let _ = writeln!(out, "  and {} more", listed.len() - MOVES_SHOWN);
        }
    }
}

/// The load of each server, before and after.
fn servers(moves: &Moves, out: &mut String) {
    let mut loads: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for ((from, to), count) in moves {
        loads.entry(from).or_default().0 += count;
        loads.entry(to).or_default().1 += count;
    }
    let widest = loads.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let most = loads.values().map(|(old, new)| old.max(new)).max().copied().unwrap_or(1);
    let _ = writeln!(out, "\n{:widest$}   before    after", "server");
    for (name, (old, new)) in loads {
        let share = |count: u32| f64::from(count) * 100.0 / f64::from(SAMPLE);
        let length = |count: u32| f64::from(count) / f64::from(most.max(1));
        let _ = writeln!(out, "{name:widest$} {:6.2} %          {}", share(old), bar(length(old)));
        let _ = writeln!(out, "{:widest$}          {:6.2} % {}", "", share(new), bar(length(new)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn control_characters_in_names_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.json");
        let text = r#"{"pools": {"A\u001b[31m": {"servers": ["127.0.0.1:1"]}},
            "route": "PoolRoute|A\u001b[31m"}"#;
        fs::write(&file, text).unwrap();
        let words = ["key", "--config", file.to_str().unwrap()].map(str::to_owned);
        let said = explain(words.into_iter());
        assert!(said.err.contains("A\u{fffd}[31m"), "{said:?}");
        assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{said:?}");
    }

    fn explained(route: &str, more: &[&str]) -> Said {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.json");
        let pool = |name, port| format!(r#""{name}": {{"servers": ["127.0.0.1:{port}"]}}"#);
        let pools: Vec<_> =
            [("A", 1), ("B", 2), ("C", 3)].map(|(name, port)| pool(name, port)).into();
        let text = format!(r#"{{"pools": {{{}}}, "route": {route}}}"#, pools.join(", "));
        fs::write(&file, text).unwrap();
        let words = ["u:7:x", "--config", file.to_str().unwrap()];
        explain(words.iter().chain(more).map(|word| (*word).to_owned()))
    }

    /// A route that chooses by the host says for which one.
    #[test]
    fn the_host_id_is_this_hosts_or_the_given_one() {
        let all = r#"["PoolRoute|A", "PoolRoute|B", "PoolRoute|C"]"#;
        let by_host = format!(r#"{{"type": "HostIdRoute", "children": {all}}}"#);
        let split = r#"{"7": 3}"#;
        let cases = [
            (by_host, "2 of 3 by host id"),
            (
                r#"{"type": "KeySplitRoute", "destination": "PoolRoute|A", "replicas": 3, "all_sync": false}"#.into(),
                "replica 1 of 3 by host id",
            ),
            (
                format!(
                    r#"{{"type": "ShardSplitRoute", "destination": "PoolRoute|A",
                        "shard_splits": {split}}}"#
                ),
                "shard name 1 of 3 by host id",
            ),
            (
                format!(r#"{{"type": "PoolRoute", "pool": "A", "shard_splits": {split}}}"#),
                "shard name 1 of 3 by host id",
            ),
        ];
        for (route, note) in cases {
            let said = explained(&route, &["--host-id", "100"]);
            assert!(said.out.contains(&format!("{note} 100")), "{said:?}");
            let own = explained(&route, &[]);
            assert!(own.out.contains(&format!(" by host id {}", host_id())), "{own:?}");
        }
        assert_eq!(explained(r#""NullRoute""#, &["--host-id", "x"]).status, usage::EXIT_USAGE);
    }

    /// The prefixes lead to one route, also to that of the wildcard.
    #[test]
    fn the_longest_prefix_of_the_key_is_named() {
        let policies = r#""s:": "PoolRoute|A", "u:": "PoolRoute|A", "u:7": "PoolRoute|A""#;
        for (wildcard, policies, note) in [
            ("PoolRoute|B", policies, "prefix 'u:7'"),
            ("PoolRoute|A", policies, "prefix 'u:7'"),
            ("PoolRoute|A", r#""s:": "PoolRoute|A""#, "wildcard"),
        ] {
            let route = format!(
                r#"{{"type": "PrefixSelectorRoute", "policies": {{{policies}}},
                    "wildcard": "{wildcard}"}}"#
            );
            let said = explained(&route, &[]);
            assert!(said.out.contains(&format!("PrefixSelectorRoute: {note}")), "{said:?}");
        }
    }

    /// A store never goes to the second child.
    #[test]
    fn only_gets_and_deletes_go_on_after_a_miss() {
        let route = r#"{"type": "MissFailoverRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
        for (operation, goes_on) in
            [("get", true), ("lease-get", true), ("delete", true), ("set", false), ("incr", false)]
        {
            let said = explained(route, &["--op", operation]);
            let second = said.out.contains("if that misses or fails: PoolRoute: pool 'B'");
            assert_eq!(second, goes_on, "{said:?}");
            assert_eq!(said.out.contains("pool 'B'"), goes_on, "{said:?}");
        }
    }

    /// A warm cluster is read by `get`, and a new one gets conditional stores as `set`.
    #[test]
    fn the_command_behind_a_change_of_clusters_is_the_sent_one() {
        let by_command = |special| {
            format!(
                r#"{{"type": "OperationSelectorRoute", "default_policy": "PoolRoute|B",
                    "operation_policies": {{"{special}": "PoolRoute|C"}}}}"#
            )
        };
        let warm_up = |special| {
            let warm = by_command(special);
            format!(r#"{{"type": "WarmUpRoute", "cold": "PoolRoute|A", "warm": {warm}}}"#)
        };
        let staging = |special| {
            let staging = by_command(special);
            format!(r#"{{"type": "StagingRoute", "warm": "PoolRoute|A", "staging": {staging}}}"#)
        };
        for (route, operation, pool) in [
            (warm_up("gets"), "gets", 'B'),
            (warm_up("get"), "gets", 'C'),
            (staging("add"), "add", 'B'),
            (staging("set"), "add", 'C'),
            (staging("incr"), "incr", 'C'),
        ] {
            let said = explained(&route, &["--op", operation]);
            for other in ['B', 'C'] {
                let is_asked = said.out.contains(&format!("pool '{other}'"));
                assert_eq!(is_asked, other == pool, "{operation}: {said:?}");
            }
        }
    }

    #[test]
    fn a_meta_command_has_a_hint_to_its_classic_form() {
        let said = explained(r#""NullRoute""#, &["--op", "mg"]);
        assert!(said.err.contains("'mg'; name the classic form"), "{said:?}");
        let said = explained(r#""NullRoute""#, &["--op", "nothing"]);
        assert!(!said.err.contains("classic"), "{said:?}");
    }

    /// The proxy may choose another server by its file of runtime variables.
    #[test]
    fn a_choice_by_a_runtime_variable_says_that_it_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.json");
        for (setting, choice) in [
            (r#""weights_rv": "w""#, "1 of 2"),
            (r#""hash": {"hash_func": "WeightedCh3Rv", "weights_rv": "w"}"#, "server 1 of 1"),
        ] {
            let text = format!(
                r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:1"]}}}},
                    "route": {{"type": "PoolRoute", "pool": "A", {setting}}}}}"#
            );
            fs::write(&file, text).unwrap();
            let words = ["key", "--config", file.to_str().unwrap()].map(str::to_owned);
            let said = explain(words.into_iter());
            let note = format!("{choice} by WeightedCh3Rv (without the runtime variable 'w')");
            assert!(said.out.contains(&note), "{said:?}");
        }
    }
}
