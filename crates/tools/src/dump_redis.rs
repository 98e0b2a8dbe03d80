//! A dump of a Redis or Valkey: its strings, which are all that a memory cache can keep.

use std::io::Write;

use crate::connection::Error;
use crate::dump::{Dumped, FIRST_LINE, now_unix, written};
use crate::keys::encoded;
use crate::redis::{Redis, Reply, write_request};

/// Keys that Redis is asked to look at in a turn, and of which values are asked for together.
const BATCH: &str = "64";

/// The longest key of memcached's protocol.
const KEY_BYTES_MAX: usize = 250;

/// Writes all strings whose keys begin with `prefix`. `seen` hears how far it is.
///
/// Keys that change their place while they are listed may come twice, with the same value.
///
/// # Errors
///
/// Those of the server and of `out`.
pub fn dump_redis(
    from: &mut Redis,
    prefix: &str,
    out: &mut impl Write,
    mut seen: impl FnMut(&Dumped),
) -> Result<Dumped, Error> {
    let mut dumped = Dumped::default();
    let pattern = pattern(prefix);
    writeln!(out, "{FIRST_LINE}").map_err(written)?;
    let mut cursor = "0".to_owned();
    loop {
        let reply = from.ask("SCAN", &[&cursor, "MATCH", &pattern, "COUNT", BATCH])?;
        let Some((next, keys)) = scanned(&reply) else {
            return Err(from.unexpected("SCAN", &reply));
        };
        write_batch(&keys, from, out, &mut dumped)?;
        seen(&dumped);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    writeln!(out, "END {}", dumped.items).and_then(|()| out.flush()).map_err(written)?;
    Ok(dumped)
}

/// The glob of Redis for keys that begin so.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for character in prefix.chars() {
        if "*?[]\\^".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "*"
}

/// Cursor and keys of a reply to SCAN.
fn scanned(reply: &Reply) -> Option<(String, Vec<&[u8]>)> {
    let Reply::List(parts) = reply else { return None };
    let [Reply::Text(cursor), Reply::List(keys)] = parts.as_slice() else { return None };
    let mut listed = Vec::with_capacity(keys.len());
    for key in keys {
        let Reply::Text(key) = key else { return None };
        listed.push(key.as_slice());
    }
    Some((String::from_utf8_lossy(cursor).into_owned(), listed))
}

fn write_batch(
    keys: &[&[u8]],
    from: &mut Redis,
    out: &mut impl Write,
    dumped: &mut Dumped,
) -> Result<(), Error> {
    let is_kept = |key: &&&[u8]| (1..=KEY_BYTES_MAX).contains(&key.len());
    let mut requests = Vec::new();
    for key in keys.iter().filter(is_kept) {
        write_request(&[b"PTTL", key], &mut requests);
        write_request(&[b"GET", key], &mut requests);
    }
    from.send(&requests)?;
    dumped.left += keys.iter().filter(|key| !is_kept(key)).count() as u64;
    for key in keys.iter().filter(is_kept) {
        let left = match from.reply("PTTL")? {
            Reply::Number(millis) => millis,
            reply => return Err(from.unexpected("PTTL", &reply)),
        };
        match from.reply("GET")? {
            Reply::Text(value) => {
                let expires = match u64::try_from(left) {
                    Ok(millis) => (now_unix() + millis.div_ceil(1000)).to_string(),
                    Err(_) => "-1".to_owned(),
                };
                let (key, len) = (encoded(key), value.len());
                writeln!(out, "key={key} exp={expires} flags=0 bytes={len}")
                    .and_then(|()| out.write_all(&value))
                    .and_then(|()| out.write_all(b"\n"))
                    .map_err(written)?;
                dumped.items += 1;
                dumped.bytes += len as u64;
            }
            Reply::Nothing => dumped.gone += 1,
            Reply::Refused(why) if why.starts_with("WRONGTYPE") => dumped.left += 1,
            reply => return Err(from.unexpected("GET", &reply)),
        }
    }
    Ok(())
}
