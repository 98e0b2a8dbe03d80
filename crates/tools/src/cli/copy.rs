//! `holdall dump`, `restore`, `cp`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use files::NewFile;
use serde_json::{Value, json};

use super::commands::{CopyArgs, DumpArgs, RestoreArgs, Storing};
use super::{progress, say};
use crate::connection::{Connection, Error, Options};
use crate::dump::{Dumped, Pace, Restored};
use crate::keys::KeyDump;
use crate::redis::{Redis, SCHEME as REDIS};

/// The status for items that the server refused.
const PART: u8 = 2;

pub(super) fn dump(arguments: DumpArgs) -> Result<ExitCode, Error> {
    let options = arguments.reach.options();
    let dumped = match &arguments.out {
        Some(file) => {
            let failed = |error| Error::File { file: file.clone(), error };
            // Yesterday's dump remains until this one is complete.
            let mut out = NewFile::create(file, &options.files()).map_err(failed)?;
            let dumped = dumped(&arguments.address, &options, &arguments.prefix, &mut out)?;
            out.finish().map_err(failed)?;
            dumped
        }
        None => dumped(&arguments.address, &options, &arguments.prefix, stdout().lock())?,
    };
    let Dumped { items, bytes, gone, stale, left } = dumped;
    if arguments.json {
        let done = json!({
            "items": items,
            "bytes": bytes,
            "gone": gone,
            "stale": stale,
            "left_out": left,
        });
        say(&done.to_string())?;
    } else {
        let left = left_out(stale, left);
        summary(&format!("{items} items, {bytes} bytes of values; {gone} were gone{left}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn dumped(
    address: &str,
    options: &Options,
    prefix: &str,
    out: impl Write,
) -> Result<Dumped, Error> {
    if address.starts_with(REDIS) {
        return dumped_redis(address, options, prefix, out);
    }
    let total = items_of(&mut Connection::open(address, options)?)?;
    let bar = progress(prefix.is_empty().then_some(total));
    let keys = KeyDump::begin(Connection::open(address, options)?)?;
    let mut values = Connection::open(address, options)?;
    let seen = |dumped: &Dumped| bar.set_position(dumped.items);
    let dumped = crate::dump(keys, &mut values, prefix.as_bytes(), &mut BufWriter::new(out), seen)?;
    bar.finish_and_clear();
    Ok(dumped)
}

fn dumped_redis(
    address: &str,
    options: &Options,
    prefix: &str,
    out: impl Write,
) -> Result<Dumped, Error> {
    let bar = progress(None);
    let seen = |dumped: &Dumped| bar.set_position(dumped.items);
    let mut from = Redis::open(address, options)?;
    let dumped = crate::dump_redis(&mut from, prefix, &mut BufWriter::new(out), seen)?;
    bar.finish_and_clear();
    Ok(dumped)
}

/// The message about skipped keys.
fn left_out(stale: u64, left: u64) -> String {
    let mut text = String::new();
    for (count, which) in [
        (stale, "which clients are to renew"),
        (left, "whose value is no string or whose key is too long"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {count} left out, {which}"));
        }
    }
    text
}

/// The number of a server's items, by its statistics.
fn items_of(server: &mut Connection) -> Result<u64, Error> {
    server.send(b"stats\r\n")?;
    let mut items = 0;
    loop {
        let line = server.line()?;
        if line == "END" {
            return Ok(items);
        }
        match line.strip_prefix("STAT ") {
            Some(stat) => {
                let count = stat.strip_prefix("curr_items ").and_then(|n| n.parse().ok());
                items = count.unwrap_or(items);
            }
            None => return Err(server.unexpected("stats", &line)),
        }
    }
}

pub(super) fn restore(arguments: RestoreArgs) -> Result<ExitCode, Error> {
    let mut to = Connection::open(&arguments.address, &arguments.reach.options())?;
    let pace = pace(arguments.storing);
    let bar = progress(None);
    let seen = |restored: &Restored| bar.set_position(restored.items);
    let restored = match arguments.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let failed = |error| Error::File { file: file.to_owned(), error };
            let dump = File::open(file).map_err(failed)?;
            crate::restore(&mut BufReader::new(dump), &mut to, pace, seen)?
        }
        None => crate::restore(&mut stdin().lock(), &mut to, pace, seen)?,
    };
    bar.finish_and_clear();
    stored(restored, None, arguments.json)
}

pub(super) fn copy(arguments: CopyArgs) -> Result<ExitCode, Error> {
    let options = arguments.reach.options();
    let way = arguments.from_reach.options(&options);
    let mut to = Connection::open(&arguments.to, &options)?;
    let pipe = |error| Error::Dump(format!("no pipe: {error}"));
    let (reader, writer) = io::pipe().map_err(pipe)?;
    let CopyArgs { from, prefix, storing, json, .. } = arguments;
    let dumping = thread::spawn(move || dumped(&from, &way, &prefix, writer));
    let restored = crate::restore(&mut BufReader::new(reader), &mut to, pace(storing), |_| ());
    // The reason for a truncated dump is the dumping side's, unless its pipe has no reader.
    let dumped = match dumping.join() {
        Ok(Err(Error::Dump(_))) if restored.is_err() => Dumped::default(),
        Ok(dumped) => dumped?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    stored(restored?, Some(dumped), json)
}

fn pace(storing: Storing) -> Pace {
    Pace { per_second: storing.rate, add: storing.add }
}

/// Reports the stored items, and those that the dump skipped, if known. The status of a part is for
/// a server that refused items, which are lost once the old server is gone.
fn stored(restored: Restored, dumped: Option<Dumped>, as_json: bool) -> Result<ExitCode, Error> {
    let refused = restored.refused;
    if as_json {
        say(&in_json(&restored, dumped).to_string())?;
    } else {
        let Restored { items, bytes, expired, present, refusal, .. } = restored;
        let Dumped { stale, left, .. } = dumped.unwrap_or_default();
        let left = left_out(stale, left);
        let why = refusal.map_or_else(String::new, |why| format!(" (the first: {why:?})"));
        summary(&format!(
            "{items} items stored, {bytes} bytes of values; {expired} expired, {present} there \
             already, {refused} refused{why}{left}"
        ));
    }
    Ok(if refused > 0 { ExitCode::from(PART) } else { ExitCode::SUCCESS })
}

fn in_json(restored: &Restored, dumped: Option<Dumped>) -> Value {
    let mut done = json!({
        "items": restored.items,
        "bytes": restored.bytes,
        "expired": restored.expired,
        "present": restored.present,
        "refused": restored.refused,
        "first_refusal": restored.refusal,
    });
    if let Some(dumped) = dumped {
        done["stale"] = dumped.stale.into();
        done["left_out"] = dumped.left.into();
    }
    done
}

/// The result, on stderr: stdout may be the dump.
fn summary(line: &str) {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_in_the_json() {
        let refusal = Some("SERVER_ERROR object too large for cache".to_owned());
        let restored = Restored { refused: 1, refusal: refusal.clone(), ..Restored::default() };
        assert_eq!(in_json(&restored, None)["first_refusal"], json!(refusal));
        assert_eq!(in_json(&Restored::default(), None)["first_refusal"], Value::Null);
    }
}
