//! `holdall spool`: shows the contents of a spool.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::asynclog::{self, Entry, Version};
use crate::scan::{Item, Record, Scanner};
use crate::segment::{Segment, destination_of, parse};
use crate::synced;

/// The help.
pub const HELP: &str = "\
Shows the records of a spool, oldest first for each destination: a folder of holdall's, a folder of mcrouter's (--async-dir),
or a file of either. Nothing is changed. What is no record is reported on stderr.

Usage: holdall spool [--format FORMAT] [--json] FILE|FOLDER..

  --format text  destination, number, unix time and record, a line each (the default)
  --format as1   mcrouter's AS1.0 lines, of deletes
  --format as2   mcrouter's AS2.0 lines, of deletes
  --json         an object of destination, number, unix time and record, a line each

Ends with 0; 1 if something was damaged or unreadable; 64 for wrong arguments.

Examples:
  holdall spool /var/spool/mcrouter/holdall-5000
  holdall spool --format as1 /var/spool/mcrouter/holdall-5000 | wc -l
  holdall spool /var/spool/mcrouter/20261121T13-1795266000
";

#[derive(Clone, Copy)]
enum Format {
    Text,
    Json,
    Lines(Version),
}

/// Runs the command; returns its exit status.
pub fn main(
    arguments: impl Iterator<Item = String>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let (mut format, mut paths) = (Format::Text, Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name == "--format" => (name, Some(value.to_owned())),
            _ => (&*argument, None),
        };
        match name {
            "-h" | "--help" => return status(out.write_all(HELP.as_bytes())),
            "-V" | "--version" => {
                return status(writeln!(out, "holdall spool {}", env!("CARGO_PKG_VERSION")));
            }
            "--format" => {
                format = match value.or_else(|| arguments.next()).as_deref() {
                    Some("text") => Format::Text,
                    Some("as1") => Format::Lines(Version::One),
                    Some("as2") => Format::Lines(Version::Two),
                    _ => return refuse(err, "--format is text, as1 or as2"),
                };
            }
            "--json" => format = Format::Json,
            flag if flag.starts_with('-') => {
                return refuse(err, &unknown(flag));
            }
            path => paths.push(PathBuf::from(path)),
        }
    }
    if paths.is_empty() {
        return refuse(err, "a file or folder is missing");
    }
    let mut show = Show { format, out, err, is_bad: false };
    for path in &paths {
        match show.path(path) {
            // The reader of the output is gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
            Err(error) => show.eprint_error(&format!("{}: {error}", path.display())),
            Ok(()) => {}
        }
    }
    u8::from(show.is_bad)
}

/// An unknown flag, with the one that was perhaps meant.
fn unknown(flag: &str) -> String {
    match usage::hint(flag, ["--format", "--json", "--help", "--version"]) {
        Some(hint) => format!("there is no flag {flag}; {hint}"),
        None => format!("there is no flag {flag}"),
    }
}

fn refuse(err: &mut dyn Write, message: &str) -> u8 {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(err, "holdall spool: {message}; see holdall spool --help");
    usage::EXIT_USAGE
}

fn status(written: io::Result<()>) -> u8 {
    u8::from(written.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe))
}

struct Show<'a> {
    format: Format,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    is_bad: bool,
}

impl Show<'_> {
    fn eprint_error(&mut self, line: &str) {
        self.is_bad = true;
        // When stderr is closed, there is no other place to report to.
        let _ = writeln!(self.err, "holdall spool: {line}");
    }

    /// A file, or all files in a folder.
    fn path(&mut self, path: &Path) -> io::Result<()> {
        if !path.is_dir() {
            return self.file(path);
        }
        let mut paths = fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        let own = |path: &PathBuf| matches!(path.file_name(), Some(name) if name == "lock" || name == "position" || name == synced::NAME);
        paths.retain(|path| !own(path));
        paths.iter().try_for_each(|path| {
            let kind = fs::metadata(path)?;
            if kind.is_file() || kind.is_dir() {
                return self.path(path);
            }
            // Reading a FIFO would wait for its writer.
            self.eprint_error(&format!("{}: it is not a regular file", path.display()));
            Ok(())
        })
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((first, salt)) = parse(&name) {
            let folder = path.canonicalize()?;
            let folder = folder.parent().and_then(Path::file_name).unwrap_or_default();
            let destination = destination_of(&folder.to_string_lossy()).unwrap_or_default();
            let len = fs::metadata(path)?.len();
            return self.segment(path, &destination, &Segment { first, salt, len, newest_secs: 0 });
        }
        self.lines(path)
    }

    fn segment(&mut self, path: &Path, destination: &str, segment: &Segment) -> io::Result<()> {
        let file = File::open(path)?;
        let mut scanner = Scanner::new(&file, segment, 0);
        while let Some(item) = scanner.next()? {
            match item {
                Item::Record { record, .. } => self.record(destination, &record)?,
                Item::Damage { end } => {
                    self.eprint_error(&format!("{}: no record before byte {end}", path.display()));
                }
                Item::Torn { begin } => {
                    self.eprint_error(&format!(
                        "{}: no record from byte {begin} on",
                        path.display()
                    ));
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, destination: &str, record: &Record) -> io::Result<()> {
        let Format::Lines(version) = self.format else {
            let Record { number, secs, body } = record;
            return self.shown(destination, *number, *secs, &body.escape_ascii().to_string());
        };
        // One server followed by another (`a>b`) makes two lines there.
        for server in destination.split('>') {
            match entry(server, record) {
                Some(entry) => writeln!(self.out, "{}", asynclog::line(&entry, version))?,
                None => self
                    .eprint_error(&format!("{server} {}: no delete of a plain key", record.number)),
            }
        }
        Ok(())
    }

    /// A record as text or JSON; its bytes are escaped as in Rust's strings.
    fn shown(&mut self, destination: &str, number: u64, secs: u64, record: &str) -> io::Result<()> {
        if matches!(self.format, Format::Json) {
            let line = json!({
                "destination": destination, "number": number, "time": secs, "record": record,
            });
            return writeln!(self.out, "{line}");
        }
        writeln!(self.out, "{destination} {number} {secs} {record}")
    }

    /// One of mcrouter's files.
    fn lines(&mut self, path: &Path) -> io::Result<()> {
        for (number, line) in BufReader::new(File::open(path)?).split(b'\n').enumerate() {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            match (asynclog::parse(&line), self.format) {
                (Ok(Entry { secs, destination, pool, key }), Format::Text | Format::Json) => {
                    let record = format!("{}\\ndelete {key}\\r\\n", pool.escape_default());
                    self.shown(&destination, number as u64, secs, &record)?;
                }
                (Ok(entry), Format::Lines(version)) => {
                    writeln!(self.out, "{}", asynclog::line(&entry, version))?;
                }
                (Err(why), _) => {
                    self.eprint_error(&format!("{}:{}: {why}", path.display(), number + 1));
                }
            }
        }
        Ok(())
    }
}

/// A record of the router: the pool's name, a line end, and the command.
fn entry(destination: &str, record: &Record) -> Option<Entry> {
    let text = String::from_utf8_lossy(&record.body);
    let (pool, command) = text.split_once('\n')?;
    let mut words = command.split_whitespace();
    let (word, key) = (words.next()?, words.next()?);
    // A key in base64 may have any bytes, which those formats cannot carry.
    let is_plain = word == "delete" || word == "md" && !words.any(|flag| flag == "b");
    if !is_plain {
        return None;
    }
    let (destination, pool, key) = (destination.to_owned(), pool.to_owned(), key.to_owned());
    Some(Entry { secs: record.secs, destination, pool, key })
}
