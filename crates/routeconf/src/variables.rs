//! The runtime variables of mcrouter: numbers in a separate file, which change independently of the
//! configuration.

use std::collections::BTreeMap;

use crate::json::{self, Map, Node, Value};
use crate::load::Rejected;
use crate::source::{Diagnostic, Files};

/// mcrouter's object of the weights that `weights_rv` names.
const WEIGHTS: &str = "hash_route_weights";

/// Numbers, and lists of numbers, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    numbers: BTreeMap<String, Vec<f64>>,
    /// Those in the object `hash_route_weights`.
    weights: BTreeMap<String, Vec<f64>>,
}

impl Variables {
    /// Reads a file's text: one object in the language of configurations, without macros. Values
    /// that are neither a number nor a list of numbers are ignored, except `hash_route_weights`,
    /// whose members are variables, too.
    ///
    /// # Errors
    ///
    /// The errors, with their places.
    pub fn parse(name: &str, text: &str) -> Result<Self, Rejected> {
        let mut files = Files::default();
        let (file, mut findings) = (files.add(name), Vec::new());
        let root = match json::parse(text, file, &mut findings) {
            Ok(root) => root,
            Err(error) => return Err(Rejected { files, findings: vec![*error] }),
        };
        let Some(variables) = root.as_object() else {
            let message = format!("variables are an object, not {}", root.value.kind());
            return Err(Rejected { files, findings: vec![Diagnostic::error(root.at, message)] });
        };
        let weights = variables.get(WEIGHTS).and_then(Node::as_object);
        let weights = weights.map(numbers).unwrap_or_default();
        Ok(Self { numbers: numbers(variables), weights })
    }

    /// The numbers of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.numbers.get(name).map(Vec::as_slice)
    }

    /// The weights that `weights_rv` names: those in `hash_route_weights`, as in mcrouter, or else
    /// the variable itself.
    #[must_use]
    pub fn weights(&self, name: &str) -> Option<&[f64]> {
        self.weights.get(name).map(Vec::as_slice).or_else(|| self.get(name))
    }

    /// All variables by name, except those in `hash_route_weights`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        slices(&self.numbers)
    }

    /// The variables in `hash_route_weights`, by name.
    pub fn iter_weights(&self) -> impl Iterator<Item = (&str, &[f64])> {
        slices(&self.weights)
    }
}

fn slices(all: &BTreeMap<String, Vec<f64>>) -> impl Iterator<Item = (&str, &[f64])> {
    all.iter().map(|(name, numbers)| (name.as_str(), numbers.as_slice()))
}

/// The members that are numbers or lists of numbers.
fn numbers(members: &Map) -> BTreeMap<String, Vec<f64>> {
    let numbers = members.members().iter().filter_map(|(name, node)| {
        let numbers = match node.as_array() {
            Some(items) => items.iter().map(number).collect::<Option<_>>()?,
            None => vec![number(node)?],
        };
        Some((name.to_string(), numbers))
    });
    numbers.collect()
}

fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_numbers_or_lists_of_numbers() {
        let text = r#"{"a": 0.5, /* remark */ "b": [1, 0.25], "c": "text", "d": [1, "x"]}"#;
        let variables = Variables::parse("vars", text).unwrap();
        let all: Vec<_> = variables.iter().collect();
        assert_eq!(all, [("a", &[0.5][..]), ("b", &[1.0, 0.25])]);
        assert_eq!((variables.get("b").map(<[f64]>::len), variables.get("c")), (Some(2), None));
        let text = r#"{"w": [1], "v": 1, "hash_route_weights": {"w": [0.5], "x": 0, "y": "z"}}"#;
        let variables = Variables::parse("vars", text).unwrap();
        let of = |name| variables.weights(name).map(<[f64]>::to_vec);
        let found = [of("w"), of("v"), of("x"), of("y")];
        assert_eq!(found, [Some(vec![0.5]), Some(vec![1.0]), Some(vec![0.0]), None]);
        assert_eq!((variables.get("w"), variables.get("x")), (Some(&[1.0][..]), None));
        let error = Variables::parse("vars", "{\"a\": }").unwrap_err();
        assert!(error.render().starts_with("vars:1:7"), "{}", error.render());
        let error = Variables::parse("vars", "[1]").unwrap_err();
        assert!(error.render().contains("are an object, not a list"), "{}", error.render());
    }
}
