//! YAML to values: one document of mappings, lists and scalars. Scalars stay text; anchors and tags
//! are refused.

use std::sync::Arc;

use indexmap::IndexMap;
use saphyr_parser::{Event, Parser, Span};

use crate::json::{DEPTH_MAX, Node};
use crate::source::{At, Fallible, fail};

/// A list or a mapping that is still open.
enum Open {
    List(Vec<Node>, At),
    Mapping { members: IndexMap<Arc<str>, Node>, key: Option<(Arc<str>, At)>, at: At },
}

/// Parses a file.
pub(crate) fn parse(text: &str, file: u16) -> Fallible<Node> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    let mut root: Option<Node> = None;
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let marker = *error.marker();
                let at = place(file, marker.line(), marker.col());
                return fail(at, error.info().to_owned());
            }
        };
        let at = at(file, &span);
        let done = match event {
            Event::Alias(_) => return fail(at, "references to other parts are not known here"),
            Event::Scalar(text, _, 0, None) => Some(Node::string(&text, at)),
            Event::SequenceStart(0, None) => {
                open.push(Open::List(Vec::new(), at));
                None
            }
            Event::MappingStart(0, None) => {
                open.push(Open::Mapping { members: IndexMap::new(), key: None, at });
                None
            }
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                return fail(at, "anchors and tags are not known here");
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(close).transpose()?,
            Event::DocumentStart(_) if root.is_some() => {
                return fail(at, "a second document begins here; one is read");
            }
            _ => None,
        };
        if open.len() > DEPTH_MAX as usize {
            return fail(at, format!("more than {DEPTH_MAX} levels"));
        }
        if let Some(node) = done {
            match open.last_mut() {
                None => root = Some(node),
                Some(open) => insert(open, node)?,
            }
        }
    }
    root.map_or_else(|| fail(place(file, 1, 0), "the file is empty"), Ok)
}

fn close(open: Open) -> Fallible<Node> {
    match open {
        Open::List(items, at) => Node::array(items, at),
        Open::Mapping { members, at, .. } => Node::object(members, at),
    }
}

fn insert(open: &mut Open, node: Node) -> Fallible<()> {
    match open {
        Open::List(items, _) => items.push(node),
        Open::Mapping { members, key, .. } => match key.take() {
            None => {
                let Some(name) = node.as_str() else {
                    return fail(
                        node.at,
                        format!("expected a name here, not {}", node.value.kind()),
                    );
                };
                *key = Some((name.into(), node.at));
            }
            Some((name, at)) => {
                if members.contains_key(&name) {
                    return fail(at, format!("'{name}' stands twice"));
                }
                members.insert(name, node);
            }
        },
    }
    Ok(())
}

fn at(file: u16, span: &Span) -> At {
    place(file, span.start.line(), span.start.col())
}

fn place(file: u16, line: usize, column: usize) -> At {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    At { file, line: number(line), column: number(column).saturating_add(1) }
}
