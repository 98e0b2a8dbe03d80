//! Reads a segment from a place on: records, and gaps between them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::record::{self, Found, HEAD_BYTES, MARKER};
use crate::segment::Segment;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// One record, read back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its number; numbers of a destination increase by one.
    pub number: u64,
    /// The time at which it was appended, in seconds since 1970.
    pub secs: u64,
    /// The appended bytes.
    pub body: Vec<u8>,
}

/// A part of a segment.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Item {
    /// A whole record, which ends at `end`.
    Record { record: Record, end: u64 },
    /// No record up to `end`, where one starts.
    Damage { end: u64 },
    /// No record from `begin` to the end of the segment.
    Torn { begin: u64 },
}

/// Reads through a segment.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    file: &'a File,
    salt: u32,
    /// The number of the segment's first record.
    first: u64,
    /// The end of the segment.
    len: u64,
    /// Read but unused: the bytes from `at` on.
    held: Vec<u8>,
    used: usize,
    at: u64,
}

impl<'a> Scanner<'a> {
    /// Starts at `at`, and ends at the segment's end.
    pub(crate) fn new(file: &'a File, segment: &Segment, at: u64) -> Self {
        let Segment { first, salt, len, .. } = *segment;
        Self { file, salt, first, len, held: Vec::new(), used: 0, at }
    }

    fn bytes(&self) -> &[u8] {
        self.held.get(self.used..).unwrap_or_default()
    }

    fn skip(&mut self, count: usize) {
        self.used += count;
        self.at += count as u64;
    }

    /// Reads `count` more bytes, if there are as many. False at the end.
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        self.held.drain(..self.used);
        self.used = 0;
        let have = self.held.len();
        let rest = self.len.saturating_sub(self.at + have as u64);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(count);
        if count == 0 {
            return Ok(false);
        }
        self.held.resize(have + count, 0);
        let place = self.held.get_mut(have..).unwrap_or_default();
        if let Err(error) = self.file.read_exact_at(place, self.at + have as u64) {
            self.held.truncate(have);
            // The file is shorter than before: the missing part is damage, not a read failure.
            if error.kind() != io::ErrorKind::UnexpectedEof {
                return Err(error);
            }
            self.len = self.at + have as u64;
            return Ok(false);
        }
        Ok(true)
    }

    /// The contents after the next `ahead` bytes. Numbers in a segment increase by one, so a record
    /// is invalid if there is no room before it for those in between, whatever its checksum.
    fn read(&self, ahead: usize) -> Found<'_> {
        let found = record::read(self.bytes().get(ahead..).unwrap_or_default(), self.salt);
        let most = (self.at + ahead as u64) / HEAD_BYTES as u64;
        match found {
            Found::Whole { number, .. }
                if number.checked_sub(self.first).is_none_or(|nth| nth > most) =>
            {
                Found::Bad
            }
            found => found,
        }
    }

    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Item>> {
        loop {
            match self.read(0) {
                Found::Whole { number, secs, body, len } => {
                    let record = Record { number, secs, body: body.to_vec() };
                    self.skip(len);
                    return Ok(Some(Item::Record { record, end: self.at }));
                }
                Found::Short => {
                    if !self.fill(CHUNK_BYTES.max(self.bytes().len()))? {
                        return if self.bytes().is_empty() { Ok(None) } else { self.search() };
                    }
                }
                Found::Bad => return self.search(),
            }
        }
    }

    /// There is no record here: looks for the next one.
    fn search(&mut self) -> io::Result<Option<Item>> {
        while self.fill(CHUNK_BYTES.max(self.bytes().len()))? {}
        let (begin, bytes) = (self.at, self.bytes());
        let is_record = |at: &usize| {
            bytes.get(*at..).is_some_and(|rest| rest.starts_with(&MARKER))
                && matches!(self.read(*at), Found::Whole { .. })
        };
        let next = (1..bytes.len()).find(is_record);
        let Some(next) = next else {
            self.skip(bytes.len());
            return Ok(Some(Item::Torn { begin }));
        };
        self.skip(next);
        Ok(Some(Item::Damage { end: self.at }))
    }
}
