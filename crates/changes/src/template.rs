//! Keys made from a row's columns: `user:{id}:{locale}`.

use std::fmt;

use bytes::Bytes;

use crate::change::Cell;

/// A template as declared: fixed text and column names. `{{` and `}}` are literal braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Column(String),
    Text(String),
}

/// The fault of an invalid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template '{text}': {why}")]
pub struct BadTemplate {
    text: String,
    why: &'static str,
}

/// A table lacks this column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no column '{0}'")]
pub struct MissingColumn(pub String);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// When braces do not pair, a name is empty, or no column is named.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let refuse = |why| BadTemplate { text: text.to_owned(), why };
        let mut parts = Vec::new();
        let mut fixed = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '{' | '}' if letters.peek() == Some(&letter) => {
                    letters.next();
                    fixed.push(letter);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match letters.next() {
                            Some('}') => break,
                            Some('{') | None => return Err(refuse("a '{' has no '}'")),
                            Some(letter) => name.push(letter),
                        }
                    }
                    if name.is_empty() {
                        return Err(refuse("'{}' names no column"));
                    }
                    if !fixed.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut fixed)));
                    }
                    parts.push(Part::Column(name));
                }
                '}' => return Err(refuse("a '}' has no '{'")),
                letter => fixed.push(letter),
            }
        }
        if !fixed.is_empty() {
            parts.push(Part::Text(fixed));
        }
        let template = Self { text: text.to_owned(), parts };
        if template.columns().next().is_none() {
            return Err(refuse("it names no column, so every change would delete the same key"));
        }
        Ok(template)
    }

    /// The columns it needs.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Column(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The prefix of every key: the text before the first column.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Finds the columns in a table, so that rows can be expanded; the first missing one is the
    /// error.
    ///
    /// # Errors
    ///
    /// Returns a column that the table does not have.
    pub fn bind(&self, columns: &[String]) -> Result<Bound, MissingColumn> {
        let bound = |part: &Part| match part {
            Part::Text(text) => Ok(BoundPart::Text(text.clone())),
            Part::Column(name) => {
                let at = columns.iter().position(|column| column == name);
                at.map(BoundPart::Column).ok_or_else(|| MissingColumn(name.clone()))
            }
        };
        Ok(Bound { parts: self.parts.iter().map(bound).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A template whose columns are indexes in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    parts: Vec<BoundPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BoundPart {
    Column(usize),
    Text(String),
}

/// The key of a row, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expanded {
    /// A key.
    Key(Bytes),
    /// A column is NULL: such a row has no key.
    Null,
    /// The image does not have the column at this index.
    Absent(usize),
}

impl Bound {
    /// The key of a row; `cell` returns the cell at an index.
    pub fn expand<'c>(&self, cell: impl Fn(usize) -> &'c Cell) -> Expanded {
        let mut key = Vec::with_capacity(32);
        for part in &self.parts {
            match part {
                BoundPart::Text(text) => key.extend_from_slice(text.as_bytes()),
                BoundPart::Column(at) => match cell(*at) {
                    Cell::Text(text) => key.extend_from_slice(text),
                    Cell::Null => return Expanded::Null,
                    Cell::Absent | Cell::Unprintable => return Expanded::Absent(*at),
                },
            }
        }
        Expanded::Key(key.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str, cells: &[Cell]) -> Expanded {
        let columns = ["id".to_owned(), "lang".to_owned()];
        Template::parse(template).unwrap().bind(&columns).unwrap().expand(|at| &cells[at])
    }

    #[test]
    fn columns_and_braces_are_filled_in() {
        let row = [Cell::Text("7".into()), Cell::Text("de".into())];
        assert_eq!(expand("user:{id}:{{{lang}}}", &row), Expanded::Key("user:7:{de}".into()));
        assert_eq!(expand("{lang}{id}", &row), Expanded::Key("de7".into()));
    }

    #[test]
    fn null_yields_no_key_and_an_absent_column_is_reported() {
        assert_eq!(expand("{id}:{lang}", &[Cell::Text("7".into()), Cell::Null]), Expanded::Null);
        assert_eq!(expand("{id}:{lang}", &[Cell::Absent, Cell::Null]), Expanded::Absent(0));
    }

    #[test]
    fn a_missing_column_is_named() {
        let template = Template::parse("u:{idd}").unwrap();
        assert_eq!(template.bind(&["id".to_owned()]), Err(MissingColumn("idd".to_owned())));
    }

    #[test]
    fn bad_templates_are_refused() {
        for text in ["user", "", "{", "}", "{}", "{a", "a}", "{{a}}", "{a{b}}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
