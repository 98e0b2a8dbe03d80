//! Requests of a trace file, one after the other: memory holds nothing of the file.
//!
//! * `oracle` (libCacheSim's oracleGeneral): a request is 24 bytes, little endian: `u32` second,
//!   `u64` object, `u32` bytes, `i64` next access.
//! * `twitter` (Yang et al., OSDI 2020): a request is a line
//!   `second,key,key bytes,value bytes,client,operation,TTL`.
//! * `csv`: a request is a line `key,bytes`, or `second,key,bytes`, or columns named by a first
//!   line.
//!
//! A file that ends within a request is truncated, which is an error after its last whole request.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The object; a non-numeric key is hashed.
    pub id: u64,
    /// Bytes of its key.
    pub key_bytes: u16,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// Seconds for which it is stored; 0 for no expiration.
    pub lifetime_secs: u32,
    /// The action.
    pub action: Action,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fetch it, and store it if it is missing: look-aside.
    Get,
    /// Store it.
    Set,
    /// Remove it.
    Delete,
}

/// The formats of trace files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Lines of key and bytes, or columns named by a first line (key, size, op).
    Csv,
    /// libCacheSim's oracleGeneral: binary, 24 bytes a request.
    Oracle,
    /// Twitter's open traces: seven columns.
    Twitter,
}

/// The requests of a trace, in order; after an error, there are no more.
pub type Requests = Box<dyn Iterator<Item = Result<Request>>>;

/// Bytes of a request in the oracleGeneral format.
pub(super) const ORACLE_BYTES: usize = 24;

/// Bytes of the shortest key that is sent, and of keys without a length in the trace: sixteen
/// digits.
pub const KEY_BYTES: u16 = 16;

/// Bytes of the longest key of memcached.
const KEY_BYTES_MAX: u16 = 250;

/// Bytes at a file's start that distinguish text from a binary format.
const TEXT_BYTES: usize = 4096;

/// Longer lines do not belong to a trace.
const LINE_BYTES_MAX: u64 = 64 * 1024;

impl Request {
    /// The request with the length of the key that servers receive: keys in a trace may be shorter
    /// than sixteen digits, or longer than servers accept.
    #[must_use]
    pub(super) fn as_sent(self) -> Self {
        Self { key_bytes: self.key_bytes.clamp(KEY_BYTES, KEY_BYTES_MAX), ..self }
    }
}

impl Format {
    /// The format by the file's name: binary if it contains "oracle", otherwise lines.
    #[must_use]
    pub fn of_name(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        match name {
            Some(name) if name.contains("oracle") => Self::Oracle,
            Some(name) if name.contains("twitter") || name.starts_with("cluster") => Self::Twitter,
            _ => Self::Csv,
        }
    }
}

/// Opens a trace file.
///
/// # Errors
///
/// When it cannot be opened, is empty or compressed, or is text although the format is binary.
pub fn open(path: &Path, format: Format) -> Result<Requests> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named)?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let head = reader.fill_buf().with_context(named)?;
    if head.is_empty() {
        bail!("{}: the trace is empty", named());
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || head.starts_with(&[0x1f, 0x8b]) {
        bail!(
            "{}: the trace is compressed; decompress it into a file first (zstd -d, gunzip)",
            named()
        );
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if format == Format::Oracle && head.iter().take(TEXT_BYTES).all(is_text) {
        bail!("{}: this is text, and oracle is binary; --format says how it is written", named());
    }
    let name = named();
    let requests: Requests = match format {
        Format::Oracle => Box::new(Oracle { reader }),
        Format::Twitter => Box::new(Lines::new(reader, Columns::TWITTER, 0)),
        Format::Csv => {
            let (columns, taken) = Columns::of_csv(&mut reader).with_context(|| name.clone())?;
            Box::new(Lines::new(reader, columns, taken))
        }
    };
    let mut is_over = false;
    Ok(Box::new(requests.map_while(move |request| {
        if is_over {
            return None;
        }
        is_over = request.is_err();
        Some(request.with_context(|| name.clone()))
    })))
}

struct Oracle {
    reader: BufReader<File>,
}

impl Iterator for Oracle {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        let mut bytes = [0; ORACLE_BYTES];
        let mut have = 0;
        while have < ORACLE_BYTES {
            match self.reader.read(&mut bytes[have..]) {
                Ok(0) if have == 0 => return None,
                Ok(0) => {
                    return Some(Err(anyhow!(
                        "the trace was cut short: {have} bytes are left over where a request has {ORACLE_BYTES}"
                    )));
                }
                Ok(more) => have += more,
                Err(error) => return Some(Err(error.into())),
            }
        }
        let word = |from: usize| -> [u8; 4] {
            [bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]
        };
        let (low, high) = (u32::from_le_bytes(word(4)), u32::from_le_bytes(word(8)));
        Some(Ok(Request {
            id: u64::from(high) << 32 | u64::from(low),
            key_bytes: KEY_BYTES,
            value_bytes: u32::from_le_bytes(word(12)),
            lifetime_secs: 0,
            action: Action::Get,
        }))
    }
}

/// The fields of a line, by column number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    key: usize,
    key_bytes: Option<usize>,
    value_bytes: usize,
    action: Option<usize>,
    /// Minimum number of columns of a whole line.
    count: usize,
}

impl Columns {
    const TWITTER: Self =
        Self { key: 1, key_bytes: Some(2), value_bytes: 3, action: Some(5), count: 7 };

    /// The columns by the first line, which is consumed if it names columns. The second number
    /// counts the consumed lines.
    fn of_csv(reader: &mut BufReader<File>) -> Result<(Self, u64)> {
        let head = reader.fill_buf()?;
        let end = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
        let line = String::from_utf8_lossy(&head[..end]).trim().to_lowercase();
        let names: Vec<&str> = line.split(',').map(|name| name.trim().trim_matches('"')).collect();
        let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(name));
        let key = find(&["key", "id", "obj_id", "object", "object_id"]);
        let bytes = find(&["size", "bytes", "obj_size", "value_size", "value_bytes"]);
        match (key, bytes, names.len()) {
            (Some(key), Some(value_bytes), count) => {
                let skipped = (end + 1).min(reader.buffer().len());
                reader.consume(skipped);
                let action = find(&["op", "operation"]);
                let columns =
                    Self { key, key_bytes: find(&["key_size"]), value_bytes, action, count };
                Ok((columns, 1))
            }
            (_, _, 2) => {
                let columns =
                    Self { key: 0, key_bytes: None, value_bytes: 1, action: None, count: 2 };
                Ok((columns, 0))
            }
            (_, _, 3) => {
                let columns =
                    Self { key: 1, key_bytes: None, value_bytes: 2, action: None, count: 3 };
                Ok((columns, 0))
            }
            (_, _, count) => bail!(
                "{count} columns, and no first line that names them: key, size and, if wanted, op are needed"
            ),
        }
    }
}

struct Lines {
    reader: BufReader<File>,
    columns: Columns,
    line: Vec<u8>,
    /// The number of the line in the file, from 1.
    number: u64,
}

impl Lines {
    /// The lines after the first `taken` ones of the file.
    fn new(reader: BufReader<File>, columns: Columns, taken: u64) -> Self {
        Self { reader, columns, line: Vec::new(), number: taken }
    }

    fn parse(&self) -> Result<Request> {
        let line = std::str::from_utf8(&self.line).context("this is no text")?.trim_end();
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let columns = &self.columns;
        if fields.len() < columns.count {
            bail!("{} columns where {} are expected: {line:?}", fields.len(), columns.count);
        }
        // A key of Twitter's may contain commas; the columns after it are counted from the end.
        let more = if *columns == Columns::TWITTER { fields.len() - columns.count } else { 0 };
        let number = |column: usize| {
            let field = fields[column + more];
            field.parse::<u64>().map_err(|_| anyhow!("{field:?} is no number of bytes: {line:?}"))
        };
        let key = fields[columns.key..=columns.key + more].join(",");
        let action = match columns.action.map(|column| fields[column + more]) {
            None | Some("get" | "gets" | "read" | "") => Action::Get,
            Some("delete" | "del" | "remove") => Action::Delete,
            Some(
                "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr"
                | "write",
            ) => Action::Set,
            Some(other) => bail!("{other:?} is no operation: {line:?}"),
        };
        let key_bytes = columns.key_bytes.map(number).transpose()?.unwrap_or(key.len() as u64);
        let too_long = || format!("a key or value is too long: {line:?}");
        Ok(Request {
            id: id_of(&key),
            key_bytes: key_bytes.try_into().with_context(too_long)?,
            value_bytes: number(columns.value_bytes)?.try_into().with_context(too_long)?,
            lifetime_secs: 0,
            action,
        })
    }
}

impl Iterator for Lines {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        loop {
            self.line.clear();
            self.number += 1;
            let limited = self.reader.by_ref().take(LINE_BYTES_MAX);
            match { limited }.read_until(b'\n', &mut self.line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error.into())),
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let is_whole = self.line.ends_with(b"\n");
            let parsed = self.parse().with_context(|| format!("line {}", self.number));
            // The last line may lack its end, but a cut within a number cannot be distinguished
            // from a shorter number.
            return Some(if is_whole {
                parsed
            } else {
                Err(anyhow!(
                    "line {}: the trace was cut short: its last line has no end",
                    self.number
                ))
            });
        }
    }
}

/// A number is its own id; other keys, also `+7` and `007`, are hashed to 64 bits.
fn id_of(key: &str) -> u64 {
    let number = key.parse().ok().filter(|number: &u64| number.to_string() == key);
    number.unwrap_or_else(|| {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(key.as_bytes());
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(format: Format, bytes: &[u8]) -> (Vec<Request>, Option<String>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut requests = Vec::new();
        match open(file.path(), format) {
            Err(error) => (requests, Some(format!("{error:#}"))),
            Ok(all) => {
                for request in all {
                    match request {
                        Ok(request) => requests.push(request),
                        Err(error) => return (requests, Some(format!("{error:#}"))),
                    }
                }
                (requests, None)
            }
        }
    }

    fn get(id: u64, key_bytes: u16, value_bytes: u32) -> Request {
        Request { id, key_bytes, value_bytes, lifetime_secs: 0, action: Action::Get }
    }

    #[test]
    fn text_is_not_read_as_the_binary_format() {
        let (requests, error) = read(Format::Oracle, &b"0,key07,100\n".repeat(20));
        assert!(requests.is_empty(), "{requests:?}");
        assert!(error.as_ref().is_some_and(|error| error.contains("this is text")), "{error:?}");
    }

    #[test]
    fn each_format_is_read() {
        let (requests, error) = read(Format::Csv, b"7,100\n8,200\n");
        assert_eq!((requests, error), (vec![get(7, 1, 100), get(8, 1, 200)], None));
        let (requests, _) = read(Format::Csv, b"007,1\n7,1\n+7,1\nseven,1\n");
        let ids: std::collections::HashSet<u64> = requests.iter().map(|one| one.id).collect();
        assert!(ids.len() == 4 && ids.contains(&7), "{ids:?}");
        let (requests, _) = read(Format::Csv, b"0,7,100\n1,8,200\n");
        assert_eq!(requests[1], get(8, 1, 200));
        let (requests, _) = read(Format::Csv, b"op,size,key\nget,5,1\nset,6,2\ndelete,0,1\n");
        let actions: Vec<Action> = requests.iter().map(|request| request.action).collect();
        assert_eq!(actions, [Action::Get, Action::Set, Action::Delete]);
        assert_eq!((requests[1].id, requests[1].value_bytes), (2, 6));
        let (requests, error) =
            read(Format::Twitter, b"0,nz:u:eeW5,11,30,1,get,0\n1,a,b,7,40,1,add,60\n");
        assert_eq!(error, None);
        assert_eq!((requests[0].key_bytes, requests[0].value_bytes), (11, 30));
        assert_eq!((requests[1].action, requests[1].value_bytes), (Action::Set, 40));
        let mut bytes = Vec::new();
        for id in [9u64, 1 << 40] {
            bytes.extend_from_slice(&5u32.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&77u32.to_le_bytes());
            bytes.extend_from_slice(&(-1i64).to_le_bytes());
        }
        let (requests, _) = read(Format::Oracle, &bytes);
        assert_eq!(requests, [get(9, 16, 77), get(1 << 40, 16, 77)]);
    }

    #[test]
    fn a_truncated_trace_is_read_up_to_its_last_whole_request() {
        let (requests, error) = read(Format::Oracle, &[1; 24 + 13]);
        assert_eq!(requests.len(), 1);
        assert!(error.unwrap().contains("cut short: 13 bytes"));
        for (format, text) in
            [(Format::Csv, "1,10\n2,2"), (Format::Twitter, "0,a,1,9,1,get,0\n1,b")]
        {
            let (requests, error) = read(format, text.as_bytes());
            assert_eq!(requests.len(), 1, "{text}");
            assert!(error.unwrap().contains("line 2: the trace was cut short"), "{text}");
        }
    }

    #[test]
    fn malformed_traces_are_refused_with_their_line() {
        for (format, text, words) in [
            (Format::Csv, "", "empty"),
            (Format::Csv, "1,2,3,4,5\n", "5 columns"),
            (Format::Csv, "1,10\n1,x\n", "line 2: \"x\" is no number"),
            (Format::Csv, "key,size\n1,10\n1,x\n", "line 3: \"x\" is no number"),
            (Format::Csv, "key,size\n\n1,10\n2,2", "line 4: the trace was cut short"),
            (Format::Twitter, "0,a,1,9,1,frob,0\n", "\"frob\" is no operation"),
            (Format::Twitter, "0,a,1,9\n", "4 columns where 7"),
            (Format::Oracle, "\x1f\u{8b}", "cut short"),
        ] {
            let (_, error) = read(format, text.as_bytes());
            let error = error.unwrap();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let (_, error) = read(Format::Csv, &[0x28, 0xb5, 0x2f, 0xfd, 0, 0]);
        assert!(error.unwrap().contains("compressed"));
    }
}
