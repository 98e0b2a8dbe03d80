//! The keys that a change makes stale: applies the declared rules to the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::canary_rule::{self, CanaryRule};
use crate::change::{Cell, Change, Effect, Row, Table};
use crate::template::{Bound, Expanded, Template};

/// The longest key that a server accepts, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// The longest key that is not plain: it is sent as base64, and a server measures the base64.
pub const ENCODED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

/// True for keys that text can carry unchanged.
#[must_use]
pub fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

/// True for keys that a command can name.
pub(crate) fn is_sendable(key: &[u8]) -> bool {
    let most = if is_plain(key) { KEY_BYTES_MAX } else { ENCODED_KEY_BYTES_MAX };
    (1..=most).contains(&key.len())
}

/// A table into which the application inserts keys inside its transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbox {
    /// `schema.name`.
    pub table: String,
    /// The column with the key.
    pub column: String,
}

/// The rules that turn changes into keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Read the comments of statements.
    pub comments: bool,
    /// Read messages with this prefix.
    pub messages: Option<String>,
    /// Read inserts into this table.
    pub outbox: Option<Outbox>,
    /// Templates by table, `schema.name`.
    pub tables: BTreeMap<String, Vec<Template>>,
    /// The canary's change.
    pub canary: Option<CanaryRule>,
}

impl Rules {
    /// True for the table with the canary's row.
    #[must_use]
    pub fn is_canary(&self, table: &str) -> bool {
        self.canary.as_ref().and_then(|rule| rule.table.as_deref()) == Some(table)
    }

    /// True when rules use rows, so the log must carry rows.
    #[must_use]
    pub fn need_rows(&self) -> bool {
        self.outbox.is_some() || !self.tables.is_empty()
    }

    /// Every table of the rules, with the columns that they use.
    #[must_use]
    pub fn columns(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (table, templates) in &self.tables {
            let columns = all.entry(table).or_default();
            columns.extend(templates.iter().flat_map(Template::columns));
        }
        if let Some(outbox) = &self.outbox {
            all.entry(&outbox.table).or_default().push(&outbox.column);
        }
        if let Some(table) = self.canary.as_ref().and_then(|rule| rule.table.as_deref()) {
            all.entry(table).or_default().extend(canary_rule::COLUMNS);
        }
        for columns in all.values_mut() {
            columns.sort_unstable();
            columns.dedup();
        }
        all
    }
}

/// A change whose keys are unknown: the reason, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);

/// The rules, bound to tables as the log describes them.
#[derive(Debug)]
pub struct Keyer {
    rules: Rules,
    /// Keyed by the address of the table's description, which the entry keeps alive.
    bound: HashMap<usize, (Arc<Table>, Arc<TableRules>)>,
}

#[derive(Debug, Default)]
struct TableRules {
    templates: Vec<(String, Bound)>,
    outbox: Option<usize>,
    /// The columns of the canary's table.
    canary: Option<[usize; 2]>,
}

/// Maximum number of remembered descriptions; a log has a new one per table after each rotation.
const BOUND_MAX: usize = 1024;

impl Keyer {
    /// A keyer for these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, bound: HashMap::new() }
    }

    /// Calls `found` with each key that the change makes stale.
    ///
    /// # Errors
    ///
    /// When rules apply to the change and its keys are not in the log.
    pub fn keys(&mut self, change: &Change, mut found: impl FnMut(Bytes)) -> Result<(), Unknown> {
        match change {
            Change::Row { table, before, after } => {
                let rules = self.bind(table)?;
                let (before, after) = (before.as_ref(), after.as_ref());
                if let (Some(columns), Some(canary)) = (rules.canary, &self.rules.canary)
                    && let Some(beat) = beat(&canary.name, columns, before, after)
                {
                    canary.keys(beat).for_each(&mut found);
                }
                row_keys(table, &rules, before, after, found)
            }
            Change::Keys(keys) => {
                keys.iter().for_each(|key| found(key.clone()));
                Ok(())
            }
            Change::Message { prefix, content } => {
                if let Some(canary) = &self.rules.canary
                    && let Some(beat) = canary.beat_of(prefix, content)
                {
                    canary.keys(beat).for_each(&mut found);
                }
                if self.rules.messages.as_ref() == Some(prefix) {
                    for key in content.split(u8::is_ascii_whitespace).filter(|key| !key.is_empty())
                    {
                        found(content.slice_ref(key));
                    }
                }
                Ok(())
            }
            Change::Statement { keys, effect, text } => {
                self.statement_keys(keys, effect, text, found)
            }
        }
    }

    fn statement_keys(
        &self,
        keys: &[Bytes],
        effect: &Effect,
        text: &str,
        mut found: impl FnMut(Bytes),
    ) -> Result<(), Unknown> {
        let keys = if self.rules.comments { keys } else { &[] };
        let wanted = |is_lost: &dyn Fn(&String) -> bool| {
            self.rules.tables.keys().find(|table| is_lost(table))
        };
        let why = match effect {
            // A statement that names its keys needs no rows.
            Effect::Rows | Effect::RowsWithoutComments if keys.is_empty() && self.rules.need_rows() => Some(
                "a change is logged as a statement, not as rows, so its keys are not known: set binlog_format=ROW for every session"
                    .to_owned(),
            ),
            Effect::RowsWithoutComments if keys.is_empty() && self.rules.comments => Some(
                "the database logs a statement without its comments, which may name keys".to_owned(),
            ),
            Effect::Unknown if self.rules.need_rows() => {
                Some("what a statement does to rows is not known".to_owned())
            }
            Effect::Tables(lost) => {
                let is_lost = |table: &String| lost.iter().any(|one| may_be_same(one, table));
                wanted(&is_lost).map(|table| format!(
                    "table {table} was emptied, swapped or rewritten at once, or lost a foreign key that may have changed rows, and the log does not tell which rows it had"
                ))
            }
            Effect::Database(lost) => {
                let is_lost = |table: &String| {
                    table.split_once('.').is_some_and(|(schema, _)| may_be_same(schema, lost))
                };
                wanted(&is_lost).map(|table| format!("table {table} was removed with its database"))
            }
            Effect::None | Effect::Rows | Effect::RowsWithoutComments | Effect::Unknown => None,
        };
        if let Some(why) = why {
            let begin: String = text.trim_start().chars().take(80).collect();
            return Err(Unknown(format!("{why}: '{begin}'")));
        }
        keys.iter().for_each(|key| found(key.clone()));
        Ok(())
    }

    fn bind(&mut self, table: &Arc<Table>) -> Result<Arc<TableRules>, Unknown> {
        let address = Arc::as_ptr(table) as usize;
        if let Some((_, rules)) = self.bound.get(&address) {
            return Ok(Arc::clone(rules));
        }
        let lacks = |column: &str| {
            Unknown(format!(
                "table {} has no column '{column}' at this place of the log",
                table.name
            ))
        };
        let mut rules = TableRules::default();
        for template in self.rules.tables.get(&table.name).into_iter().flatten() {
            let bound = template.bind(&table.columns).map_err(|missing| lacks(&missing.0))?;
            rules.templates.push((template.to_string(), bound));
        }
        if let Some(outbox) = &self.rules.outbox
            && outbox.table == table.name
        {
            let at = table.columns.iter().position(|column| *column == outbox.column);
            rules.outbox = Some(at.ok_or_else(|| lacks(&outbox.column))?);
        }
        if self.rules.is_canary(&table.name) {
            let column = |name| table.columns.iter().position(|column| *column == name);
            // Without them, the canary is late, which is reported.
            if let [Some(beat), Some(name)] = canary_rule::COLUMNS.map(column) {
                rules.canary = Some([beat, name]);
            }
        }
        if self.bound.len() >= BOUND_MAX {
            self.bound.clear();
        }
        let rules = Arc::new(rules);
        self.bound.insert(address, (Arc::clone(table), Arc::clone(&rules)));
        Ok(rules)
    }
}

/// True if a server that folds names may take both for the same.
///
/// Servers fold each character to one lower case character, also where the full lower case has
/// several (`İ`). Two names that differ in case only are the same where a server does not fold,
/// too: a gap too many does no harm.
#[must_use]
pub fn may_be_same(one: &str, other: &str) -> bool {
    one.chars().map(folded).eq(other.chars().map(folded))
}

fn folded(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

/// The beat in a row of the canary's table for the invalidator of this name.
fn beat(
    own: &str,
    [beat, name]: [usize; 2],
    before: Option<&Row>,
    after: Option<&Row>,
) -> Option<u64> {
    let text = |row: Option<&Row>, at: usize| match row?.get(at)? {
        Cell::Text(text) => Some(text.clone()),
        _ => None,
    };
    // A minimal image has the key only in the row before.
    let name = text(after, name).or_else(|| text(before, name))?;
    if name != own.as_bytes() {
        return None;
    }
    std::str::from_utf8(&text(after, beat)?).ok()?.parse().ok()
}

fn row_keys(
    table: &Table,
    rules: &TableRules,
    before: Option<&Row>,
    after: Option<&Row>,
    mut found: impl FnMut(Bytes),
) -> Result<(), Unknown> {
    const ABSENT: Cell = Cell::Absent;
    let old = |at: usize| before.and_then(|row| row.get(at)).unwrap_or(&ABSENT);
    // An image of only the changed columns omits unchanged ones.
    let new = |at: usize| match after.and_then(|row| row.get(at)).unwrap_or(&ABSENT) {
        Cell::Absent => old(at),
        there => there,
    };
    let absent = |template: &str, at: usize| {
        let column = table.columns.get(at).map_or("?", String::as_str);
        Unknown(format!(
            "table {}: the log's row image does not carry column '{column}' as text, which '{template}' needs; log full images",
            table.name
        ))
    };
    for (template, bound) in &rules.templates {
        if before.is_some() {
            match bound.expand(old) {
                Expanded::Key(key) => found(key),
                Expanded::Null => {}
                Expanded::Absent(at) => return Err(absent(template, at)),
            }
        }
        if after.is_some() {
            match bound.expand(new) {
                Expanded::Key(key) => found(key),
                Expanded::Null => {}
                Expanded::Absent(at) => return Err(absent(template, at)),
            }
        }
    }
    if let (Some(at), None, Some(row)) = (rules.outbox, before, after) {
        match row.get(at) {
            Some(Cell::Text(key)) => found(key.clone()),
            Some(Cell::Null) => {}
            _ => return Err(absent("outbox", at)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let parse = |text: &str| Template::parse(text).unwrap();
        Rules {
            comments: true,
            messages: Some("mc".to_owned()),
            outbox: Some(Outbox { table: "s.outbox".to_owned(), column: "k".to_owned() }),
            tables: BTreeMap::from([(
                "s.users".to_owned(),
                vec![parse("user:{id}"), parse("mail:{mail}")],
            )]),
            canary: Some(CanaryRule {
                table: Some("s.canary".to_owned()),
                name: "me".to_owned(),
                prefixes: vec!["p:".to_owned()],
                keys: 1,
            }),
        }
    }

    fn table(name: &str, columns: &[&str]) -> Arc<Table> {
        let columns = columns.iter().map(ToString::to_string).collect();
        Arc::new(Table { name: name.to_owned(), columns })
    }

    fn row(cells: &[&str]) -> Row {
        let cell = |text: &&str| match *text {
            "-" => Cell::Absent,
            "NULL" => Cell::Null,
            text => Cell::Text(Bytes::copy_from_slice(text.as_bytes())),
        };
        cells.iter().map(cell).collect()
    }

    fn keys(change: &Change) -> Result<Vec<String>, Unknown> {
        let mut keys = Vec::new();
        let found = |key: Bytes| keys.push(String::from_utf8(key.to_vec()).unwrap());
        Keyer::new(rules()).keys(change, found)?;
        Ok(keys)
    }

    fn user_change(before: Option<&[&str]>, after: Option<&[&str]>) -> Change {
        let table = table("s.users", &["id", "mail"]);
        Change::Row { table, before: before.map(row), after: after.map(row) }
    }

    #[test]
    fn an_update_deletes_the_old_and_the_new_keys() {
        let change = user_change(Some(&["7", "a@x"]), Some(&["7", "b@x"]));
        assert_eq!(keys(&change).unwrap(), ["user:7", "user:7", "mail:a@x", "mail:b@x"]);
        assert_eq!(keys(&user_change(None, Some(&["7", "NULL"]))).unwrap(), ["user:7"]);
        assert_eq!(keys(&user_change(Some(&["7", "a@x"]), None)).unwrap(), ["user:7", "mail:a@x"]);
    }

    #[test]
    fn columns_omitted_by_an_update_are_unchanged() {
        let change = user_change(Some(&["7", "a@x"]), Some(&["-", "b@x"]));
        assert_eq!(keys(&change).unwrap(), ["user:7", "user:7", "mail:a@x", "mail:b@x"]);
    }

    #[test]
    fn a_row_image_without_a_key_column_is_an_error() {
        assert!(keys(&user_change(Some(&["7", "-"]), None)).unwrap_err().0.contains("'mail'"));
        let change = Change::Row {
            table: table("s.users", &["id"]),
            before: None,
            after: Some(row(&["7"])),
        };
        assert!(keys(&change).unwrap_err().0.contains("no column 'mail'"));
    }

    #[test]
    fn the_outbox_counts_only_inserts() {
        let outbox = || table("s.outbox", &["n", "k"]);
        let insert =
            Change::Row { table: outbox(), before: None, after: Some(row(&["1", "user:9"])) };
        assert_eq!(keys(&insert).unwrap(), ["user:9"]);
        let cleaned =
            Change::Row { table: outbox(), before: Some(row(&["1", "user:9"])), after: None };
        assert_eq!(keys(&cleaned).unwrap(), [""; 0]);
    }

    #[test]
    fn the_canary_row_yields_its_beat() {
        let change = |before: Option<&[&str]>, after: Option<&[&str]>| {
            let table = table("s.canary", &["name", "beat"]);
            keys(&Change::Row { table, before: before.map(row), after: after.map(row) })
        };
        let beat = ["p:me:0|#|7"];
        assert_eq!(change(None, Some(&["me", "7"])).unwrap(), beat);
        assert_eq!(change(Some(&["me", "6"]), Some(&["me", "7"])).unwrap(), beat);
        assert_eq!(change(Some(&["me", "-"]), Some(&["-", "7"])).unwrap(), beat, "minimal images");
        for (before, after) in [
            (None, Some(&["other", "7"])),
            (Some(&["me", "7"]), None),
            (None, Some(&["me", "NULL"])),
            (None, Some(&["me", "x"])),
        ] {
            let (before, after) =
                (before.map(|row: &[&str; 2]| &row[..]), after.map(|row| &row[..]));
            assert_eq!(change(before, after).unwrap(), [""; 0], "{before:?} {after:?}");
        }
        let table = table("s.canary", &["id"]);
        let other = Change::Row { table, before: None, after: Some(row(&["1"])) };
        assert_eq!(keys(&other).unwrap(), [""; 0], "another table under its name");
    }

    #[test]
    fn messages_and_comments_carry_keys() {
        let message =
            |prefix: &str| Change::Message { prefix: prefix.to_owned(), content: "a b\nc".into() };
        assert_eq!(keys(&message("mc")).unwrap(), ["a", "b", "c"]);
        assert_eq!(keys(&message("other")).unwrap(), [""; 0]);
    }

    fn statement(named: &[&'static str], effect: Effect) -> Change {
        let keys = named.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        Change::Statement { keys, effect, text: "UPDATE ..".to_owned() }
    }

    #[test]
    fn row_changes_without_keys_and_unknown_effects_are_errors() {
        assert_eq!(keys(&statement(&["k"], Effect::Rows)).unwrap(), ["k"]);
        assert_eq!(keys(&statement(&[], Effect::None)).unwrap(), [""; 0]);
        assert!(keys(&statement(&[], Effect::Rows)).is_err(), "rows are looked at");
        assert!(keys(&statement(&["k"], Effect::Unknown)).is_err());
    }

    #[test]
    fn statements_logged_without_their_comments_are_errors_where_comments_count() {
        let keys = |rules: Rules, named: &[&'static str]| {
            let mut found = Vec::new();
            let change = statement(named, Effect::RowsWithoutComments);
            Keyer::new(rules).keys(&change, |key| found.push(key)).map(|()| found)
        };
        let of_comments = || Rules { comments: true, ..Rules::default() };
        assert!(keys(of_comments(), &[]).is_err());
        assert_eq!(keys(of_comments(), &["k"]).unwrap(), ["k"]);
        assert_eq!(keys(Rules::default(), &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn a_dropped_or_truncated_table_with_templates_is_an_error() {
        let tables = |name: &str| statement(&["k"], Effect::Tables(vec![name.to_owned()]));
        assert!(keys(&tables("S.Users")).is_err(), "whatever its comments name");
        assert_eq!(keys(&tables("s.outbox")).unwrap(), ["k"]);
        assert!(keys(&statement(&[], Effect::Database("S".to_owned()))).is_err());
        assert_eq!(keys(&statement(&[], Effect::Database("t".to_owned()))).unwrap(), [""; 0]);
    }

    #[test]
    fn a_lost_table_is_compared_as_servers_fold_names() {
        let parse = |text: &str| Template::parse(text).unwrap();
        let names = ["Ädb.ärzte", "s.σς", "s.istanbul"];
        let tables = names.map(|name| (name.to_owned(), vec![parse("{id}")]));
        let rules = Rules { tables: BTreeMap::from(tables), ..Rules::default() };
        let is_lost = |effect: Effect| {
            Keyer::new(rules.clone()).keys(&statement(&[], effect), |_| {}).is_err()
        };
        for name in ["ädb.ÄRZTE", "ÄDB.Ärzte", "s.Σς", "S.İstanbul"] {
            assert!(is_lost(Effect::Tables(vec![name.to_owned()])), "{name}");
        }
        assert!(is_lost(Effect::Database("äDB".to_owned())));
        for name in ["ädb.arzte", "ädb.örzte", "ädb.ärzt", "s.stanbul"] {
            assert!(!is_lost(Effect::Tables(vec![name.to_owned()])), "{name}");
        }
        assert!(!is_lost(Effect::Database("adb".to_owned())));
    }

    #[test]
    fn other_tables_are_passed_over() {
        let change =
            Change::Row { table: table("s.other", &["a"]), before: None, after: Some(row(&["1"])) };
        assert_eq!(keys(&change).unwrap(), [""; 0]);
    }
}
