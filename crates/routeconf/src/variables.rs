//! The runtime variables of mcrouter: numbers in a separate file, which change independently of the
//! configuration.

use std::collections::BTreeMap;

use crate::json::{self, Node, Value};
use crate::load::Rejected;
use crate::source::{Diagnostic, Files};

/// Numbers, and lists of numbers, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables(BTreeMap<String, Vec<f64>>);

impl Variables {
    /// Reads a file's text: one object in the language of configurations, without macros. Values
    /// that are neither a number nor a list of numbers are ignored, since no route uses them.
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
        let mut found = BTreeMap::new();
        for (name, node) in variables.members() {
            let numbers = match node.as_array() {
                Some(items) => items.iter().map(number).collect(),
                None => number(node).map(|number| vec![number]),
            };
            if let Some(numbers) = numbers {
                found.insert(name.to_string(), numbers);
            }
        }
        Ok(Self(found))
    }

    /// The numbers of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.0.iter().map(|(name, numbers)| (name.as_str(), numbers.as_slice()))
    }
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
        let error = Variables::parse("vars", "{\"a\": }").unwrap_err();
        assert!(error.render().starts_with("vars:1:7"), "{}", error.render());
        let error = Variables::parse("vars", "[1]").unwrap_err();
        assert!(error.render().contains("are an object, not a list"), "{}", error.render());
    }
}
