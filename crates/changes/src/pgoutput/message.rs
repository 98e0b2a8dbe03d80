//! Messages of PostgreSQL's plugin `pgoutput`, version 1 of its protocol, in which values are text.
//!
//! A message whose length does not match its contents is refused: unreadable messages must not be
//! skipped.

use std::borrow::Cow;

/// A message, borrowed from the bytes it was parsed from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'m> {
    /// A transaction starts.
    Begin {
        /// The lower half of its number.
        xid: u32,
    },
    /// The transaction is committed.
    Commit {
        /// The log's position after it.
        end: u64,
        /// Microseconds since the year 2000.
        committed: i64,
    },
    /// A table is described; comes before its first row, and again after it was altered.
    Relation { id: u32, schema: Cow<'m, str>, name: Cow<'m, str>, columns: Vec<Column<'m>> },
    /// A row is inserted.
    Insert { relation: u32, new: Tuple<'m> },
    /// A row is changed. The old one is omitted if its identifying columns are unchanged and the
    /// table does not have `REPLICA IDENTITY FULL`.
    Update { relation: u32, old: Option<(OldRow, Tuple<'m>)>, new: Tuple<'m> },
    /// A row is deleted.
    Delete { relation: u32, old: (OldRow, Tuple<'m>) },
    /// These tables are emptied.
    Truncate { relations: Vec<u32> },
    /// `pg_logical_emit_message`.
    Logical { is_transactional: bool, prefix: Cow<'m, str>, content: &'m [u8] },
    /// A data type is described.
    Type,
    /// The transaction came from another server.
    Origin,
}

/// A column of a [`Message::Relation`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Column<'m> {
    pub(super) name: Cow<'m, str>,
    /// True for a part of the replica identity.
    pub(super) is_identifying: bool,
}

/// The extent of an old row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldRow {
    /// The columns of the replica identity; the others are NULL.
    Key,
    /// All columns.
    Whole,
}

/// A row's values, in the order of its relation's columns.
pub(super) type Tuple<'m> = Vec<Value<'m>>;

/// One column's value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value<'m> {
    /// SQL's NULL.
    Null,
    /// A long value that the update did not change and the log does not repeat.
    Unchanged,
    /// The value's text.
    Text(&'m [u8]),
}

/// The fault of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("it is cut off")]
    CutOff,
    #[error("it is longer than its contents")]
    TooLong,
    #[error("a message of type {:?} was not asked for", char::from(*.0))]
    Unknown(u8),
    #[error("a row of type {:?} stands where none can be", char::from(*.0))]
    Row(u8),
    #[error("a value of type {:?} was not asked for", char::from(*.0))]
    Value(u8),
}

impl<'m> Message<'m> {
    /// Parses one message.
    ///
    /// # Errors
    ///
    /// When it is of an unknown type, or its length is wrong.
    pub(super) fn parse(bytes: &'m [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let message = reader.message()?;
        if reader.0.is_empty() { Ok(message) } else { Err(Malformed::TooLong) }
    }
}

/// The unread bytes of a message.
struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn message(&mut self) -> Result<Message<'m>, Malformed> {
        match self.u8()? {
            b'B' => {
                let (_end, _committed) = (self.u64()?, self.i64()?);
                Ok(Message::Begin { xid: self.u32()? })
            }
            b'C' => {
                let (_flags, _start) = (self.u8()?, self.u64()?);
                Ok(Message::Commit { end: self.u64()?, committed: self.i64()? })
            }
            b'R' => self.relation(),
            b'I' => {
                let relation = self.u32()?;
                Ok(Message::Insert { relation, new: self.row(b'N')? })
            }
            b'U' => {
                let relation = self.u32()?;
                let old = self.old_row()?;
                Ok(Message::Update { relation, old, new: self.row(b'N')? })
            }
            b'D' => {
                let relation = self.u32()?;
                let old = self.old_row()?;
                let old = old.ok_or_else(|| self.peek().map_or_else(|error| error, Malformed::Row));
                Ok(Message::Delete { relation, old: old? })
            }
            b'T' => {
                let (count, _options) = (self.u32()?, self.u8()?);
                let relations = (0..count).map(|_| self.u32());
                Ok(Message::Truncate { relations: relations.collect::<Result<_, _>>()? })
            }
            b'M' => {
                let (flags, _position) = (self.u8()?, self.u64()?);
                let prefix = self.name()?;
                let content = self.counted()?;
                Ok(Message::Logical { is_transactional: flags & 1 == 1, prefix, content })
            }
            b'Y' => {
                let (_id, _schema, _name) = (self.u32()?, self.name()?, self.name()?);
                Ok(Message::Type)
            }
            b'O' => {
                let (_position, _name) = (self.u64()?, self.name()?);
                Ok(Message::Origin)
            }
            other => Err(Malformed::Unknown(other)),
        }
    }

    fn relation(&mut self) -> Result<Message<'m>, Malformed> {
        let (id, schema, name) = (self.u32()?, self.name()?, self.name()?);
        let (_identity, count) = (self.u8()?, self.u16()?);
        let column = |_| {
            let is_identifying = self.u8()? & 1 == 1;
            let name = self.name()?;
            let (_type, _modifier) = (self.u32()?, self.u32()?);
            Ok(Column { name, is_identifying })
        };
        let columns = (0..count).map(column).collect::<Result<_, _>>()?;
        Ok(Message::Relation { id, schema, name, columns })
    }

    /// The old row, if one comes next.
    fn old_row(&mut self) -> Result<Option<(OldRow, Tuple<'m>)>, Malformed> {
        let tag = self.peek()?;
        let kind = match tag {
            b'K' => OldRow::Key,
            b'O' => OldRow::Whole,
            _ => return Ok(None),
        };
        Ok(Some((kind, self.row(tag)?)))
    }

    /// The row of this type.
    fn row(&mut self, tag: u8) -> Result<Tuple<'m>, Malformed> {
        let found = self.u8()?;
        if found != tag {
            return Err(Malformed::Row(found));
        }
        let count = self.u16()?;
        let value = |_| match self.u8()? {
            b'n' => Ok(Value::Null),
            b'u' => Ok(Value::Unchanged),
            b't' => Ok(Value::Text(self.counted()?)),
            other => Err(Malformed::Value(other)),
        };
        (0..count).map(value).collect()
    }

    fn peek(&self) -> Result<u8, Malformed> {
        self.0.first().copied().ok_or(Malformed::CutOff)
    }

    fn bytes(&mut self, count: usize) -> Result<&'m [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::CutOff)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Bytes after their count.
    fn counted(&mut self) -> Result<&'m [u8], Malformed> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    /// A text terminated by a zero byte. Any user can choose the prefix of a message, so a name
    /// that is not UTF-8 is no fault: with replacement characters, it is a name that no rule has.
    fn name(&mut self) -> Result<Cow<'m, str>, Malformed> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed::CutOff)?;
        let text = self.bytes(len)?;
        self.u8()?;
        Ok(String::from_utf8_lossy(text))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed::CutOff)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One message of each kind, in the layout of the protocol's documentation.
    fn messages() -> Vec<(Vec<u8>, Message<'static>)> {
        let text = |value: &'static str| Value::Text(value.as_bytes());
        let column =
            |name: &'static str, is_identifying| Column { name: name.into(), is_identifying };
        vec![
            (
                b"B\0\0\0\0\x01\0\0\x10\0\0\0\0\0\0\0\x07\0\0\x02\xf1".to_vec(),
                Message::Begin { xid: 753 },
            ),
            (
                b"C\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x20\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
                Message::Commit { end: 32, committed: -1 },
            ),
            (
                b"R\0\0\x40\x01public\0users\0d\0\x02\x01id\0\0\0\0\x14\xff\xff\xff\xff\
                  \0mail\0\0\0\0\x19\xff\xff\xff\xff"
                    .to_vec(),
                Message::Relation {
                    id: 0x4001,
                    schema: "public".into(),
                    name: "users".into(),
                    columns: vec![column("id", true), column("mail", false)],
                },
            ),
            (
                b"I\0\0\x40\x01N\0\x02t\0\0\0\x011n".to_vec(),
                Message::Insert { relation: 0x4001, new: vec![text("1"), Value::Null] },
            ),
            (
                b"U\0\0\x40\x01N\0\x02t\0\0\0\x011u".to_vec(),
                Message::Update {
                    relation: 0x4001,
                    old: None,
                    new: vec![text("1"), Value::Unchanged],
                },
            ),
            (
                b"U\0\0\x40\x01K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012t\0\0\0\0".to_vec(),
                Message::Update {
                    relation: 0x4001,
                    old: Some((OldRow::Key, vec![text("1"), Value::Null])),
                    new: vec![text("2"), text("")],
                },
            ),
            (
                b"D\0\0\x40\x01O\0\x01t\0\0\0\x03abc".to_vec(),
                Message::Delete { relation: 0x4001, old: (OldRow::Whole, vec![text("abc")]) },
            ),
            (
                b"T\0\0\0\x02\x01\0\0\x40\x01\0\0\x40\x02".to_vec(),
                Message::Truncate { relations: vec![0x4001, 0x4002] },
            ),
            (
                b"M\x01\0\0\0\0\0\0\0\x10mc\0\0\0\0\x02k1".to_vec(),
                Message::Logical { is_transactional: true, prefix: "mc".into(), content: b"k1" },
            ),
            (b"Y\0\0\x40\x01public\0mood\0".to_vec(), Message::Type),
            (b"O\0\0\0\0\0\0\0\x10elsewhere\0".to_vec(), Message::Origin),
        ]
    }

    #[test]
    fn messages_are_read_whole_or_refused() {
        for (bytes, message) in messages() {
            assert_eq!(Message::parse(&bytes).as_ref(), Ok(&message));
            for len in 0..bytes.len() {
                assert_eq!(Message::parse(&bytes[..len]), Err(Malformed::CutOff), "{message:?}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Message::parse(&longer), Err(Malformed::TooLong), "{message:?}");
        }
    }

    #[test]
    fn unrequested_message_kinds_are_refused() {
        for (bytes, fault) in [
            (&b"S\0\0\0\x01\x01"[..], Malformed::Unknown(b'S')),
            (b"I\0\0\0\x01K\0\0", Malformed::Row(b'K')),
            (b"D\0\0\0\x01N\0\0", Malformed::Row(b'N')),
            (b"I\0\0\0\x01N\0\x01b\0\0\0\0", Malformed::Value(b'b')),
        ] {
            assert_eq!(Message::parse(bytes), Err(fault));
        }
    }

    #[test]
    fn names_in_other_encodings_are_read() {
        let message = Message::parse(b"M\x01\0\0\0\0\0\0\0\x10m\xffc\0\0\0\0\x02k1");
        let prefix = "m\u{fffd}c".into();
        let wanted = Message::Logical { is_transactional: true, prefix, content: b"k1" };
        assert_eq!(message, Ok(wanted));
        let relation = Message::parse(b"R\0\0\0\x01\xff\0t\0d\0\x01\x01\xe9\0\0\0\0\x14\0\0\0\0");
        let columns = vec![Column { name: "\u{fffd}".into(), is_identifying: true }];
        let (schema, name) = ("\u{fffd}".into(), "t".into());
        assert_eq!(relation, Ok(Message::Relation { id: 1, schema, name, columns }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(kind in prop::sample::select(b"BCRIUDTMYO".to_vec()), rest: Vec<u8>) {
            let _ = Message::parse(&[&[kind][..], &rest].concat());
        }
    }
}
