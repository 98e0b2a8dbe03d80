//! Statements of the log as text, and their effects on the rows of tables.
//!
//! Every statement is judged. Its verb and object are in a list of those known to leave rows
//! unchanged, or they name the tables that they change, or they are unknown; the last two are gaps
//! if rules use such tables.

mod alter;
mod cascades;
mod cursor;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::iter;

use changes::change::Effect;
use changes::keys::{Rules, may_be_same};
use changes::sql::{Token, Tokens, wide_texts};

use super::server::Flavour;
pub(super) use cascades::cascades;
use cursor::Cursor;

/// A statement that starts or ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Begin,
    /// The end, also of a rollback, which is logged only if an engine without transactions took
    /// part.
    End,
    XaEnd,
    XaCommit,
    XaRollback,
}

/// The statement's effect on transactions; none if it has none.
pub(super) fn control(text: &str) -> Option<Control> {
    let is_said = |token: &Token<'_>| !matches!(token, Token::Comment(_) | Token::Sign(';'));
    let mut words = Tokens::new(text, true).filter(is_said).map(|token| match token {
        Token::Word(word) => Some(word.to_ascii_uppercase()),
        _ => None,
    });
    let first = words.next()??;
    let second = words.next();
    let is_alone = second.as_ref().is_none_or(|word| word.as_deref() == Some("WORK"));
    let is_alone = is_alone && words.next().is_none();
    let second = second.flatten();
    match (first.as_str(), second.as_deref()) {
        ("BEGIN", _) if is_alone => Some(Control::Begin),
        ("START", Some("TRANSACTION")) | ("XA", Some("START" | "BEGIN")) => Some(Control::Begin),
        ("COMMIT" | "ROLLBACK", _) if is_alone => Some(Control::End),
        ("XA", Some("END")) => Some(Control::XaEnd),
        ("XA", Some("COMMIT")) => Some(Control::XaCommit),
        ("XA", Some("ROLLBACK")) => Some(Control::XaRollback),
        _ => None,
    }
}

/// The server of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) flavour: Flavour,
    /// True if a foreign key may change rows without a trace in the log.
    pub(super) has_unlogged_cascades: bool,
}

/// The session of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'s> {
    pub(super) flavour: Flavour,
    /// Its database.
    pub(super) schema: &'s str,
    pub(super) charset: Charset,
    pub(super) followed: &'s Followed,
}

/// The followed tables.
#[derive(Debug, Default)]
pub(super) struct Followed {
    tables: Vec<String>,
    /// Those to which the log added a foreign key that may change rows without a trace.
    cascading: BTreeSet<String>,
}

impl Followed {
    pub(super) fn new(rules: &Rules) -> Self {
        Self { tables: rules.tables.keys().cloned().collect(), cascading: BTreeSet::new() }
    }

    fn named<'f>(&'f self, table: &str) -> impl Iterator<Item = &'f String> {
        self.tables.iter().filter(move |one| may_be_same(one, table))
    }

    /// True if a foreign key of the table may have changed rows without a trace.
    fn may_cascade(&self, table: &str) -> bool {
        self.named(table).any(|table| self.cascading.contains(table))
    }

    /// Remembers the tables to which a statement adds foreign keys that change rows.
    pub(super) fn remember(&mut self, added: &[String]) {
        let more: Vec<_> = added.iter().flat_map(|table| self.named(table)).cloned().collect();
        self.cascading.extend(more);
    }
}

/// The character set of a session's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charset {
    /// Every text with a name is UTF-8.
    Utf8,
    /// Unknown, or the second byte of a character may be that of a backslash or a backtick.
    Wide,
    /// Any other. The bytes of a name can also be UTF-8, of another name.
    Other,
}

impl Charset {
    /// The character set of a collation.
    ///
    /// MariaDB numbers the collations without padding from 1024 on, and those of UCA 14.0.0 from
    /// 2048 on.
    pub(super) const fn of(collation: u16) -> Self {
        let is_unpadded = collation >= 1024 && collation < 2048;
        match if is_unpadded { collation - 1024 } else { collation } {
            // ascii, binary, utf8mb3 and utf8mb4; the last two together.
            11 | 65 | 63 => Self::Utf8,
            33 | 76 | 83 | 45 | 46 | 192..=247 | 255..=323 | 576..=639 | 2048..=2559 => Self::Utf8,
            // big5, gbk, gb18030, sjis, cp932.
            1 | 84 | 28 | 87 | 248..=250 | 13 | 88 | 95 | 96 => Self::Wide,
            _ => Self::Other,
        }
    }
}

/// The texts that a statement may be.
///
/// Names are known only in UTF-8. In any other text, the letters that are not ASCII are replaced:
/// by one that makes a name unknown, or by one that no followed table has if all their names are
/// ASCII.
fn texts<'s>(session: Session<'_>, statement: &'s [u8]) -> Vec<Cow<'s, str>> {
    let text = String::from_utf8_lossy(statement);
    let is_utf8 = session.charset == Charset::Utf8;
    let is_ascii = session.followed.tables.iter().all(|table| table.is_ascii());
    if is_utf8 && (!is_ascii || matches!(text, Cow::Borrowed(_))) {
        return vec![text];
    }
    let letter = if is_ascii { "\u{80}" } else { "\u{fffd}" };
    let renamed = |text: &str| Cow::Owned(text.replace(|letter: char| !letter.is_ascii(), letter));
    let is_wide = session.charset == Charset::Wide;
    let others = if is_wide { wide_texts(statement) } else { Vec::new() };
    iter::once(renamed(&text)).chain(others.iter().map(|text| renamed(text))).collect()
}

/// The statement's effect on rows.
pub(super) fn effect(session: Session<'_>, statement: &[u8]) -> Effect {
    let texts = texts(session, statement).into_iter();
    let effects = texts.map(|text| effect_of_text(session, &text));
    effects.reduce(either).unwrap_or(Effect::Unknown)
}

/// The tables to which the statement may add a foreign key that changes rows.
pub(super) fn added_cascades(session: Session<'_>, statement: &[u8]) -> Vec<String> {
    let added = |text: &str, escapes| {
        let tokens = Tokens::new(text, escapes).filter(|token| !matches!(token, Token::Comment(_)));
        cascades::added(session.schema, &tokens.collect::<Vec<_>>())
    };
    let both = |text: Cow<'_, str>| [true, false].map(|escapes| added(&text, escapes));
    texts(session, statement).into_iter().flat_map(both).flatten().collect()
}

fn effect_of_text(session: Session<'_>, text: &str) -> Effect {
    let read = |escapes| {
        if let Some(table) = emptied_by_server(Tokens::new(text, escapes)) {
            return Effect::Tables(vec![table]);
        }
        let mut tokens =
            Tokens::new(text, escapes).filter(|token| !matches!(token, Token::Comment(_)));
        match tokens.next() {
            None => empty(text),
            Some(first) if changes_rows(&first) => {
                rows(&iter::once(first).chain(tokens).take(5).collect::<Vec<_>>())
            }
            Some(first) => {
                let all: Vec<_> = iter::once(first).chain(tokens).collect();
                Reader { session }.effect(&all)
            }
        }
    };
    let effect = read(true);
    // The text does not show whether a backslash was an escape in its session.
    if text.contains('\\') { either(effect, read(false)) } else { effect }
}

/// The effect of a statement that has one of two effects.
fn either(one: Effect, other: Effect) -> Effect {
    match (one, other) {
        (one, other) if one == other => one,
        (Effect::Tables(mut tables), Effect::Tables(more)) => {
            tables.extend(more);
            Effect::Tables(tables)
        }
        (Effect::None, other) | (other, Effect::None) => other,
        _ => Effect::Unknown,
    }
}

/// MariaDB writes a comment in place of an event that the follower reportedly does not understand.
fn empty(text: &str) -> Effect {
    let Some((_, number)) = text.split_once("Dummy event replacing event type ") else {
        return Effect::None;
    };
    let number: String = number.chars().take_while(char::is_ascii_digit).collect();
    match number.parse::<u8>() {
        Ok(number) if super::event_type::is_harmless_of_mariadb(number) => Effect::None,
        _ => Effect::Unknown,
    }
}

/// A table that the server itself declares empty. Rows of a MEMORY table are gone after a restart
/// of the server, which logs ``DELETE FROM `db`.`table` `` when the table is first used, in any
/// format. Newer versions of MySQL, and MariaDB, log `TRUNCATE TABLE`.
///
/// No other form of `DELETE` counts: in a session that logs statements, it may change rows of more
/// tables, by triggers and foreign keys.
fn emptied_by_server(tokens: Tokens<'_>) -> Option<String> {
    let tokens: Vec<_> = tokens.take(6).collect();
    let [
        Token::Word("DELETE"),
        Token::Word("FROM"),
        Token::Name(schema),
        Token::Sign('.'),
        Token::Name(table),
    ] = &tokens[..]
    else {
        return None;
    };
    // A name that is not UTF-8 cannot be compared.
    let is_text = |name: &str| !name.contains('\u{fffd}');
    (is_text(schema) && is_text(table)).then(|| format!("{schema}.{table}"))
}

/// True for the start of a statement that changes rows, or may do so through a function.
fn changes_rows(first: &Token<'_>) -> bool {
    const VERBS: [&str; 11] = [
        "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "CALL", "DO", "VALUES",
        "TABLE",
    ];
    match first {
        Token::Word(word) => VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb)),
        Token::Sign(sign) => *sign == '(',
        _ => false,
    }
}

/// The effect of a statement that changes rows, by its first tokens. The servers write other texts
/// for `LOAD DATA`, and for a function that was called outside of a change: ``SELECT `db`.`f`(1)``.
fn rows(tokens: &[Token<'_>]) -> Effect {
    let is_name = |token: &Token<'_>| matches!(token, Token::Word(_) | Token::Name(_));
    match tokens {
        [load, ..] if is_word(load, "LOAD") => Effect::RowsWithoutComments,
        [select, schema, Token::Sign('.'), function, Token::Sign('(')]
            if is_word(select, "SELECT") && is_name(schema) && is_name(function) =>
        {
            Effect::RowsWithoutComments
        }
        _ => Effect::Rows,
    }
}

/// Verbs of statements that leave the rows of tables unchanged.
const HARMLESS: [&str; 8] =
    ["FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RELEASE", "REVOKE", "SAVEPOINT", "UNINSTALL"];

/// Objects whose creation, change and removal leave the rows of tables unchanged.
const OBJECTS: [&str; 10] = [
    "EVENT",
    "FUNCTION",
    "INDEX",
    "PROCEDURE",
    "ROLE",
    "SERVER",
    "TABLESPACE",
    "TRIGGER",
    "USER",
    "VIEW",
];

/// Objects that only MariaDB has, and those that only MySQL has (until 9.7).
const OBJECTS_OF_MARIADB: [&str; 2] = ["PACKAGE", "SEQUENCE"];
const OBJECTS_OF_MYSQL: [&str; 5] = ["INSTANCE", "LIBRARY", "LOGFILE", "REFERENCE", "RESOURCE"];

/// Reads statements of a session.
struct Reader<'r> {
    session: Session<'r>,
}

impl Reader<'_> {
    fn effect(&self, tokens: &[Token<'_>]) -> Effect {
        let mut cursor = Cursor::new(tokens, self.session.schema);
        let Some(verb) = cursor.word() else { return Effect::Unknown };
        match verb.as_str() {
            verb if HARMLESS.contains(&verb) => Effect::None,
            "ANALYZE" => analyzed(&mut cursor),
            "ROLLBACK" if cursor.skip("TO") || cursor.skip("WORK") => Effect::None,
            "SET" => self.set(&mut cursor),
            "CREATE" => self.create(&mut cursor),
            "DROP" => self.drop(&mut cursor),
            "ALTER" => self.alter(&mut cursor),
            "RENAME" if cursor.skip("USER") => Effect::None,
            "RENAME" if cursor.skip("TABLE") || cursor.skip("TABLES") => renamed(&mut cursor),
            "TRUNCATE" => {
                cursor.skip("TABLE");
                named(&mut cursor)
            }
            "REPAIR" => {
                let _ = cursor.skip("LOCAL") || cursor.skip("NO_WRITE_TO_BINLOG");
                if cursor.skip("TABLE") { named(&mut cursor) } else { Effect::Unknown }
            }
            _ => Effect::Unknown,
        }
    }

    /// `SET STATEMENT name = value FOR statement` has the effect of its inner statement.
    fn set(&self, cursor: &mut Cursor<'_>) -> Effect {
        if !cursor.skip("STATEMENT") {
            let is_known = ["PASSWORD", "DEFAULT", "RESOURCE"].iter().any(|word| cursor.skip(word));
            return if is_known { Effect::None } else { Effect::Unknown };
        }
        while !cursor.is_at_end() && !cursor.skip("FOR") {
            cursor.step();
        }
        match cursor.rest() {
            [first, ..] if changes_rows(first) => Effect::Rows,
            rest => self.effect(rest),
        }
    }

    fn is_harmless(&self, object: &str) -> bool {
        let more: &[&str] = match self.session.flavour {
            Flavour::MariaDb => &OBJECTS_OF_MARIADB,
            Flavour::MySql => &OBJECTS_OF_MYSQL,
        };
        OBJECTS.contains(&object) || more.contains(&object)
    }

    /// The object of `CREATE`, `ALTER` or `DROP`, and the words before it.
    fn object(&self, cursor: &mut Cursor<'_>) -> Option<(Vec<String>, String)> {
        let mut before = Vec::new();
        loop {
            let word = cursor.word()?;
            if word == "DEFINER" {
                // Only views, triggers, routines and events have one.
                return Some((before, "VIEW".to_owned()));
            }
            let is_table = ["TABLE", "TABLES", "DATABASE", "SCHEMA"].contains(&word.as_str());
            if is_table || self.is_harmless(&word) {
                return Some((before, word));
            }
            before.push(word);
            // ALGORITHM = MERGE
            cursor.skip_sign('=');
        }
    }

    fn create(&self, cursor: &mut Cursor<'_>) -> Effect {
        let Some((before, object)) = self.object(cursor) else { return Effect::Unknown };
        let has = |word: &str| before.iter().any(|one| one == word);
        match object.as_str() {
            "TABLE" | "SEQUENCE" => {
                let _ = cursor.skip("IF") && cursor.skip("NOT") && cursor.skip("EXISTS");
                let table = cursor.table();
                let is_replaced = has("REPLACE") && !has("TEMPORARY");
                match (has_query(cursor), table) {
                    // A new table without rows changes none.
                    (false, _) if !is_replaced => Effect::None,
                    (false, Some(table)) => Effect::Tables(vec![table]),
                    // A function in the query may change rows of any table.
                    (true, _) if !is_replaced => Effect::Rows,
                    _ => Effect::Unknown,
                }
            }
            "DATABASE" | "SCHEMA" if has("REPLACE") => database(cursor),
            _ => Effect::None,
        }
    }

    fn drop(&self, cursor: &mut Cursor<'_>) -> Effect {
        let Some((before, object)) = self.object(cursor) else { return Effect::Unknown };
        match object.as_str() {
            "TABLE" | "TABLES" if before == ["TEMPORARY"] => Effect::None,
            "TABLE" | "TABLES" => named(cursor),
            "DATABASE" | "SCHEMA" => database(cursor),
            _ => Effect::None,
        }
    }

    fn alter(&self, cursor: &mut Cursor<'_>) -> Effect {
        let Some((before, object)) = self.object(cursor) else { return Effect::Unknown };
        match object.as_str() {
            // IGNORE drops rows that a new unique key does not allow.
            "TABLE" => {
                let drops_rows = before.iter().any(|word| word == "IGNORE");
                alter::effect(cursor, drops_rows, |table| self.session.followed.may_cascade(table))
            }
            "TABLES" => Effect::Unknown,
            _ => Effect::None,
        }
    }
}

/// True if a query follows the name of a new table. A log of rows does not have it. In parentheses,
/// `VALUES` is also a part of a partition, after its name.
fn has_query(cursor: &Cursor<'_>) -> bool {
    const LISTS: [&str; 2] = ["VALUES", "TABLE"];
    let starts_list = |pair: &[Token<'_>]| {
        pair[0] == Token::Sign('(') && LISTS.iter().any(|word| is_word(&pair[1], word))
    };
    cursor.rest().iter().any(|token| is_word(token, "SELECT"))
        || cursor.has_outside(&LISTS)
        || cursor.rest().windows(2).any(starts_list)
}

/// True for this word, in any case.
fn is_word(token: &Token<'_>, word: &str) -> bool {
    matches!(token, Token::Word(one) if one.eq_ignore_ascii_case(word))
}

/// `ANALYZE TABLE` reads tables. In MariaDB, `ANALYZE UPDATE ..` executes the inner statement.
fn analyzed(cursor: &mut Cursor<'_>) -> Effect {
    let _ = cursor.skip("LOCAL") || cursor.skip("NO_WRITE_TO_BINLOG");
    if cursor.skip("TABLE") || cursor.skip("TABLES") { Effect::None } else { Effect::Rows }
}

/// A list of tables: `a, s.b`.
fn named(cursor: &mut Cursor<'_>) -> Effect {
    let _ = cursor.skip("IF") && cursor.skip("EXISTS");
    let mut tables = Vec::new();
    loop {
        let Some(table) = cursor.table() else { return Effect::Unknown };
        tables.push(table);
        if !cursor.skip_sign(',') {
            return Effect::Tables(tables);
        }
    }
}

/// Pairs of tables: `a TO b, c TO d`.
fn renamed(cursor: &mut Cursor<'_>) -> Effect {
    let _ = cursor.skip("IF") && cursor.skip("EXISTS");
    let mut tables = Vec::new();
    loop {
        tables.extend(cursor.table());
        cursor.skip_wait();
        if !cursor.skip("TO") {
            return Effect::Unknown;
        }
        tables.extend(cursor.table());
        if !cursor.skip_sign(',') {
            break;
        }
    }
    // If a name is unreadable, it is missing.
    if tables.len() >= 2 && tables.len().is_multiple_of(2) && cursor.is_at_end() {
        Effect::Tables(tables)
    } else {
        Effect::Unknown
    }
}

fn database(cursor: &mut Cursor<'_>) -> Effect {
    let _ = cursor.skip("IF") && cursor.skip("EXISTS");
    cursor.name().map_or(Effect::Unknown, Effect::Database)
}

#[cfg(test)]
mod tests;
