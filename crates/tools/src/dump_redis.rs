//! A dump of a Redis or Valkey: its strings, the only type that a memory cache can store.

use std::io::Write;

use crate::connection::Error;
use crate::dump::{Dumped, FIRST_LINE, write_item, written};
use crate::redis::{Redis, Reply, write_request};
use crate::values::{key_word, now_unix};

/// Keys that Redis examines per turn, and whose values are requested together.
const BATCH: &str = "64";

/// Maximum number of turns of a listing in addition to one per key of the database. A turn examines
/// at least 64 buckets, and Redis shrinks a table with nearly empty buckets: the end comes long
/// before.
const TURNS_MAX: u64 = if cfg!(test) { 100 } else { 1 << 20 };

/// Writes all strings whose keys start with `prefix`. `seen` receives the progress.
///
/// Keys that move during the listing may come twice, with the same value.
///
/// # Errors
///
/// Returns the errors of the server and of `out`, and of a listing that does not end.
pub fn dump_redis(
    from: &mut Redis,
    prefix: &str,
    out: &mut impl Write,
    mut seen: impl FnMut(&Dumped),
) -> Result<Dumped, Error> {
    let mut dumped = Dumped::default();
    let pattern = pattern(prefix);
    let size = match from.ask("DBSIZE", &[])? {
        Reply::Number(size) => u64::try_from(size).unwrap_or(0),
        // A user may have the right to list keys, but not to count them.
        _ => u64::from(u32::MAX),
    };
    let turns_max = size.saturating_add(TURNS_MAX);
    let mut turns = 0;
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
        turns += 1;
        if next == cursor {
            return Err(from.endless(format!("SCAN returned the same cursor {cursor} again")));
        }
        if turns >= turns_max {
            return Err(from.endless(format!("{turns} turns for a database of {size} keys")));
        }
        cursor = next;
    }
    writeln!(out, "END {}", dumped.items).and_then(|()| out.flush()).map_err(written)?;
    Ok(dumped)
}

/// The Redis glob for keys with this prefix.
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
    let is_kept = |key: &&&[u8]| key_word(key).is_some();
    let mut requests = Vec::new();
    for key in keys.iter().filter(is_kept) {
        write_request(&[b"PTTL", key], &mut requests);
        write_request(&[b"GET", key], &mut requests);
        write_request(&[b"PTTL", key], &mut requests);
    }
    // Lifetimes count from here: for a slow reader, a value expires early rather than late.
    let asked_at = now_unix();
    from.send(&requests)?;
    dumped.left += keys.iter().filter(|key| !is_kept(key)).count() as u64;
    for key in keys.iter().filter(is_kept) {
        let before = life(from)?;
        let value = from.reply("GET")?;
        let after = life(from)?;
        match value {
            Reply::Text(value) => {
                let expires = shorter(before, after).map(|millis| asked_at + millis.div_ceil(1000));
                write_item(key, expires, 0, &value, out).map_err(written)?;
                dumped.items += 1;
                dumped.bytes += value.len() as u64;
            }
            Reply::Nothing => dumped.gone += 1,
            Reply::Refused(why) if why.starts_with("WRONGTYPE") => dumped.left += 1,
            reply => return Err(from.unexpected("GET", &reply)),
        }
    }
    Ok(())
}

/// Remaining milliseconds of a key; `None` for one that does not expire or does not exist.
fn life(from: &mut Redis) -> Result<Option<u64>, Error> {
    match from.reply("PTTL")? {
        Reply::Number(millis) => Ok(u64::try_from(millis).ok()),
        reply => Err(from.unexpected("PTTL", &reply)),
    }
}

/// The shorter of a key's lifetimes before and after its value was read. Between two commands, a
/// client may store another value with another lifetime; the value read then has one of the two,
/// and no value outlives its own. A transaction would be exact, but is refused to read-only users.
fn shorter(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    before.into_iter().chain(after).min()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::connection::Options;

    /// A dump of a server that answers DBSIZE with `dbsize`, and each SCAN with no key and the
    /// cursor that `next` makes from its number.
    fn dump(dbsize: &'static str, next: fn(u64) -> u64) -> Result<Dumped, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut scans = 0;
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let reply = match line.unwrap_or_default().as_str() {
                    "DBSIZE" => dbsize.to_owned(),
                    "SCAN" => {
                        scans += 1;
                        let cursor = next(scans).to_string();
                        format!("*2\r\n${}\r\n{cursor}\r\n*0\r\n", cursor.len())
                    }
                    _ => continue,
                };
                if stream.write_all(reply.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let mut from = Redis::open(&address, &options).unwrap();
        let dumped = dump_redis(&mut from, "", &mut Vec::new(), |_| ());
        drop(from);
        server.join().unwrap();
        dumped
    }

    #[test]
    fn a_value_changed_during_the_dump_gets_the_shorter_ttl() {
        // A session without expiry is replaced by one of 20 seconds, and the other way round.
        assert_eq!(shorter(None, Some(20_000)), Some(20_000));
        assert_eq!(shorter(Some(20_000), None), Some(20_000));
        assert_eq!(shorter(Some(300_000), Some(20_000)), Some(20_000));
        assert_eq!(shorter(None, None), None);
    }

    #[test]
    fn an_endless_scan_is_an_error() {
        let refused = |dbsize, next| dump(dbsize, next).unwrap_err().to_string();
        let same = refused(":2\r\n", |_| 7);
        assert!(
            same.ends_with(": SCAN does not end: SCAN returned the same cursor 7 again"),
            "{same}"
        );
        // In a circle, and to new places without end.
        for next in [|scans| scans % 2 + 1, |scans| scans] {
            let many = refused(":2\r\n", next);
            assert!(many.ends_with("102 turns for a database of 2 keys"), "{many}");
        }
    }

    #[test]
    fn a_scan_may_take_as_many_turns_as_the_database_needs() {
        for dbsize in [":400\r\n", "-NOPERM no permission for dbsize\r\n"] {
            let dumped = dump(dbsize, |scans| if scans < 450 { scans } else { 0 }).unwrap();
            assert_eq!(dumped.items, 0);
        }
    }
}
