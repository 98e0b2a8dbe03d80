//! Turns the messages of `pgoutput` into events. Transactions arrive whole and in commit order;
//! rolled-back changes never arrive.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::EPOCH_US;
use super::history::History;
use super::message::{Column, Message, OldRow, Tuple, Value};
use crate::change::{Cell, Change, Effect, Event, Mark, Row, Table};
use crate::keys::Rules;
use crate::position::Position;

/// The state of decoding, and the decoded events that were not popped yet.
#[derive(Debug)]
pub struct Decoder {
    wanted: BTreeSet<String>,
    /// See [`Self::set_relations`].
    owners: BTreeMap<u32, Vec<String>>,
    /// See [`Self::set_gone`].
    gone: BTreeSet<u32>,
    relations: HashMap<u32, Relation>,
    pending: VecDeque<Event>,
    is_open: bool,
    /// The number of the last transaction.
    xid: u32,
    /// The end of the last transaction.
    position: u64,
    /// The timelines of positions.
    history: History,
    has_new_table: bool,
    /// See [`Self::set_change_prefix`].
    told_prefix: String,
    was_told: bool,
}

#[derive(Debug)]
struct Relation {
    /// Its own name, or those of the wanted tables that its rows belong to.
    names: Vec<String>,
    /// The wanted ones among these.
    tables: Vec<Arc<Table>>,
    /// True until the gap of its first rows: see [`Decoder::set_gone`].
    is_gone: bool,
    /// Whether each column is part of the replica identity. An old row sent as a key has no other
    /// columns.
    identifying: Vec<bool>,
}

impl Decoder {
    /// Decodes the tables of the rules from `start` on, a place in the log in bytes.
    #[must_use]
    pub fn new(rules: &Rules, start: u64) -> Self {
        Self {
            wanted: rules.columns().keys().map(ToString::to_string).collect(),
            owners: BTreeMap::new(),
            gone: BTreeSet::new(),
            relations: HashMap::new(),
            pending: VecDeque::new(),
            is_open: false,
            xid: 0,
            position: start,
            history: History::default(),
            has_new_table: false,
            told_prefix: String::new(),
            was_told: false,
        }
    }

    /// Sets the prefix of messages that report table changes which the log does not show: each has
    /// the name of a table, a line end, and the statement that changed it.
    pub fn set_change_prefix(&mut self, prefix: String) {
        self.told_prefix = prefix;
    }

    /// Sets the timelines of the log.
    pub fn set_history(&mut self, history: History) {
        self.history = history;
    }

    /// The position after everything up to this place in the log, in bytes.
    #[must_use]
    pub fn position_at(&self, lsn: u64) -> Position {
        self.history.position(lsn)
    }

    /// Sets the wanted tables that each of these relations belongs to: itself, and those that it is
    /// a partition of. A relation without an entry is a wanted table if it has its name.
    pub fn set_relations(&mut self, owners: BTreeMap<u32, Vec<String>>) {
        self.owners = owners;
    }

    /// Marks this relation, which is described next, as a possible former partition of a wanted
    /// table. Its rows are a gap.
    pub fn set_gone(&mut self, relation: u32) {
        self.gone.insert(relation);
    }

    /// The current transaction, and the relation that this message describes, if its wanted tables
    /// are unknown.
    #[must_use]
    pub fn unknown(&self, data: &[u8]) -> Option<(u32, u32)> {
        let Ok(Message::Relation { id, .. }) = Message::parse(data) else { return None };
        (!self.owners.contains_key(&id)).then_some((self.xid, id))
    }

    /// True once after the description of a wanted table changed.
    pub const fn has_new_table(&mut self) -> bool {
        std::mem::replace(&mut self.has_new_table, false)
    }

    /// True once after the log reported that a wanted table changed.
    pub const fn was_told(&mut self) -> bool {
        std::mem::replace(&mut self.was_told, false)
    }

    /// The next event of the pushed messages; none after the last one.
    pub fn pop(&mut self) -> Option<Event> {
        self.pending.pop_front()
    }

    /// True inside a transaction.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The end of the last transaction, a place in the log in bytes.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Decodes one message. A malformed one is an [`Event::Gap`].
    pub fn push(&mut self, data: &[u8]) {
        match Message::parse(data) {
            Ok(message) => self.message(message),
            Err(error) => {
                self.pending.push_back(Event::Gap { why: format!("a message of the log: {error}") })
            }
        }
    }

    fn message(&mut self, message: Message<'_>) {
        match message {
            Message::Begin { xid } => {
                self.is_open = true;
                self.xid = xid;
            }
            Message::Commit { end, committed } => {
                self.is_open = false;
                self.position = end;
                let committed_us = u64::try_from(committed.saturating_add(EPOCH_US)).unwrap_or(0);
                let (position, mark) = (self.position_at(end), Mark::Xid(self.xid));
                self.pending.push_back(Event::Commit { position, committed_us, mark });
            }
            Message::Relation { id, schema, name, columns } => {
                self.relation(id, format!("{schema}.{name}"), &columns);
            }
            Message::Insert { relation, new } => self.row(relation, None, Some(&new)),
            // Without an old row, its identifying columns did not change; the check ensured that no
            // others are used then.
            Message::Update { relation, old: None, new } => {
                self.row(relation, Some((OldRow::Key, &new)), Some(&new));
            }
            Message::Update { relation, old: Some((kind, old)), new } => {
                self.row(relation, Some((kind, &old)), Some(&new));
            }
            Message::Delete { relation, old: (kind, old) } => {
                self.row(relation, Some((kind, &old)), None);
            }
            Message::Truncate { relations } => {
                relations.iter().for_each(|relation| self.gap_if_gone(*relation));
                let names =
                    |id: &u32| self.relations.get(id).map(|relation| relation.names.clone());
                let tables = relations.iter().filter_map(names).flatten().collect();
                self.lost(tables, "TRUNCATE".to_owned());
            }
            Message::Logical { prefix, content, .. } if prefix == self.told_prefix => {
                let content = String::from_utf8_lossy(content);
                let (table, text) = content.split_once('\n').unwrap_or((&content, ""));
                self.lost(vec![table.to_owned()], text.to_owned());
            }
            Message::Logical { is_transactional, prefix, content } => {
                let (prefix, content) = (prefix.into_owned(), Bytes::copy_from_slice(content));
                self.pending.push_back(Event::Change(Change::Message { prefix, content }));
                if !is_transactional {
                    // It counts at once and has no separate commit; it comes between transactions,
                    // never in one.
                    let position = self.position_at(self.position);
                    let mark = Mark::Unknown;
                    self.pending.push_back(Event::Commit { position, committed_us: 0, mark });
                }
            }
            Message::Type | Message::Origin => {}
        }
    }

    /// A relation is described, by its name at that time.
    fn relation(&mut self, id: u32, name: String, columns: &[Column<'_>]) {
        let mut names = self.owners.get(&id).cloned().unwrap_or_default();
        if names.is_empty() || self.wanted.contains(&name) && !names.contains(&name) {
            names.push(name);
        }
        let table = |name: &String| {
            let columns = columns.iter().map(|column| column.name.clone().into_owned()).collect();
            Arc::new(Table { name: name.clone(), columns })
        };
        let tables: Vec<_> =
            names.iter().filter(|name| self.wanted.contains(*name)).map(table).collect();
        self.has_new_table |= !tables.is_empty();
        let identifying = columns.iter().map(|column| column.is_identifying).collect();
        let is_gone = self.gone.remove(&id) && tables.is_empty();
        self.relations.insert(id, Relation { names, tables, is_gone, identifying });
    }

    /// One gap is enough for all rows of a lost relation: they were all committed before.
    fn gap_if_gone(&mut self, relation: u32) {
        let Some(relation) = self.relations.get_mut(&relation) else { return };
        if std::mem::take(&mut relation.is_gone) {
            self.pending.push_back(Event::Gap {
                why: format!(
                    "rows of {}, which may have been a partition: it was dropped or detached \
                     before they were read. Run holdall invalidate setup, or ALTER PUBLICATION .. \
                     SET (publish_via_partition_root = true)",
                    relation.names.join(", ")
                ),
            });
        }
    }

    /// The rows of these tables changed, for this reason.
    fn lost(&mut self, tables: Vec<String>, text: String) {
        self.was_told |= tables.iter().any(|table| self.wanted.contains(table));
        let (keys, effect) = (Vec::new(), Effect::Tables(tables));
        self.pending.push_back(Event::Change(Change::Statement { keys, effect, text }));
    }

    fn row(&mut self, relation: u32, old: Option<(OldRow, &Tuple<'_>)>, new: Option<&Tuple<'_>>) {
        self.gap_if_gone(relation);
        let Some(relation) = self.relations.get(&relation) else {
            self.pending.push_back(Event::Gap {
                why: format!("rows of relation {relation}, which was not described"),
            });
            return;
        };
        let Some((table, others)) = relation.tables.split_last() else { return };
        let before = old.map(|(kind, tuple)| {
            let is_there =
                |at| kind == OldRow::Whole || relation.identifying.get(at) == Some(&true);
            cells(tuple, is_there)
        });
        let after = new.map(|tuple| cells(tuple, |_| true));
        for table in others {
            let (before, after) = (before.clone(), after.clone());
            let change = Change::Row { table: Arc::clone(table), before, after };
            self.pending.push_back(Event::Change(change));
        }
        let change = Change::Row { table: Arc::clone(table), before, after };
        self.pending.push_back(Event::Change(change));
    }
}

fn cells(tuple: &Tuple<'_>, is_there: impl Fn(usize) -> bool) -> Row {
    let cell = |(at, value): (usize, &Value<'_>)| match value {
        _ if !is_there(at) => Cell::Absent,
        Value::Unchanged => Cell::Absent,
        Value::Null => Cell::Null,
        Value::Text(text) => Cell::Text(Bytes::copy_from_slice(text)),
    };
    tuple.iter().enumerate().map(cell).collect()
}
