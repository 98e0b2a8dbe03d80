//! Choices that depend only on the request: shared by the router and `explain`.

use hashing::key::{before_hash_stop, shard};
use hashing::spooky_hash32;

use crate::ast::{Command, CommandClass, Config, Entry, Listener, Route, RouteId, ShardSplit};

/// True if mcrouter's pattern (`/*/*/`, `/us/*/`, `/b*/*/`) matches the prefix.
#[must_use]
pub fn prefix_matches(pattern: &[u8], prefix: &[u8]) -> bool {
    let (mut at, mut from) = ((0, 0), None);
    loop {
        match (pattern.get(at.0), prefix.get(at.1)) {
            (Some(b'*'), _) => {
                from = Some(at);
                at.0 += 1;
            }
            (Some(wanted), Some(found)) if wanted == found => at = (at.0 + 1, at.1 + 1),
            (None, None) => return true,
            (_, found) => {
                // A star matches one more byte, except slashes: it stands for a part of a region or
                // cluster.
                let Some((star, start)) = from else { return false };
                if prefix.get(start).is_none_or(|byte| *byte == b'/')
                    || (found.is_none() && start >= prefix.len())
                {
                    return false;
                }
                from = Some((star, start + 1));
                at = (star + 1, start + 1);
            }
        }
    }
}

impl Config {
    /// The routes for a key without prefix, or with this one: the first one replies, the others are
    /// asked in the background. Empty if the prefix has no route; mcrouter then answers with an
    /// error.
    #[must_use]
    pub fn targets(&self, listener: &Listener, prefix: &[u8]) -> Vec<RouteId> {
        let prefixes = match &listener.entry {
            Entry::Plain(route) => return vec![*route],
            Entry::Prefixes(prefixes) => prefixes,
        };
        let default = self.default_route.as_bytes();
        let exact = |wanted: &[u8]| {
            prefixes.iter().find(|entry| entry.prefix.as_bytes() == wanted).map(|entry| entry.route)
        };
        if prefix.is_empty() {
            return exact(default).into_iter().collect();
        }
        if !prefix.contains(&b'*') {
            return exact(prefix).or_else(|| exact(&fallback(prefix))).into_iter().collect();
        }
        let own = prefixes.iter().filter(|entry| entry.prefix.as_bytes() == default);
        let others = prefixes.iter().filter(|entry| entry.prefix.as_bytes() != default);
        let mut found = Vec::new();
        for entry in own.chain(others) {
            if prefix_matches(prefix, entry.prefix.as_bytes()) && !found.contains(&entry.route) {
                found.push(entry.route);
            }
        }
        found
    }
}

/// `/region/fallback/`, which replaces missing clusters.
fn fallback(prefix: &[u8]) -> Vec<u8> {
    let region = prefix.splitn(3, |byte| *byte == b'/').nth(1).unwrap_or_default();
    [b"/", region, b"/fallback/"].concat()
}

/// `PrefixSelectorRoute`: the policy of the longest prefix of the key. The policies are in
/// ascending order: a prefix of the key precedes the key, and a longer one follows a shorter one.
#[must_use]
pub fn longest_prefix<'p, P: AsRef<[u8]>, R>(
    policies: &'p [(P, R)],
    key: &[u8],
) -> Option<&'p (P, R)> {
    let end = policies.partition_point(|(prefix, _)| prefix.as_ref() <= key);
    policies.iter().take(end).rev().find(|(prefix, _)| key.starts_with(prefix.as_ref()))
}

/// The route of a command, or of a class of commands.
#[must_use]
pub fn policy<'p, K: PartialEq, R>(policies: &'p [(K, R)], wanted: &K) -> Option<&'p R> {
    policies.iter().find(|(known, _)| known == wanted).map(|(_, route)| route)
}

/// A number for a host that differs with `salt`.
#[must_use]
pub fn salted(host_id: u32, salt: &str) -> u32 {
    if salt.is_empty() { host_id } else { spooky_hash32(format!("{host_id}{salt}").as_bytes(), 0) }
}

/// `KeySplitRoute`: the key under the name of a replica; replica 0 has the plain name. `None` if it
/// becomes too long.
#[must_use]
pub fn key_replica(key: &[u8], replica: u32) -> Option<Vec<u8>> {
    let name = match replica {
        0 => key.to_vec(),
        _ => [key, format!("::{replica}").as_bytes()].concat(),
    };
    (name.len() <= proto::KEY_BYTES_MAX).then_some(name)
}

/// The names of a key of a `KeySplitRoute` that receive a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replicas {
    /// That of this host.
    Own,
    /// All of them; this host's gives the reply, and the others are not waited for.
    All,
    /// All of them; the first that has or accepts the value replies.
    FirstHit,
}

/// `KeySplitRoute`: the names that receive a command. A unique and a token are valid only for their
/// own name, and an item may exist under only some names, so only commands that depend on neither
/// go to all.
#[must_use]
pub const fn replicas_asked(operation: Command, all_sync: bool, first_hit: bool) -> Replicas {
    match operation {
        Command::Delete | Command::MetaDelete => Replicas::All,
        Command::Set if all_sync => Replicas::All,
        Command::Get | Command::LeaseGet | Command::LeaseSet if first_hit => Replicas::FirstHit,
        _ => Replicas::Own,
    }
}

/// `KeySplitRoute`: the replica of a host; the plain name's, if the key is too long for its own.
#[must_use]
pub fn own_replica(key: &[u8], replicas: u32, host_id: u32) -> u32 {
    let own = host_id.checked_rem(replicas).unwrap_or(0);
    if key_replica(key, own).is_some() { own } else { 0 }
}

/// `KeyParseRoute`: the length of the key's first `parts`, the only hashed ones. `None` if it has
/// no more than these.
#[inline]
#[must_use]
pub fn first_parts(key: &[u8], delimiter: &[u8], parts: usize) -> Option<usize> {
    memchr::memmem::find_iter(key, delimiter).nth(parts.checked_sub(1)?)
}

/// `HashStopAllowListRoute`: the answer to a key that has a hash stop and no prefix of the list, in
/// mcrouter's spelling.
pub const STOP_REFUSED: &str = "Hash stop not permited";

/// `HashStopAllowListRoute`: the hashed bytes of a key; `hashed` are those of an earlier route. A
/// key in the list that has a hash stop counts up to it also where whole keys are hashed. A delete
/// is never refused: an invalidator would repeat it for ever.
///
/// # Errors
///
/// [`STOP_REFUSED`].
pub fn allowed_part<P: AsRef<[u8]>>(
    class: CommandClass,
    key: &[u8],
    prefixes: &[P],
    hashed: Option<usize>,
) -> Result<Option<usize>, &'static str> {
    let before_stop = before_hash_stop(key).len();
    if before_stop == key.len() {
        return Ok(hashed);
    }
    let is_listed = prefixes.iter().any(|prefix| key.starts_with(prefix.as_ref()));
    match class {
        _ if is_listed => Ok(hashed.or(Some(before_stop))),
        CommandClass::Delete => Ok(Some(key.len())),
        _ => Err(STOP_REFUSED),
    }
}

/// `ShardSplitRoute`: the split of the key's shard.
#[must_use]
pub fn shard_split<'s>(splits: &'s [(String, ShardSplit)], key: &[u8]) -> Option<&'s ShardSplit> {
    let shard = shard(key)?;
    splits.iter().find(|(known, _)| known.as_bytes() == shard).map(|(_, split)| split)
}

/// Returns true if a command goes to all names of a split shard, not only to this host's.
#[must_use]
pub fn goes_to_all_names(split: &ShardSplit, class: CommandClass) -> bool {
    split.fanout_deletes && class == CommandClass::Delete
}

/// The maximum number of a shard's names before, during and after its split.
#[must_use]
pub fn names_at_most(split: &ShardSplit) -> u32 {
    split.old_size.max(split.new_size)
}

/// The current number of a shard's names, as seen from this host.
#[must_use]
pub fn split_size(split: &ShardSplit, host_id: u32, now_secs: u64) -> u32 {
    const HOSTS: u32 = 16_384;
    if now_secs < split.start {
        return split.old_size;
    }
    let gone = now_secs - split.start;
    if gone > split.migration_secs || split.migration_secs == 0 {
        return split.new_size;
    }
    let point = gone as f64 / split.migration_secs as f64;
    let place = f64::from(host_id % HOSTS) / f64::from(HOSTS);
    if place < point { split.new_size } else { split.old_size }
}

/// The key with its shard under its name number `name`: `aa`, `ba`, ... follow the shard id. `None`
/// for the plain name, which is number 0, and that of a key that would become too long. Requests of
/// it pass unchanged, as in mcrouter, so that all commands hash the same part of it.
#[must_use]
pub fn shard_name(key: &[u8], name: u32) -> Option<Vec<u8>> {
    let mut parts = key.splitn(3, |byte| *byte == b':');
    let offset = name.checked_sub(1)?;
    let (prefix, shard, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let letter = |number: u32| b"abcdefghijklmnopqrstuvwxyz"[(number % 26) as usize];
    let suffix = [letter(offset), letter(offset / 26)];
    let named = [prefix, b":", shard, &suffix, b":", rest].concat();
    (named.len() <= proto::KEY_BYTES_MAX).then_some(named)
}

/// `MigrateRoute`: whether `from` and `to` receive a key, of which this part is hashed. A key moves
/// at `start + interval + hash % interval`; deletes go to both from the start until all keys have
/// moved.
#[must_use]
pub fn migrate(
    hashed: &[u8],
    operation: Command,
    now_secs: u64,
    start: u64,
    interval: u64,
) -> (bool, bool) {
    let hash = u64::from(hashing::routing_hash(hashed));
    let moves =
        start.saturating_add(interval).saturating_add(hash.checked_rem(interval).unwrap_or(0));
    let ends = start.saturating_add(interval.saturating_mul(2));
    if operation.class() == CommandClass::Delete && (start..ends).contains(&now_secs) {
        return (true, true);
    }
    (now_secs < moves, now_secs >= moves)
}

/// `ModifyKeyRoute`: the key for its target, without its routing prefix.
#[must_use]
pub fn modify_bare_key(bare: &[u8], change: &crate::ast::KeyChange) -> Vec<u8> {
    let ensure = change.ensure_key_prefix.as_bytes();
    let replaced = change.replace_key_prefix.as_ref();
    let rest = match replaced.and_then(|old| bare.strip_prefix(old.as_bytes())) {
        Some(rest) => rest,
        None if change.modify_inplace => bare.get(ensure.len()..).unwrap_or(bare),
        None => bare.strip_prefix(ensure).unwrap_or(bare),
    };
    [ensure, rest, change.set_key_suffix.as_bytes()].concat()
}

/// The children of a route in any role, except pools' members.
#[must_use]
pub fn children(route: &Route) -> Vec<RouteId> {
    match route {
        Route::AllAsync(all)
        | Route::AllFastest(all)
        | Route::AllInitial(all)
        | Route::AllMajority(all)
        | Route::AllSync(all)
        | Route::Random(all) => all.clone(),
        Route::BigValue { target, .. }
        | Route::HashStopAllowList { target, .. }
        | Route::KeyParse { target, .. }
        | Route::ModifyExptime { target, .. }
        | Route::OutstandingLimit { target, .. } => vec![*target],
        Route::Blackhole { default, child, .. } => child.iter().chain([default]).copied().collect(),
        Route::Destination { .. } | Route::DevNull | Route::Error { .. } | Route::Null => {
            Vec::new()
        }
        Route::Failover(failover) => failover.children.clone(),
        Route::Hash { children, .. }
        | Route::HostId { children, .. }
        | Route::MissFailover { children, .. }
        | Route::OriginalClientHash { children, .. } => children.clone(),
        Route::KeySplit { destination, .. } | Route::ShardSplit { destination, .. } => {
            vec![*destination]
        }
        Route::L1L2Cache { l1, l2, .. } => vec![*l1, *l2],
        Route::L1L2SizeSplit(split) => vec![split.l1, split.l2],
        Route::LatencyInjection(latency) => vec![latency.child],
        Route::Latest(latest) => latest.children.clone(),
        Route::LoadBalancer(balancer) => balancer.children.clone(),
        Route::Logging { target } => target.iter().copied().collect(),
        Route::Migrate { from, to, .. } => vec![*from, *to],
        Route::ModifyKey(rule) => vec![rule.target],
        Route::OperationSelector { default, policies } => {
            policies.iter().map(|(_, route)| *route).chain(*default).collect()
        }
        Route::Pool(pool) => {
            let shadows = pool.shadows.iter().map(|shadow| shadow.target);
            shadows.chain(pool.slow_warmup.iter().map(|(target, _)| *target)).collect()
        }
        Route::PrefixSelector { policies, wildcard } => {
            policies.iter().map(|(_, route)| *route).chain(*wildcard).collect()
        }
        Route::RateLimit { target, fallback, .. } => {
            fallback.iter().chain([target]).copied().collect()
        }
        Route::RoutingGroup { default, policies } => {
            policies.iter().map(|(_, route)| *route).chain(*default).collect()
        }
        Route::Shadow { child, shadows, .. } => {
            shadows.iter().map(|shadow| shadow.target).chain([*child]).collect()
        }
        Route::SlowWarmUp { target, failover_target, .. } => vec![*target, *failover_target],
        Route::Staging { warm, staging } => vec![*warm, *staging],
        Route::WarmUp(warm_up) => vec![warm_up.warm, warm_up.cold],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_within_a_part_of_a_prefix() {
        for (pattern, prefix, matches) in [
            ("/*/*/", "/us/east/", true),
            ("/us/*/", "/us/east/", true),
            ("/us/*/", "/eu/east/", false),
            ("/b*/*/", "/bx/c/", true),
            ("/b*/*/", "/ab/c/", false),
            ("/*/", "/a/b/", false),
            ("/a*c/x/", "/abbc/x/", true),
            ("/a*c/x/", "/abb/x/", false),
            ("/*/e*t/", "/u/east/", true),
            ("/a*b/", "/a/b/", false),
            ("/*", "/a/b/", false),
            ("/*/*/*/", "/a/b/", false),
            ("", "", true),
            ("/a/b/", "/a/b", false),
        ] {
            assert_eq!(
                prefix_matches(pattern.as_bytes(), prefix.as_bytes()),
                matches,
                "{pattern} {prefix}"
            );
        }
    }

    /// The expected results are those in mcrouter's own test of the route.
    #[test]
    fn key_changes_match_mcrouter() {
        use crate::ast::KeyChange;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let ensure = |ensure_key_prefix: &str| KeyChange {
            ensure_key_prefix: ensure_key_prefix.to_owned(),
            ..KeyChange::default()
        };
        let in_place = KeyChange { modify_inplace: true, ..ensure("foo") };
        for (key, want) in [("a", "fooa"), ("abcd", "food"), ("abc", "foo"), ("food", "food")] {
            assert_eq!(text(modify_bare_key(key.as_bytes(), &in_place)), want, "{key}");
        }
        let replace = KeyChange { replace_key_prefix: Some("bar".into()), ..ensure("foo") };
        for (key, want) in [("bar1", "foo1"), ("foo1", "foo1"), ("1", "foo1")] {
            assert_eq!(text(modify_bare_key(key.as_bytes(), &replace)), want, "{key}");
        }
        let always = KeyChange { replace_key_prefix: Some(String::new()), ..ensure("foo") };
        assert_eq!(text(modify_bare_key(b"foo1", &always)), "foofoo1");
    }

    #[test]
    fn shard_names_and_split_sizes() {
        let text = |name| String::from_utf8(name).unwrap();
        let name = |number| shard_name(b"p:7:rest:x", number).map(text);
        assert_eq!(name(0), None);
        assert_eq!(
            [name(1), name(2), name(27)].map(Option::unwrap),
            ["p:7aa:rest:x", "p:7ba:rest:x", "p:7ab:rest:x"]
        );
        let long = |rest| [b"p:7:", &vec![b'x'; rest][..]].concat();
        assert!(shard_name(&long(244), 1).is_some());
        assert_eq!(shard_name(&long(245), 1), None);
        let split = ShardSplit {
            old_size: 2,
            new_size: 8,
            start: 1000,
            migration_secs: 100,
            fanout_deletes: true,
        };
        let sizes = [999, 1000, 1050, 1101]
            .map(|now| (split_size(&split, 0, now), split_size(&split, 16_383, now)));
        assert_eq!(sizes, [(2, 2), (2, 2), (8, 2), (8, 8)]);
    }

    #[test]
    fn a_key_migrates_once() {
        let at = |now, operation| migrate(b"key", operation, now, 1000, 3600);
        assert_eq!(at(0, Command::Get), (true, false));
        assert_eq!(at(0, Command::Delete), (true, false));
        assert_eq!(at(1000, Command::Delete), (true, true));
        assert_eq!(at(8199, Command::Delete), (true, true));
        assert_eq!(at(8200, Command::Delete), (false, true));
        let moved = (0..9000).find(|now| at(*now, Command::Get).1).unwrap();
        assert!((4600..8200).contains(&moved), "{moved}");
    }
}
