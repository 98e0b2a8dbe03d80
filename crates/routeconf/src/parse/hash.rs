//! `hash`, `hash_func` and their parameters.

use hashing::key::HASH_STOP;
use hashing::{KeyHash, PlacementError, seed_of};
use indexmap::IndexMap;

use super::Builder;
use super::fields::{Fields, as_number};
use crate::ast::{Hash, HashFunction, KeyPart, Pool, PoolWeights};
use crate::json::{Node, Value};
use crate::source::{At, Diagnostic, Fallible, fail};

const FUNCTIONS: [&str; 11] = [
    "Ch3",
    "ConstShard",
    "Crc32",
    "Jump",
    "Ketama",
    "KetamaWeighted",
    "Modula",
    "Rendezvous",
    "WeightedCh3",
    "WeightedCh3Rv",
    "WeightedRendezvous",
];

impl Builder<'_> {
    /// The hash of a `PoolRoute`: its `hash` overrides the weights and tags of the pool.
    pub(super) fn pool_hash(&mut self, own: Option<&Node>, pool: &Pool, at: At) -> Fallible<Hash> {
        let mut members = IndexMap::new();
        let place = own.map_or(at, |own| own.at);
        if let Some(weights) = &pool.weights {
            let number = |weight: &f64| Node { value: Value::Float(*weight), at: pool.at };
            members.insert("hash_func".into(), Node::string("WeightedCh3", place));
            let weights = match weights {
                PoolWeights::ByPlace(weights) => {
                    Node::array(weights.iter().map(number).collect(), pool.at)?
                }
                PoolWeights::ByTag(weights) => {
                    let weights =
                        weights.iter().map(|(tag, one)| (tag.as_str().into(), number(one)));
                    Node::object(weights.collect(), pool.at)?
                }
            };
            members.insert("weights".into(), weights);
        }
        if let Some(tags) = &pool.tags {
            let tags = tags.iter().map(|tag| Node::string(tag, pool.at)).collect();
            members.insert("tags".into(), Node::array(tags, pool.at)?);
        }
        match own.map(|own| (&own.value, own)) {
            None => {}
            Some((Value::String(name), own)) => {
                members.insert("hash_func".into(), Node::string(name, own.at));
            }
            Some((Value::Object(map), _)) => {
                members
                    .extend(map.members().iter().map(|(name, node)| (name.clone(), node.clone())));
            }
            Some((other, own)) => {
                return fail(
                    own.at,
                    format!("'hash' is a string or an object, not {}", other.kind()),
                );
            }
        }
        let merged = Node::object(members, place)?;
        let fields = Fields::new(&merged, "'hash'")?;
        let hash = self.hash(&fields, pool.members.len(), Some(pool))?;
        // Another route may use those of the pool, but nothing else reads those of 'hash'.
        let own = own.and_then(Node::as_object);
        for name in ["weights", "tags"] {
            if own.is_none_or(|own| own.get(name).is_none()) {
                fields.known(&[name]);
            }
        }
        fields.finish(&mut self.findings);
        Ok(hash)
    }

    /// A hash over `children` children, from the members of a `HashRoute` or of `hash`.
    pub(super) fn hash(
        &mut self,
        fields: &Fields<'_>,
        children: usize,
        pool: Option<&Pool>,
    ) -> Fallible<Hash> {
        let salt = fields.text("salt")?.unwrap_or_default().to_owned();
        let at = fields.place("hash_func");
        let name = fields.text("hash_func")?.unwrap_or("Ch3");
        let function = match name {
            "Ch3" => HashFunction::Ch3,
            "ConstShard" => HashFunction::ConstShard,
            "Crc32" => HashFunction::Crc32,
            "Jump" => HashFunction::Jump { seed: seed(fields)? },
            "Modula" => HashFunction::Modula { hash: key_hash(fields, KeyHash::OneAtATime)? },
            "Ketama" | "KetamaWeighted" => {
                if !pool.is_some_and(is_addresses) {
                    return fail(
                        at,
                        format!(
                            "{name} needs a pool whose members are all servers with host and port"
                        ),
                    );
                }
                let weighted = name == "KetamaWeighted";
                let default = if weighted { KeyHash::Md5 } else { KeyHash::OneAtATime };
                let weights = weighted.then(|| ketama_weights(fields, children)).transpose()?;
                HashFunction::Ketama { hash: key_hash(fields, default)?, weights }
            }
            "Rendezvous" => HashFunction::Rendezvous { tags: tags(fields, children)? },
            "WeightedCh3" => HashFunction::WeightedCh3 { weights: self.weights(fields, children)? },
            "WeightedCh3Rv" => {
                let variable = fields.need_text("weights_rv")?.to_owned();
                HashFunction::WeightedCh3Rv { variable, without: vec![1.0; children] }
            }
            "WeightedRendezvous" => {
                let tags = tags(fields, children)?;
                HashFunction::WeightedRendezvous { servers: self.tag_weights(fields, tags)? }
            }
            other => return Err(Box::new(unknown_function(other, at))),
        };
        let key_part = match function {
            HashFunction::Jump { .. }
            | HashFunction::Ketama { .. }
            | HashFunction::Modula { .. } => filter(fields)?,
            _ => KeyPart::BeforeHashStop,
        };
        let hash = Hash { function, salt, key_part, buckets: None };
        let addresses = pool.map(Pool::hosts).unwrap_or_default();
        match hash.placement(children, &addresses) {
            Ok(_) | Err(PlacementError::Empty) => Ok(hash),
            Err(error) => {
                fail(fields.place("weights"), format!("{name} of {}: {error}", fields.what))
            }
        }
    }

    /// One weight for each child; mcrouter uses 0.5 for missing ones.
    fn weights(&mut self, fields: &Fields<'_>, children: usize) -> Fallible<Vec<f64>> {
        fields.need("weights")?;
        let mut weights = fields.numbers("weights")?.unwrap_or_default();
        if weights.len() != children {
            let (at, what) = (fields.place("weights"), &fields.what);
            let message = format!(
                "'weights' of {what} has {} entries for {children} children; missing ones count 0.5",
                weights.len()
            );
            self.warn(at, message);
        }
        weights.resize(children, 0.5);
        Ok(weights)
    }

    /// `weights` by tag.
    fn tag_weights(
        &mut self,
        fields: &Fields<'_>,
        tags: Vec<String>,
    ) -> Fallible<Vec<(String, f64)>> {
        fields.need("weights")?;
        let by_tag = fields.object("weights")?;
        let mut found = Vec::with_capacity(tags.len());
        for tag in tags {
            let weight = match by_tag.and_then(|weights| weights.get(&tag)) {
                Some(node) => match as_number(node) {
                    Some(weight) => weight,
                    None => {
                        return fail(
                            node.at,
                            format!("the weight of '{tag}' is a number, not {}", node.value.kind()),
                        );
                    }
                },
                None => {
                    self.warn(
                        fields.place("weights"),
                        format!("there is no weight for the tag '{tag}'; it counts 0.5"),
                    );
                    0.5
                }
            };
            found.push((tag, weight));
        }
        Ok(found)
    }
}

/// libmemcached's weights: whole numbers, one for each server. None: all are equal.
fn ketama_weights(fields: &Fields<'_>, children: usize) -> Fallible<Vec<u32>> {
    let Some(given) = fields.list("weights")? else { return Ok(Vec::new()) };
    if given.len() != children {
        let message = format!(
            "'weights' of {} has {} entries for {children} servers; KetamaWeighted needs one for each",
            fields.what,
            given.len()
        );
        return fail(fields.place("weights"), message);
    }
    let weight = |node: &Node| match as_number(node) {
        Some(number) if number.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&number) =>
        {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            Ok(number as u32)
        }
        _ => fail(node.at, "a weight of KetamaWeighted is a whole number from 1".to_owned()),
    };
    given.iter().map(weight).collect()
}

fn unknown_function(name: &str, at: At) -> Diagnostic {
    if matches!(name, "Latest" | "LoadBalancer") {
        let error = Diagnostic::error(at, format!("'{name}' is no function of the key"));
        return error.hint(format!("use a {name}Route over 'Pool|NAME'"));
    }
    let error = Diagnostic::error(at, format!("there is no hash function '{name}'"));
    error.hint(format!("known are {}", FUNCTIONS.join(", "))).meant(name, FUNCTIONS)
}

/// A number, or a text as in memcached's proxy: its XXH3.
fn seed(fields: &Fields<'_>) -> Fallible<u64> {
    match fields.get("seed").map(|node| &node.value) {
        Some(Value::String(text)) => Ok(seed_of(text.as_bytes())),
        _ => Ok(fields.natural("seed")?.unwrap_or(0)),
    }
}

/// The `filter` and `filter_conf` of memcached's proxy. Without one, a key counts up to mcrouter's
/// hash stop, as with every other function; in memcached's proxy and in libmemcached it counts
/// whole, which is `none` here.
fn filter(fields: &Fields<'_>) -> Fallible<KeyPart> {
    let conf = fields.text("filter_conf")?;
    let wrong = |what: &str| fail(fields.place("filter_conf"), what.to_owned());
    match (fields.text("filter")?, conf.map(str::as_bytes)) {
        (None, None) | (Some("stop"), None | Some(HASH_STOP)) => Ok(KeyPart::BeforeHashStop),
        (Some("stop"), Some([])) => {
            wrong("'filter_conf' of a stop is a text, \"|#|\" for instance")
        }
        (Some("stop"), _) => Ok(KeyPart::Before(conf.unwrap_or_default().into())),
        (Some("none"), None) => Ok(KeyPart::Whole),
        (Some("tags"), Some([open, close])) if open != close => Ok(KeyPart::Tags([*open, *close])),
        (Some("tags"), _) => {
            wrong("'filter_conf' of tags is two different characters, as in \"{}\"")
        }
        (None, _) => wrong("'filter_conf' belongs to a 'filter'"),
        (Some("none"), _) => wrong("the filter 'none' has no 'filter_conf'"),
        (Some(other), _) => {
            let error = format!("there is no 'filter' '{other}'");
            let error = Diagnostic::error(fields.place("filter"), error);
            Err(Box::new(error.hint("known are none, stop and tags")))
        }
    }
}

fn key_hash(fields: &Fields<'_>, default: KeyHash) -> Fallible<KeyHash> {
    let Some(name) = fields.text("key_hash")? else { return Ok(default) };
    if let Some(hash) = KeyHash::by_name(name) {
        return Ok(hash);
    }
    let error =
        Diagnostic::error(fields.place("key_hash"), format!("there is no hash '{name}' of keys"));
    let known = KeyHash::ALL.into_iter().map(|(name, _)| name);
    let list = known.clone().collect::<Vec<_>>().join(", ");
    Err(Box::new(error.hint(format!("known are {list}")).meant(name, known)))
}

fn tags(fields: &Fields<'_>, children: usize) -> Fallible<Vec<String>> {
    fields.need("tags")?;
    let tags = fields.texts("tags")?.unwrap_or_default();
    if tags.len() == children {
        return Ok(tags);
    }
    let message =
        format!("'tags' of {} has {} entries for {children} children", fields.what, tags.len());
    fail(fields.place("tags"), message)
}

fn is_addresses(pool: &Pool) -> bool {
    pool.hosts().len() == pool.members.len()
}
