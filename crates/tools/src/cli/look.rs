//! `holdall ping`, `latency`, `keys`, `bigkeys`.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::commands::{BigKeysArgs, KeysArgs, LatencyArgs, PingArgs};
use super::say;
use crate::connection::{Connection, Error};
use crate::keys::{KeyDump, shown};
use crate::{latencies, round_trip};

const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

pub(super) fn ping(arguments: PingArgs) -> Result<ExitCode, Error> {
    let options = arguments.reach.options();
    let mut all_answered = true;
    for address in &arguments.addresses {
        let answer =
            Connection::open(address, &options).and_then(|mut server| round_trip(&mut server));
        all_answered &= answer.is_ok();
        let line = match (&answer, arguments.json) {
            (Ok((time, version)), false) => {
                format!("{address}  {version}  {:.3} ms", time.as_secs_f64() * 1000.0)
            }
            (Err(error), false) => error.to_string(),
            (Ok((time, version)), true) => {
                json!({"address": address, "version": version, "seconds": time.as_secs_f64()})
                    .to_string()
            }
            (Err(error), true) => {
                json!({"address": address, "error": error.to_string()}).to_string()
            }
        };
        say(&line)?;
    }
    Ok(if all_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn latency(arguments: LatencyArgs) -> Result<ExitCode, Error> {
    let mut server = Connection::open(&arguments.address, &arguments.reach.options())?;
    let pause = Duration::from_millis(arguments.interval);
    let times = latencies(&mut server, arguments.count, pause)?;
    let quantile = |at: f64| times.value_at_quantile(at);
    if arguments.json {
        let quantiles: serde_json::Map<_, _> = QUANTILES
            .iter()
            .map(|(name, at)| ((*name).to_owned(), json!(quantile(*at) as f64 / 1e6)))
            .collect();
        let address = &arguments.address;
        say(&json!({"address": address, "count": times.len(), "seconds": quantiles}).to_string())?;
    } else {
        let quantiles = QUANTILES.iter().map(|(name, at)| format!("{name} {} us", quantile(*at)));
        let quantiles = quantiles.collect::<Vec<_>>().join("  ");
        say(&format!("{} round trips, mean {:.0} us  {quantiles}", times.len(), times.mean()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn keys(arguments: KeysArgs) -> Result<ExitCode, Error> {
    let server = Connection::open(&arguments.address, &arguments.reach.options())?;
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    for entry in KeyDump::begin(server)? {
        let entry = entry?;
        if !entry.key.starts_with(arguments.prefix.as_bytes()) {
            continue;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        let key = shown(&entry.key);
        let is_read = if arguments.json {
            say(&json!({"key": key, "size": entry.size, "expires": entry.expires}).to_string())?
        } else {
            say(&key)?
        };
        if !is_read {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn big_keys(arguments: BigKeysArgs) -> Result<ExitCode, Error> {
    let server = Connection::open(&arguments.address, &arguments.reach.options())?;
    let progress = super::progress(None);
    let entries = KeyDump::begin(server)?.inspect(|_| progress.inc(1));
    // A separator is ASCII by its parser.
    let separator = u8::try_from(arguments.separator).unwrap_or(b':');
    let found = crate::big_keys(entries, usize::from(arguments.count), separator)?;
    progress.finish_and_clear();
    if arguments.json {
        let largest: Vec<_> = found
            .largest
            .iter()
            .map(|(size, key)| json!({"key": shown(key), "size": size}))
            .collect();
        let prefixes: Vec<_> = found
            .prefixes
            .iter()
            .map(|(prefix, items, bytes)| {
                json!({"prefix": shown(prefix), "items": items, "bytes": bytes})
            })
            .collect();
        let (items, bytes) = (found.items, found.bytes);
        let all = json!({"items": items, "bytes": bytes, "largest": largest, "prefixes": prefixes});
        say(&all.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{} items, {} bytes", found.items, found.bytes))?;
    say("\n       bytes  item")?;
    for (size, key) in &found.largest {
        say(&format!("{size:>12}  {}", shown(key)))?;
    }
    say("\n       bytes  share       items  prefix")?;
    for (prefix, items, bytes) in &found.prefixes {
        let share = *bytes as f64 / found.bytes.max(1) as f64 * 100.0;
        let name = if prefix.is_empty() { "(none)".to_owned() } else { shown(prefix) };
        say(&format!("{bytes:>12}  {share:>4.1} %  {items:>9}  {name}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
