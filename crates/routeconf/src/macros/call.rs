//! Macros inside strings: `@name(a, @inner(b))`, `a%param%b`, and escapes with a backslash.

use crate::json::{Node, Value};
use crate::macros::builtins::BUILTINS;
use crate::macros::{Expander, Scope};
use crate::source::{At, Diagnostic, Fallible, fail};

/// The place of an unescaped character.
fn find_unescaped(text: &str, wanted: char) -> Option<usize> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == wanted {
            return Some(at);
        }
    }
    None
}

/// The place of the bracket that closes the one at `open`.
fn closing_bracket(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_u32;
    let mut chars = text.char_indices().skip_while(|(at, _)| *at < open);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Trims spaces at both ends, except an escaped one at the end.
fn trim(text: &str) -> &str {
    let text = text.trim_start();
    let short = text.trim_end();
    let slashes = short.len() - short.trim_end_matches('\\').len();
    let escaped = short.len() < text.len() && slashes % 2 == 1;
    let space =
        text.get(short.len()..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    if escaped { text.get(..short.len() + space).unwrap_or(short) } else { short }
}

/// The arguments between the brackets; `()` is one empty argument.
fn arguments(mut text: &str, at: At) -> Fallible<Vec<&str>> {
    let mut found = Vec::new();
    loop {
        let Some(mut comma) = find_unescaped(text, ',') else {
            found.push(trim(text));
            return Ok(found);
        };
        if let Some(open) = find_unescaped(text.get(..comma).unwrap_or_default(), '(') {
            let Some(close) = closing_bracket(text, open) else {
                return fail(at, format!("the brackets of '{text}' do not match"));
            };
            let behind = text.get(close + 1..).unwrap_or_default();
            if behind.is_empty() {
                found.push(trim(text));
                return Ok(found);
            }
            let Some(next) = behind.find(',') else {
                return fail(at, format!("expected a comma after the closing bracket in '{text}'"));
            };
            comma = close + 1 + next;
        }
        found.push(trim(text.get(..comma).unwrap_or_default()));
        text = text.get(comma + 1..).unwrap_or_default();
    }
}

impl Expander<'_> {
    /// Expands a string.
    pub(super) fn expand_text(&mut self, text: &str, at: At, scope: &Scope<'_>) -> Fallible<Node> {
        let Some(call) = text.strip_prefix('@') else { return self.substitute(text, at, scope) };
        let (name, given) = match find_unescaped(call, '(') {
            None => (call, Vec::new()),
            Some(open) => {
                let inner = call.get(open + 1..).and_then(|inner| inner.strip_suffix(')'));
                let Some(inner) = inner else {
                    return fail(at, format!("'{text}' does not end with its closing bracket"));
                };
                (call.get(..open).unwrap_or_default(), arguments(inner, at)?)
            }
        };
        let name = self.substitute(name, at, scope)?;
        let Some(name) = name.as_str() else {
            return fail(at, format!("the name of a macro is {}", name.value.kind()));
        };
        if !self.macros.contains_key(name) && BUILTINS.iter().all(|builtin| builtin.name != name) {
            return Err(Box::new(self.no_macro(name, at)));
        }
        self.call_text(name, &given, at, scope).map_err(|error| self.called(error, name, at))
    }

    fn call_text(
        &mut self,
        name: &str,
        given: &[&str],
        at: At,
        scope: &Scope<'_>,
    ) -> Fallible<Node> {
        let builtin = BUILTINS.iter().find(|builtin| builtin.name == name);
        let (least, most) = match (self.macros.get(name), builtin) {
            (Some(definition), _) => (definition.required, definition.params.len()),
            (None, Some(builtin)) => (builtin.required(), builtin.params.len()),
            (None, None) => return Err(Box::new(self.no_macro(name, at))),
        };
        if given.len() < least || given.len() > most {
            let wanted =
                if least == most { most.to_string() } else { format!("{least} to {most}") };
            let message = format!("'{name}' takes {wanted} arguments, not {}", given.len());
            return fail(at, message);
        }
        let mut arguments: Vec<_> = given.iter().map(|text| Some(Node::string(text, at))).collect();
        arguments.resize(most, None);
        match builtin {
            Some(builtin) if !self.macros.contains_key(name) => {
                self.call_builtin(builtin, arguments, at, scope)
            }
            _ => self.call_macro(name, arguments, at, scope),
        }
    }

    fn no_macro(&self, name: &str, at: At) -> Diagnostic {
        let error = Diagnostic::error(at, format!("there is no macro '{name}'"));
        let known = self.macros.keys().map(|name| &**name);
        let known = known.chain(BUILTINS.iter().map(|builtin| builtin.name));
        match usage::nearest(name, known) {
            Some(near) => error.hint(format!("did you mean @{near}?")),
            None => error.hint("a backslash before the @ makes it a character"),
        }
    }

    /// Replaces `%param%`. A string that consists of one parameter becomes its value, of any type.
    fn substitute(&mut self, text: &str, at: At, scope: &Scope<'_>) -> Fallible<Node> {
        if !text.contains(['%', '\\']) {
            return Ok(Node::string(text, at));
        }
        let mut written = String::new();
        let mut rest = text;
        loop {
            let (before, found) = unescape_until(rest, at)?;
            written.push_str(&before);
            self.charge(before.len() as u64 / 64, at)?;
            let Some(behind) = found else {
                return Ok(Node { value: Value::String(written.into()), at });
            };
            let (name, closed) = unescape_until(behind, at)?;
            let Some(behind) = closed else {
                return fail(
                    at,
                    format!(
                        "the percent signs of '{text}' do not pair; write \\\\% for the character"
                    ),
                );
            };
            let node = self.lookup(&name, at, scope)?;
            if written.is_empty() && behind.is_empty() {
                return Ok(Node { at, ..node });
            }
            let Some(part) = node.as_str() else {
                let kind = node.value.kind();
                return fail(at, format!("'%{name}%' stands inside a string, but is {kind}"));
            };
            self.charge(part.len() as u64 / 64, at)?;
            written.push_str(part);
            rest = behind;
        }
    }
}

/// The unescaped text before the next percent sign, and the text after the sign.
fn unescape_until(text: &str, at: At) -> Fallible<(String, Option<&str>)> {
    let mut before = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped) => before.push(escaped),
                None => {
                    return fail(
                        at,
                        format!("the backslash at the end of '{text}' escapes nothing"),
                    );
                }
            },
            '%' => return Ok((before, Some(chars.as_str()))),
            other => before.push(other),
        }
    }
    Ok((before, None))
}
