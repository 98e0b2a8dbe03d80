//! The members of an object, read by name and type. Members that are never read cause a warning.

use std::cell::RefCell;

use crate::json::{Map, Node, Value};
use crate::source::{At, Diagnostic, Fallible, fail};

/// An object that is being read.
pub(super) struct Fields<'n> {
    map: &'n Map,
    pub(super) at: At,
    /// Its name in messages: `PoolRoute`, `the pool 'A'`.
    pub(super) what: String,
    asked: RefCell<Vec<&'static str>>,
    unused: RefCell<Vec<&'static str>>,
}

impl<'n> Fields<'n> {
    /// The members of `node`, which is a `what`.
    pub(super) fn new(node: &'n Node, what: impl Into<String>) -> Fallible<Self> {
        let what = what.into();
        match node.as_object() {
            Some(map) => {
                let (asked, unused) = (RefCell::default(), RefCell::default());
                Ok(Self { map, at: node.at, what, asked, unused })
            }
            None => fail(node.at, format!("{what} is an object, not {}", node.value.kind())),
        }
    }

    pub(super) fn get(&self, name: &'static str) -> Option<&'n Node> {
        self.asked.borrow_mut().push(name);
        self.map.get(name)
    }

    pub(super) fn need(&self, name: &'static str) -> Fallible<&'n Node> {
        match self.get(name) {
            Some(node) => Ok(node),
            None => fail(self.at, format!("{} needs '{name}'", self.what)),
        }
    }

    fn wrong<T>(&self, name: &str, node: &Node, wanted: &str) -> Fallible<T> {
        let found = match &node.value {
            Value::Int(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::String(text) if text.len() <= 40 => format!("'{text}'"),
            other => other.kind().to_owned(),
        };
        fail(node.at, format!("'{name}' of {} is {wanted}, not {found}", self.what))
    }

    pub(super) fn text(&self, name: &'static str) -> Fallible<Option<&'n str>> {
        self.get(name)
            .map(|node| node.as_str().map_or_else(|| self.wrong(name, node, "a string"), Ok))
            .transpose()
    }

    pub(super) fn need_text(&self, name: &'static str) -> Fallible<&'n str> {
        self.need(name)?;
        Ok(self.text(name)?.unwrap_or_default())
    }

    pub(super) fn truth(&self, name: &'static str) -> Fallible<Option<bool>> {
        self.get(name)
            .map(|node| match node.value {
                Value::Bool(truth) => Ok(truth),
                _ => self.wrong(name, node, "true or false"),
            })
            .transpose()
    }

    pub(super) fn flag(&self, name: &'static str, default: bool) -> Fallible<bool> {
        Ok(self.truth(name)?.unwrap_or(default))
    }

    /// An integer from `least` to `most`.
    pub(super) fn int(&self, name: &'static str, least: i64, most: i64) -> Fallible<Option<i64>> {
        self.get(name)
            .map(|node| match node.value {
                Value::Int(number) if (least..=most).contains(&number) => Ok(number),
                _ if most == i64::MAX => {
                    self.wrong(name, node, &format!("an integer of at least {least}"))
                }
                _ => self.wrong(name, node, &format!("an integer from {least} to {most}")),
            })
            .transpose()
    }

    /// An integer from `least` to `most` that fits into 32 bits.
    pub(super) fn int32(&self, name: &'static str, least: u32, most: u32) -> Fallible<Option<u32>> {
        let number = self.int(name, i64::from(least), i64::from(most))?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// An integer from 0.
    pub(super) fn natural(&self, name: &'static str) -> Fallible<Option<u64>> {
        Ok(self.int(name, 0, i64::MAX)?.map(i64::unsigned_abs))
    }

    /// A number from `least` to `most`, with or without a fraction.
    pub(super) fn number(
        &self,
        name: &'static str,
        least: f64,
        most: f64,
    ) -> Fallible<Option<f64>> {
        self.get(name)
            .map(|node| match as_number(node) {
                Some(number) if (least..=most).contains(&number) => Ok(number),
                _ if most == f64::MAX => {
                    self.wrong(name, node, &format!("a number of at least {least}"))
                }
                _ => self.wrong(name, node, &format!("a number from {least} to {most}")),
            })
            .transpose()
    }

    pub(super) fn list(&self, name: &'static str) -> Fallible<Option<&'n [Node]>> {
        self.get(name)
            .map(|node| node.as_array().map_or_else(|| self.wrong(name, node, "a list"), Ok))
            .transpose()
    }

    pub(super) fn texts(&self, name: &'static str) -> Fallible<Option<Vec<String>>> {
        let text = |node: &Node| match node.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => self.wrong(name, node, "a list of strings"),
        };
        self.list(name)?.map(|items| items.iter().map(text).collect()).transpose()
    }

    pub(super) fn numbers(&self, name: &'static str) -> Fallible<Option<Vec<f64>>> {
        let number = |node: &Node| match as_number(node) {
            Some(number) => Ok(number),
            None => self.wrong(name, node, "a list of numbers"),
        };
        self.list(name)?.map(|items| items.iter().map(number).collect()).transpose()
    }

    pub(super) fn object(&self, name: &'static str) -> Fallible<Option<&'n Map>> {
        self.get(name)
            .map(|node| node.as_object().map_or_else(|| self.wrong(name, node, "an object"), Ok))
            .transpose()
    }

    pub(super) fn place(&self, name: &str) -> At {
        self.map.get(name).map_or(self.at, |node| node.at)
    }

    /// Marks names that are read elsewhere.
    pub(super) fn known(&self, names: &[&'static str]) {
        self.asked.borrow_mut().extend(names);
    }

    /// Warns about mcrouter's names that have no effect here.
    pub(super) fn unused(&self, names: &[&'static str]) {
        self.unused.borrow_mut().extend(names);
    }

    /// Warns about members that were not read. Names that start with `_` or `#` count as remarks.
    pub(super) fn finish(&self, findings: &mut Vec<Diagnostic>) {
        let (asked, unused) = (self.asked.borrow(), self.unused.borrow());
        for (name, node) in self.map.members() {
            if unused.contains(&&**name) {
                let message = format!("'{name}' of {} changes nothing here", self.what);
                findings.push(Diagnostic::warning(node.at, message));
                continue;
            }
            let known = asked.contains(&&**name) || matches!(&**name, "name" | "type");
            if known || name.starts_with(['_', '#']) {
                continue;
            }
            let message = format!("{} has no '{name}'; it is ignored", self.what);
            let warning = Diagnostic::warning(node.at, message);
            findings.push(warning.meant(name, asked.iter().copied()));
        }
    }
}

pub(super) fn as_number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}
