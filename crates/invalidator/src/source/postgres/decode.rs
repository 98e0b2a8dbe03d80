//! Messages of `pgoutput`, version 1: transactions come whole and in the order of their commits;
//! what was rolled back never comes.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use pg_walstream::{LogicalReplicationMessage as Message, LogicalReplicationParser, TupleData};

use crate::change::{Cell, Change, Event, Mark, Row, Table};
use crate::keys::Rules;
use crate::position::Position;

/// The state of decoding, and the decoded events that were not popped yet.
pub(super) struct Decoder {
    parser: LogicalReplicationParser,
    wanted: BTreeSet<String>,
    relations: HashMap<u32, Relation>,
    pending: VecDeque<Event>,
    is_open: bool,
    /// The number of the last transaction.
    xid: u32,
    /// The end of the last transaction.
    position: u64,
}

struct Relation {
    name: String,
    /// Ours, if rules look at it.
    table: Option<Arc<Table>>,
    /// Places of the columns that identify a row; an old row that is a key has no others.
    identifying: Vec<bool>,
}

/// PostgreSQL counts microseconds from the year 2000.
const EPOCH_US: i64 = 946_684_800_000_000;

impl Decoder {
    pub(super) fn new(rules: &Rules, start: u64) -> Self {
        Self {
            parser: LogicalReplicationParser::with_protocol_version(1),
            wanted: rules.columns().keys().map(ToString::to_string).collect(),
            relations: HashMap::new(),
            pending: VecDeque::new(),
            is_open: false,
            xid: 0,
            position: start,
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.pending.pop_front()
    }

    /// True inside a transaction.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The end of the last transaction.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn push(&mut self, data: Bytes) {
        match self.parser.parse_wal_message_bytes(data) {
            Ok(message) => self.message(message.message),
            Err(error) => {
                self.pending.push_back(Event::Gap { why: format!("a message of the log: {error}") })
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Begin { xid, .. } => {
                self.is_open = true;
                self.xid = xid;
            }
            Message::Commit { end_lsn, timestamp, .. } => {
                self.is_open = false;
                self.position = end_lsn;
                let committed_us = u64::try_from(timestamp.saturating_add(EPOCH_US)).unwrap_or(0);
                let (position, mark) = (Position::Lsn(end_lsn), Mark::Xid(self.xid));
                self.pending.push_back(Event::Commit { position, committed_us, mark });
            }
            Message::Relation { relation_id, namespace, relation_name, columns, .. } => {
                let name = format!("{namespace}.{relation_name}");
                let identifying = columns.iter().map(|column| column.flags & 1 == 1).collect();
                let table = self.wanted.contains(&name).then(|| {
                    let columns = columns.iter().map(|column| column.name.to_string()).collect();
                    Arc::new(Table { name: name.clone(), columns })
                });
                self.relations.insert(relation_id, Relation { name, table, identifying });
            }
            Message::Insert { relation_id, tuple } => {
                self.row(relation_id, None, Some(&tuple), false)
            }
            Message::Update { relation_id, old_tuple, new_tuple, key_type } => {
                self.update(relation_id, old_tuple.as_ref(), &new_tuple, key_type == Some('K'));
            }
            Message::Delete { relation_id, old_tuple, key_type } => {
                self.row(relation_id, Some(&old_tuple), None, key_type == 'K');
            }
            Message::Truncate { relation_ids, .. } => {
                let name = |id: &u32| self.relations.get(id).map(|relation| relation.name.clone());
                let tables = relation_ids.iter().filter_map(name).collect();
                self.pending.push_back(Event::Change(Change::Emptied { tables }));
            }
            Message::Message { flags, prefix, content, .. } => {
                let is_transactional = flags & 1 == 1;
                self.pending.push_back(Event::Change(Change::Message { prefix, content }));
                if !is_transactional {
                    // It counts at once and has no commit of its own; one comes between
                    // transactions, never in one.
                    let position = Position::Lsn(self.position);
                    let mark = Mark::Unknown;
                    self.pending.push_back(Event::Commit { position, committed_us: 0, mark });
                }
            }
            Message::Type { .. } | Message::Origin { .. } => {}
            other => {
                self.pending.push_back(Event::Gap {
                    why: format!("a message that was not asked for: {other:?}"),
                });
            }
        }
    }

    /// Without an old row its identifying columns did not change; the check saw to it that no
    /// others are used then.
    fn update(&mut self, relation: u32, old: Option<&TupleData>, new: &TupleData, is_key: bool) {
        match old {
            Some(old) => self.row(relation, Some(old), Some(new), is_key),
            None => self.row(relation, Some(new), Some(new), true),
        }
    }

    fn row(
        &mut self,
        relation: u32,
        old: Option<&TupleData>,
        new: Option<&TupleData>,
        is_key: bool,
    ) {
        let Some(relation) = self.relations.get(&relation) else {
            self.pending.push_back(Event::Gap {
                why: format!("rows of relation {relation}, which was not described"),
            });
            return;
        };
        let Some(table) = &relation.table else { return };
        let before = old
            .map(|tuple| cells(tuple, |at| !is_key || relation.identifying.get(at) == Some(&true)));
        let after = new.map(|tuple| cells(tuple, |_| true));
        self.pending.push_back(Event::Change(Change::Row {
            table: Arc::clone(table),
            before,
            after,
        }));
    }
}

fn cells(tuple: &TupleData, is_there: impl Fn(usize) -> bool) -> Row {
    let cell = |(at, column): (usize, &pg_walstream::ColumnData)| {
        if !is_there(at) || column.is_unchanged() {
            Cell::Absent
        } else if column.is_null() {
            Cell::Null
        } else {
            Cell::Text(Bytes::copy_from_slice(column.as_bytes()))
        }
    };
    tuple.columns.iter().enumerate().map(cell).collect()
}
