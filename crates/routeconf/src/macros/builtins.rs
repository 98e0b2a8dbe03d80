//! The built-in macros that accept their parameters by name or in order.

use std::cmp::Ordering;
use std::sync::Arc;

use hashing::spooky_hash64;
use indexmap::IndexMap;

use crate::json::{Node, Value};
use crate::macros::{Expander, Scope};
use crate::source::{At, Fallible, fail};

/// A built-in: its name, its parameters with whether they are required, and whether it expands them
/// itself.
pub(super) struct Builtin {
    pub(super) name: &'static str,
    pub(super) params: &'static [(&'static str, bool)],
    pub(super) lazy: bool,
}

impl Builtin {
    pub(super) fn required(&self) -> usize {
        self.params.iter().filter(|(_, required)| *required).count()
    }
}

const fn eager(name: &'static str, params: &'static [(&'static str, bool)]) -> Builtin {
    Builtin { name, params, lazy: false }
}

const fn lazy(name: &'static str, params: &'static [(&'static str, bool)]) -> Builtin {
    Builtin { name, params, lazy: true }
}

const A: &[(&str, bool)] = &[("A", true)];
const AB: &[(&str, bool)] = &[("A", true), ("B", true)];
const DICTIONARY: &[(&str, bool)] = &[("dictionary", true)];
const DICTIONARY_KEY: &[(&str, bool)] = &[("dictionary", true), ("key", true)];
const VALUE: &[(&str, bool)] = &[("value", true)];

/// All of them; `transform`, `process` and `foreach` have no short form and are in `lists`.
pub(super) const BUILTINS: &[Builtin] = &[
    eager("add", AB),
    lazy("and", AB),
    eager("bitwiseAnd", AB),
    eager("bitwiseLeftShift", AB),
    eager("bitwiseNot", A),
    eager("bitwiseOr", AB),
    eager("bitwiseRightShift", AB),
    eager("bitwiseXor", AB),
    eager("bool", VALUE),
    eager("contains", DICTIONARY_KEY),
    eager("define", &[("result", true)]),
    eager("defined", &[("name", true)]),
    eager("div", AB),
    eager("double", VALUE),
    eager("empty", DICTIONARY),
    eager("equals", AB),
    eager("fail", &[("msg", true)]),
    eager("hash", VALUE),
    lazy("if", &[("condition", true), ("is_true", true), ("is_false", true)]),
    lazy("import", &[("path", true), ("default", false)]),
    eager("int", VALUE),
    eager("isArray", VALUE),
    eager("isBool", VALUE),
    eager("isDouble", VALUE),
    eager("isInt", VALUE),
    eager("isLocalIp", &[("ip", true)]),
    eager("isObject", VALUE),
    eager("isString", VALUE),
    eager("keys", DICTIONARY),
    eager("less", AB),
    eager("merge", &[("params", true)]),
    eager("mod", AB),
    eager("mul", AB),
    eager("not", A),
    lazy("or", AB),
    eager("range", &[("from", true), ("to", true)]),
    lazy("select", &[("dictionary", true), ("key", true), ("default", false)]),
    eager("set", &[("dictionary", true), ("key", true), ("value", true)]),
    eager("shuffle", &[("dictionary", true), ("seed", false)]),
    eager("size", DICTIONARY),
    eager("slice", &[("dictionary", true), ("from", true), ("to", true)]),
    eager("sort", DICTIONARY),
    eager("split", &[("dictionary", true), ("delim", true)]),
    eager("str", VALUE),
    eager("sub", AB),
    eager("values", DICTIONARY),
];

fn int(node: &Node) -> Fallible<i64> {
    match node.value {
        Value::Int(number) => Ok(number),
        _ => fail(node.at, format!("expected an integer, not {}", node.value.kind())),
    }
}

fn truth(node: &Node) -> Fallible<bool> {
    match node.value {
        Value::Bool(truth) => Ok(truth),
        _ => fail(node.at, format!("expected a boolean, not {}", node.value.kind())),
    }
}

fn text(node: &Node) -> Fallible<&str> {
    match node.as_str() {
        Some(text) => Ok(text),
        None => fail(node.at, format!("expected a string, not {}", node.value.kind())),
    }
}

impl Expander<'_> {
    /// The built-ins that do not need all of their arguments.
    pub(super) fn lazy(
        &mut self,
        name: &str,
        arguments: &[Option<Node>],
        at: At,
        scope: &Scope<'_>,
    ) -> Fallible<Node> {
        let [Some(first), second, rest @ ..] = arguments else {
            return fail(at, "an argument is missing");
        };
        let (second, third) = (second.as_ref(), rest.first().and_then(Option::as_ref));
        if name == "import" {
            return self.import(first, second, scope);
        }
        let Some(second) = second else { return fail(at, "an argument is missing") };
        let head = self.expand(first, scope)?;
        match (name, third) {
            ("if", Some(third)) => {
                let chosen = if truth(&head)? { second } else { third };
                self.expand(chosen, scope)
            }
            ("and" | "or", _) => {
                let left = truth(&head)?;
                if left == (name == "or") {
                    return Ok(Node::bool(left, at));
                }
                let right = self.expand(second, scope)?;
                Ok(Node::bool(truth(&right)?, at))
            }
            _ => {
                let key = self.expand(second, scope)?;
                match (select(&head, &key)?, third) {
                    (Some(found), _) => Ok(found),
                    (None, Some(default)) => self.expand(default, scope),
                    (None, None) => fail(key.at, "select finds nothing, and has no 'default'"),
                }
            }
        }
    }

    /// The built-ins that work on values.
    pub(super) fn eager(
        &mut self,
        name: &str,
        arguments: &[Node],
        at: At,
        scope: &Scope<'_>,
    ) -> Fallible<Node> {
        let [first, rest @ ..] = arguments else { return fail(at, "an argument is missing") };
        let second = rest.first().unwrap_or(first);
        match name {
            "define" => return Ok(first.clone()),
            "defined" => return Ok(Node::bool(self.is_defined(text(first)?, scope), at)),
            "fail" => return fail(at, text(first)?),
            "isLocalIp" => return self.is_local(text(first)?, at),
            "range" => {
                let (from, to) = (int(first)?, int(second)?);
                self.charge(to.saturating_sub(from).try_into().unwrap_or(0), at)?;
                return Node::array((from..=to).map(|number| Node::int(number, at)).collect(), at);
            }
            _ => {}
        }
        let compares = matches!(name, "contains" | "equals" | "hash" | "str");
        self.charge(if compares { first.weight() } else { first.items() }, at)?;
        if let Some(result) = is(name, first, second) {
            return Ok(Node::bool(result?, at));
        }
        if let Some(result) = arithmetic(name, first, second) {
            return Ok(Node::int(result?, at));
        }
        match name {
            "bool" => Ok(Node::bool(to_bool(first)?, at)),
            "double" => Ok(Node { value: Value::Float(to_double(first)?), at }),
            "int" => Ok(Node::int(to_int(first)?, at)),
            "str" => Ok(Node { value: Value::String(to_text(first)?.into()), at }),
            _ => self.collections(name, first, rest, at),
        }
    }

    fn is_local(&self, address: &str, at: At) -> Fallible<Node> {
        match self.params.is_local(address) {
            Ok(is_local) => Ok(Node::bool(is_local, at)),
            Err(error) => fail(
                at,
                format!(
                    "cannot list the addresses of this host: {}; a systemd unit needs AF_NETLINK \
                     in RestrictAddressFamilies",
                    error.desc()
                ),
            ),
        }
    }
}

fn select(dictionary: &Node, key: &Node) -> Fallible<Option<Node>> {
    match &dictionary.value {
        Value::Object(map) => Ok(map.get(text(key)?).cloned()),
        Value::Array(list) => Ok(place(list.items(), int(key)?).cloned()),
        other => {
            fail(dictionary.at, format!("select takes an object or a list, not {}", other.kind()))
        }
    }
}

/// An item by its place; negative places count from the end.
fn place(items: &[Node], at: i64) -> Option<&Node> {
    let from_end = usize::try_from(at.unsigned_abs()).ok();
    match usize::try_from(at) {
        Ok(at) => items.get(at),
        Err(_) => items.get(items.len().checked_sub(from_end?)?),
    }
}

/// The built-ins that return a truth value.
fn is(name: &str, a: &Node, b: &Node) -> Option<Fallible<bool>> {
    Some(Ok(match name {
        "contains" => return Some(contains(a, b)),
        "empty" => return Some(size_of(a).map(|size| size == 0)),
        "equals" => a.value == b.value,
        "isArray" => matches!(a.value, Value::Array(_)),
        "isBool" => matches!(a.value, Value::Bool(_)),
        "isDouble" => matches!(a.value, Value::Float(_)),
        "isInt" => matches!(a.value, Value::Int(_)),
        "isObject" => matches!(a.value, Value::Object(_)),
        "isString" => matches!(a.value, Value::String(_)),
        "less" => return Some(order(a, b).map(|order| order == Ordering::Less)),
        "not" => return Some(truth(a).map(|truth| !truth)),
        _ => return None,
    }))
}

fn contains(dictionary: &Node, key: &Node) -> Fallible<bool> {
    match &dictionary.value {
        Value::Object(map) => Ok(map.get(text(key)?).is_some()),
        Value::Array(list) => Ok(list.items().iter().any(|item| item.value == key.value)),
        Value::String(whole) => Ok(whole.contains(text(key)?)),
        other => fail(
            dictionary.at,
            format!("contains takes an object, a list or a string, not {}", other.kind()),
        ),
    }
}

pub(super) fn size_of(node: &Node) -> Fallible<usize> {
    match &node.value {
        Value::Array(list) => Ok(list.items().len()),
        Value::Object(map) => Ok(map.members().len()),
        Value::String(text) => Ok(text.len()),
        other => {
            fail(node.at, format!("expected an object, a list or a string, not {}", other.kind()))
        }
    }
}

/// The order of numbers and strings.
pub(super) fn order(a: &Node, b: &Node) -> Fallible<Ordering> {
    match (&a.value, &b.value) {
        (Value::Int(a), Value::Int(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            Ok(to_double(a)?.total_cmp(&to_double(b)?))
        }
        (left, right) => fail(b.at, format!("{} and {} have no order", left.kind(), right.kind())),
    }
}

/// The built-ins on integers.
fn arithmetic(name: &str, a: &Node, b: &Node) -> Option<Fallible<i64>> {
    let operation: fn(i64, i64) -> Option<i64> = match name {
        "add" => i64::checked_add,
        "bitwiseAnd" => |a, b| Some(a & b),
        "bitwiseLeftShift" => |a, b| a.checked_shl(u32::try_from(b).ok()?),
        "bitwiseNot" => |a, _| Some(!a),
        "bitwiseOr" => |a, b| Some(a | b),
        "bitwiseRightShift" => |a, b| a.checked_shr(u32::try_from(b).ok()?),
        "bitwiseXor" => |a, b| Some(a ^ b),
        "div" => i64::checked_div,
        "hash" => return Some(hash(a)),
        "mod" => i64::checked_rem,
        "mul" => i64::checked_mul,
        "size" => return Some(size_of(a).map(|size| i64::try_from(size).unwrap_or(i64::MAX))),
        "sub" => i64::checked_sub,
        _ => return None,
    };
    let compute = || match operation(int(a)?, int(b)?) {
        Some(number) => Ok(number),
        None => fail(b.at, format!("'{name}' has no result in 64 bits")),
    };
    Some(compute())
}

/// folly's hash: of a string SpookyHash V2, of a number Thomas Wang's mix.
fn hash(node: &Node) -> Fallible<i64> {
    match &node.value {
        Value::Int(number) => Ok(twang_mix(number.cast_unsigned()).cast_signed()),
        Value::String(text) => Ok(spooky_hash64(text.as_bytes(), 0).cast_signed()),
        other => fail(node.at, format!("hash takes a string or an integer, not {}", other.kind())),
    }
}

fn twang_mix(key: u64) -> u64 {
    let key = (!key).wrapping_add(key << 21);
    let key = key ^ (key >> 24);
    let key = key.wrapping_add(key << 3).wrapping_add(key << 8);
    let key = key ^ (key >> 14);
    let key = key.wrapping_add(key << 2).wrapping_add(key << 4);
    let key = key ^ (key >> 28);
    key.wrapping_add(key << 31)
}

fn cannot<T>(node: &Node, what: &str) -> Fallible<T> {
    fail(node.at, format!("{} cannot be made {what}", node.value.kind()))
}

fn to_int(node: &Node) -> Fallible<i64> {
    match &node.value {
        Value::Int(number) => Ok(*number),
        Value::Bool(truth) => Ok(i64::from(*truth)),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 2_f64.powi(53) =>
        {
            #[allow(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            Ok(*number as i64)
        }
        Value::String(text) => text.trim().parse().or_else(|_| cannot(node, "an integer")),
        _ => cannot(node, "an integer"),
    }
}

fn to_double(node: &Node) -> Fallible<f64> {
    match &node.value {
        Value::Int(number) => Ok(*number as f64),
        Value::Float(number) => Ok(*number),
        Value::Bool(truth) => Ok(f64::from(u8::from(*truth))),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => cannot(node, "a number"),
        },
        _ => cannot(node, "a number"),
    }
}

fn to_text(node: &Node) -> Fallible<String> {
    match &node.value {
        Value::String(text) => Ok(text.to_string()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => cannot(node, "a string"),
    }
}

fn to_bool(node: &Node) -> Fallible<bool> {
    match &node.value {
        Value::Bool(truth) => Ok(*truth),
        Value::Int(number) => Ok(*number != 0),
        Value::Float(number) => Ok(*number != 0.0),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
            "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
            _ => cannot(node, "a boolean"),
        },
        _ => cannot(node, "a boolean"),
    }
}

/// An object of these members; later ones win.
pub(super) fn object(
    members: impl IntoIterator<Item = (Arc<str>, Node)>,
    at: At,
) -> Fallible<Node> {
    Node::object(members.into_iter().collect::<IndexMap<_, _>>(), at)
}
