//! JSON with comments and trailing commas, each value with its place. It is a separate parser,
//! because the limits below also apply to macros' results, which no JSON library builds.
//!
//! Values share their contents, so a copy is cheap. Every value knows its written size and its
//! depth, and no value larger than the limits can be built, in whatever way. Only that bounds every
//! later walk over a value.

mod parse;

use std::sync::Arc;

use indexmap::IndexMap;

use crate::source::{At, Fallible, fail};

pub(crate) use parse::parse;

/// Maximum number of values in a written value.
pub(crate) const VALUES_MAX: u64 = 2_000_000;
/// Maximum bytes of all strings in a written value.
pub(crate) const STRING_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of levels of a value.
pub(crate) const DEPTH_MAX: u32 = 120;

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: At,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(Arc<str>),
    Array(Arc<List>),
    Object(Arc<Map>),
}

/// The written size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Size {
    values: u64,
    bytes: u64,
    depth: u32,
}

#[derive(Debug)]
pub(crate) struct List {
    items: Vec<Node>,
    size: Size,
}

#[derive(Debug)]
pub(crate) struct Map {
    members: IndexMap<Arc<str>, Node>,
    size: Size,
}

impl List {
    pub(crate) fn items(&self) -> &[Node] {
        &self.items
    }
}

impl Map {
    /// In the order of the text.
    pub(crate) fn members(&self) -> &IndexMap<Arc<str>, Node> {
        &self.members
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.members.get(name)
    }
}

/// Equality as in mcrouter: numbers by their value, regardless of places. Bounded, as values are.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Int(a), Self::Float(b)) | (Self::Float(b), Self::Int(a)) => *a as f64 == *b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => {
                Arc::ptr_eq(a, b)
                    || (a.size == b.size
                        && a.items.iter().zip(&b.items).all(|(a, b)| a.value == b.value))
            }
            (Self::Object(a), Self::Object(b)) => {
                Arc::ptr_eq(a, b)
                    || (a.size == b.size
                        && a.members.len() == b.members.len()
                        && a.members.iter().all(|(name, a)| {
                            b.members.get(name).is_some_and(|b| a.value == b.value)
                        }))
            }
            _ => false,
        }
    }
}

impl Value {
    /// The name of its type in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    fn size(&self) -> Size {
        match self {
            Self::String(text) => Size { values: 1, bytes: text.len() as u64, depth: 0 },
            Self::Array(list) => list.size,
            Self::Object(map) => map.size,
            _ => Size { values: 1, bytes: 0, depth: 0 },
        }
    }
}

/// The size of a value that contains these.
fn sum<'n>(nodes: impl Iterator<Item = &'n Node>, names: u64) -> Size {
    let start = Size { values: 1, bytes: names, depth: 0 };
    nodes.fold(start, |sum, node| {
        let size = node.value.size();
        Size {
            values: sum.values.saturating_add(size.values),
            bytes: sum.bytes.saturating_add(size.bytes),
            depth: sum.depth.max(size.depth + 1),
        }
    })
}

fn within(size: Size, at: At) -> Fallible<Size> {
    if size.depth > DEPTH_MAX {
        return fail(at, format!("more than {DEPTH_MAX} levels of lists and objects"));
    }
    if size.values > VALUES_MAX {
        return fail(at, format!("more than {VALUES_MAX} values, macros written out"));
    }
    if size.bytes > STRING_BYTES_MAX {
        return fail(
            at,
            format!("more than {STRING_BYTES_MAX} bytes of strings, macros written out"),
        );
    }
    Ok(size)
}

impl Node {
    pub(crate) fn string(text: &str, at: At) -> Self {
        Self { value: Value::String(text.into()), at }
    }

    pub(crate) fn int(number: i64, at: At) -> Self {
        Self { value: Value::Int(number), at }
    }

    pub(crate) fn bool(truth: bool, at: At) -> Self {
        Self { value: Value::Bool(truth), at }
    }

    /// A list, if it is within the limits.
    pub(crate) fn array(items: Vec<Self>, at: At) -> Fallible<Self> {
        let size = within(sum(items.iter(), 0), at)?;
        Ok(Self { value: Value::Array(Arc::new(List { items, size })), at })
    }

    /// An object, if it is within the limits.
    pub(crate) fn object(members: IndexMap<Arc<str>, Self>, at: At) -> Fallible<Self> {
        let names = members.keys().map(|name| name.len() as u64).sum();
        let size = within(sum(members.values(), names), at)?;
        Ok(Self { value: Value::Object(Arc::new(Map { members, size })), at })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Array(list) => Some(list.items()),
            _ => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&Map> {
        match &self.value {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The cost of iterating over its items, or its characters.
    pub(crate) fn items(&self) -> u64 {
        match &self.value {
            Value::Array(list) => list.items.len() as u64,
            Value::Object(map) => map.members.len() as u64,
            Value::String(text) => text.len() as u64 / 64,
            _ => 0,
        }
    }

    /// The cost of iterating over its whole content.
    pub(crate) fn weight(&self) -> u64 {
        let size = self.value.size();
        size.values.saturating_add(size.bytes / 64)
    }

    /// The member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object().and_then(|map| map.get(name))
    }
}
