//! The built-in macros that iterate over lists and objects.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::json::{Map, Node, Value};
use crate::macros::builtins::{object, order};
use crate::macros::{Expander, Scope};
use crate::source::{At, Fallible, fail};

/// Objects and lists alike: keys (names or places) with their items.
fn entries(node: &Node, what: &str) -> Fallible<Vec<(Node, Node)>> {
    match &node.value {
        Value::Array(list) => {
            let items = (0_i64..).zip(list.items());
            Ok(items.map(|(place, item)| (Node::int(place, item.at), item.clone())).collect())
        }
        Value::Object(map) => {
            let members = map.members().iter();
            Ok(members.map(|(name, item)| (Node::string(name, item.at), item.clone())).collect())
        }
        other => fail(node.at, format!("{what} takes an object or a list, not {}", other.kind())),
    }
}

fn member<'m>(map: &'m Map, name: &str, at: At) -> Fallible<&'m Node> {
    map.get(name).map_or_else(|| fail(at, format!("the parameter '{name}' is missing")), Ok)
}

/// The name in a parameter such as `itemName`.
fn name_of<'m>(map: &'m Map, param: &str, default: &'m str) -> Fallible<&'m str> {
    match map.get(param) {
        None => Ok(default),
        Some(node) => match node.as_str() {
            Some(name) => Ok(name),
            None => fail(node.at, format!("'{param}' is a string, not {}", node.value.kind())),
        },
    }
}

impl Expander<'_> {
    /// A loop's scope, with these names to be set.
    fn loop_scope<'o>(outer: &'o Scope<'o>, names: &[&str], at: At) -> Fallible<Scope<'o>> {
        let scope = Scope::inside(outer);
        for name in names {
            scope.add_ready(name, Node { value: Value::Null, at }, at)?;
        }
        Ok(scope)
    }

    /// `transform`: replaces the key and the item of each entry.
    pub(super) fn transform(&mut self, map: &Map, at: At, outer: &Scope<'_>) -> Fallible<Node> {
        let dictionary = self.expand(member(map, "dictionary", at)?, outer)?;
        let item_transform = map.get("itemTransform");
        let key_transform = map.get("keyTransform");
        let item_name = name_of(map, "itemName", "item")?;
        let key_name = name_of(map, "keyName", "key")?;
        let scope = Self::loop_scope(outer, &[key_name, item_name], at)?;
        let is_list = dictionary.as_array().is_some();
        let mut items = Vec::new();
        let mut members: Vec<(Arc<str>, Node)> = Vec::new();
        let entries = entries(&dictionary, "transform")?;
        self.charge(entries.len() as u64, at)?;
        for (key, item) in entries {
            scope.set(key_name, key.clone());
            scope.set(item_name, item.clone());
            if is_list {
                let Some(transform) = item_transform else {
                    return fail(at, "the parameter 'itemTransform' is missing");
                };
                items.push(self.expand(transform, &scope)?);
                continue;
            }
            let key = key_transform.map_or(Ok(key), |key| self.expand(key, &scope))?;
            let names = match &key.value {
                Value::Array(names) => names.items().to_vec(),
                _ => vec![key],
            };
            if names.is_empty() {
                continue;
            }
            let item = item_transform.map_or(Ok(item), |item| self.expand(item, &scope))?;
            for name in names {
                let Value::String(name) = name.value else {
                    return fail(
                        name.at,
                        format!("the new key is {}, not a string", name.value.kind()),
                    );
                };
                members.push((name, item.clone()));
            }
        }
        if is_list { Node::array(items, at) } else { object(members, at) }
    }

    /// `process`: a value that each item changes.
    pub(super) fn process(&mut self, map: &Map, at: At, outer: &Scope<'_>) -> Fallible<Node> {
        let dictionary = self.expand(member(map, "dictionary", at)?, outer)?;
        let mut value = self.expand(member(map, "initialValue", at)?, outer)?;
        let transform = member(map, "transform", at)?;
        let item_name = name_of(map, "itemName", "item")?;
        let key_name = name_of(map, "keyName", "key")?;
        let value_name = name_of(map, "valueName", "value")?;
        let scope = Self::loop_scope(outer, &[key_name, item_name, value_name], at)?;
        let entries = entries(&dictionary, "process")?;
        self.charge(entries.len() as u64, at)?;
        for (key, item) in entries {
            scope.set(key_name, key);
            scope.set(item_name, item);
            scope.set(value_name, value);
            value = self.expand(transform, &scope)?;
        }
        Ok(value)
    }

    /// `foreach key, item from .. where .. use .. top ..`.
    pub(super) fn foreach(&mut self, map: &Map, at: At, outer: &Scope<'_>) -> Fallible<Node> {
        let from = self.expand(member(map, "from", at)?, outer)?;
        let item_name = name_of(map, "item", "item")?;
        let key_name = name_of(map, "key", "key")?;
        let entries = entries(&from, "foreach")?;
        self.charge(entries.len() as u64, at)?;
        let mut top = entries.len();
        if let Some(limit) = map.get("top") {
            let limit = self.expand(limit, outer)?;
            top = match limit.value {
                Value::Int(limit) if limit >= 0 => usize::try_from(limit).unwrap_or(usize::MAX),
                _ => return fail(limit.at, "'top' is an integer of 0 or more"),
            };
        }
        let scope = Self::loop_scope(outer, &[key_name, item_name], at)?;
        let mut parts = Vec::new();
        for (key, item) in entries {
            if parts.len() >= top {
                break;
            }
            scope.set(key_name, key.clone());
            scope.set(item_name, item.clone());
            if let Some(condition) = map.get("where") {
                match self.expand(condition, &scope)?.value {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    other => {
                        return fail(
                            condition.at,
                            format!("'where' is a boolean, not {}", other.kind()),
                        );
                    }
                }
            }
            parts.push(match map.get("use") {
                Some(using) => self.expand(using, &scope)?,
                None => match &key.value {
                    Value::String(name) => object([(Arc::clone(name), item)], at)?,
                    _ => Node::array(vec![item], at)?,
                },
            });
        }
        if !parts.is_empty() {
            return self.merge(&parts, at);
        }
        match map.get("noMatchResult") {
            Some(result) => self.expand(result, outer),
            None if from.as_array().is_some() => Node::array(Vec::new(), at),
            None => object([], at),
        }
    }

    /// Concatenates lists and strings, and merges objects; later members win.
    fn merge(&mut self, parts: &[Node], at: At) -> Fallible<Node> {
        let Some(first) = parts.first() else { return fail(at, "merge has nothing to merge") };
        let same = |part: &Node| part.value.kind() == first.value.kind();
        if let Some(odd) = parts.iter().find(|part| !same(part)) {
            let (a, b) = (first.value.kind(), odd.value.kind());
            return fail(odd.at, format!("{a} and {b} cannot be merged"));
        }
        match &first.value {
            Value::Array(_) => {
                let items = parts.iter().filter_map(Node::as_array);
                self.charge(items.clone().map(|items| items.len() as u64).sum(), at)?;
                Node::array(items.flatten().cloned().collect(), at)
            }
            Value::Object(_) => {
                let maps = parts.iter().filter_map(Node::as_object);
                self.charge(maps.clone().map(|map| map.members().len() as u64).sum(), at)?;
                let members = maps.flat_map(|map| map.members().iter());
                object(members.map(|(name, item)| (Arc::clone(name), item.clone())), at)
            }
            Value::String(_) => {
                let texts = parts.iter().filter_map(Node::as_str);
                self.charge(texts.clone().map(|text| text.len() as u64 / 64 + 1).sum(), at)?;
                Ok(Node { value: Value::String(texts.collect::<String>().into()), at })
            }
            other => {
                fail(at, format!("merge takes lists, objects or strings, not {}", other.kind()))
            }
        }
    }

    /// The built-ins that return lists, objects and strings.
    pub(super) fn collections(
        &mut self,
        name: &str,
        first: &Node,
        rest: &[Node],
        at: At,
    ) -> Fallible<Node> {
        let second = rest.first().unwrap_or(first);
        match name {
            "keys" | "values" => {
                let Some(map) = first.as_object() else {
                    return fail(
                        first.at,
                        format!("{name} takes an object, not {}", first.value.kind()),
                    );
                };
                self.charge(map.members().len() as u64, at)?;
                let members = map.members().iter();
                let of = |(key, value): (&Arc<str>, &Node)| {
                    if name == "keys" { Node::string(key, value.at) } else { value.clone() }
                };
                Node::array(members.map(of).collect(), at)
            }
            "merge" => match first.as_array() {
                Some(parts) => self.merge(parts, at),
                None => fail(first.at, format!("merge takes a list, not {}", first.value.kind())),
            },
            "set" => set(first, second, rest.get(1).unwrap_or(first), at),
            "shuffle" => shuffle(first, second, at),
            "slice" => slice(first, second, rest.get(1).unwrap_or(first), at),
            "sort" => sort(first, at),
            "split" => match (first.as_str(), second.as_str()) {
                (Some(text), Some(delimiter)) if !delimiter.is_empty() => {
                    let parts = text.split(delimiter).map(|part| Node::string(part, at));
                    Node::array(parts.collect(), at)
                }
                _ => fail(at, "split takes two strings, the second not empty"),
            },
            _ => fail(at, format!("'{name}' is not known")),
        }
    }
}

fn set(dictionary: &Node, key: &Node, value: &Node, at: At) -> Fallible<Node> {
    match (&dictionary.value, &key.value) {
        (Value::Object(map), Value::String(key)) => {
            let mut members = map.members().clone();
            members.insert(Arc::clone(key), value.clone());
            Node::object(members, at)
        }
        (Value::Array(list), Value::Int(place)) => {
            let mut items = list.items().to_vec();
            match usize::try_from(*place).ok().and_then(|place| items.get_mut(place)) {
                Some(item) => *item = value.clone(),
                None => return fail(key.at, format!("there is no place {place} in the list")),
            }
            Node::array(items, at)
        }
        _ => fail(key.at, "set takes an object with a string, or a list with an integer"),
    }
}

/// From one place or name to another, both included.
fn slice(dictionary: &Node, from: &Node, to: &Node, at: At) -> Fallible<Node> {
    if let Value::Object(map) = &dictionary.value {
        let (Some(from), Some(to)) = (from.as_str(), to.as_str()) else {
            return fail(from.at, "slice of an object takes strings");
        };
        let members = map.members().iter().filter(|(name, _)| from <= &***name && &***name <= to);
        return object(members.map(|(name, item)| (Arc::clone(name), item.clone())), at);
    }
    let (&Value::Int(from), &Value::Int(to)) = (&from.value, &to.value) else {
        return fail(from.at, "slice of a list or a string takes integers");
    };
    let first = usize::try_from(from).unwrap_or(0);
    let count = usize::try_from(to.saturating_add(1)).unwrap_or(0).saturating_sub(first);
    match &dictionary.value {
        Value::Array(list) => {
            Node::array(list.items().iter().skip(first).take(count).cloned().collect(), at)
        }
        Value::String(text) => {
            let bytes = text.bytes().skip(first).take(count).collect();
            match String::from_utf8(bytes) {
                Ok(text) => Ok(Node { value: Value::String(text.into()), at }),
                Err(_) => fail(at, "slice cuts a character in two"),
            }
        }
        other => fail(
            dictionary.at,
            format!("slice takes an object, a list or a string, not {}", other.kind()),
        ),
    }
}

fn sort(list: &Node, at: At) -> Fallible<Node> {
    let Some(items) = list.as_array() else {
        return fail(list.at, format!("sort takes a list, not {}", list.value.kind()));
    };
    if let Some(first) = items.first() {
        items.iter().try_for_each(|item| order(first, item).map(drop))?;
    }
    // Integers are compared with fractions as fractions, so that the order is consistent.
    let float = |node: &Node| match node.value {
        Value::Int(number) => number as f64,
        Value::Float(number) => number,
        _ => 0.0,
    };
    let fractions = items.iter().any(|item| matches!(item.value, Value::Float(_)));
    let mut sorted = items.to_vec();
    if fractions {
        sorted.sort_by(|a, b| float(a).total_cmp(&float(b)));
    } else {
        sorted.sort_by(|a, b| order(a, b).unwrap_or(Ordering::Equal));
    }
    Node::array(sorted, at)
}

/// mcrouter draws randomly on every load. Here the result depends only on the seed, so that a
/// configuration always means the same.
fn shuffle(dictionary: &Node, seed: &Node, at: At) -> Fallible<Node> {
    let Some(items) = dictionary.as_array() else { return Ok(dictionary.clone()) };
    let mut state = match seed.value {
        Value::Int(seed) => seed.cast_unsigned(),
        _ => 0,
    };
    let mut shuffled = items.to_vec();
    for left in (1..shuffled.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let draw = hashing::spooky_hash64(&state.to_le_bytes(), 0) % (left as u64 + 1);
        shuffled.swap(left, usize::try_from(draw).unwrap_or_default());
    }
    Node::array(shuffled, at)
}
