//! The files of memtier_benchmark's `--hdr-file-prefix`: latencies of a run in HdrHistogram's two
//! common formats, which other programs read and draw.
//!
//! `PREFIX_FULL_RUN_command_run_1.txt` is the percentile distribution in milliseconds, `.hgrm` the
//! interval log of microseconds; likewise with `SET` and `GET`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::json::micros;
use crate::result::RunResult;

/// Steps per halving of the distance to 100 %, as other programs print them.
const TICKS: u32 = 5;

/// Writes the files of a run; `number` counts from 1.
///
/// # Errors
///
/// When a file cannot be written, or a histogram of the result is damaged.
pub(crate) fn write(prefix: &Path, number: usize, run: &RunResult) -> Result<()> {
    let period = Period {
        begin: UNIX_EPOCH + Duration::from_secs(run.started),
        length: Duration::from_secs_f64((run.whole_seconds() - run.spec.warm_up).max(0.0)),
    };
    for (name, op) in [("FULL_RUN", &run.total), ("SET", &run.sets), ("GET", &run.gets)] {
        let micros = micros(&op.latency.histogram()?)?;
        for (ending, put) in [("txt", distribution as Put), ("hgrm", log as Put)] {
            let file = file(prefix, name, number, ending);
            let told = || file.display().to_string();
            let mut out = BufWriter::new(File::create(&file).with_context(told)?);
            put(&mut out, &micros, &period).and_then(|()| Ok(out.flush()?)).with_context(told)?;
        }
    }
    Ok(())
}

/// The time of a run.
struct Period {
    begin: SystemTime,
    length: Duration,
}

type Put = fn(&mut BufWriter<File>, &Histogram<u64>, &Period) -> Result<()>;

fn file(prefix: &Path, name: &str, number: usize, ending: &str) -> PathBuf {
    let mut file = prefix.as_os_str().to_owned();
    file.push(format!("_{name}_command_run_{number}.{ending}"));
    file.into()
}

/// The columns of HdrHistogram's `outputPercentileDistribution`.
fn distribution(out: &mut BufWriter<File>, micros: &Histogram<u64>, _: &Period) -> Result<()> {
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut count = 0;
    for value in micros.iter_quantiles(TICKS) {
        count += value.count_since_last_iteration();
        let quantile = value.quantile_iterated_to();
        let ms = value.value_iterated_to() as f64 / 1000.0;
        write!(out, "{ms:>12.3} {quantile:>14.12} {count:>10}")?;
        if quantile < 1.0 {
            write!(out, " {:>14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let (mean, deviation) = (micros.mean() / 1000.0, micros.stdev() / 1000.0);
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    let (max, total) = (micros.max() as f64 / 1000.0, micros.len());
    writeln!(out, "#[Max     = {max:>12.3}, Total count    = {total:>12}]")?;
    Ok(())
}

fn log(out: &mut BufWriter<File>, micros: &Histogram<u64>, period: &Period) -> Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.2]")
        .with_start_time(period.begin)
        .begin_log_with(out, &mut serializer)?;
    log.write_histogram(micros, Duration::ZERO, period.length, None)
        .map_err(|error| anyhow!("a histogram cannot be written: {error:?}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    #[test]
    fn both_file_formats_contain_the_same_times() {
        let folder = tempfile::tempdir().unwrap();
        let mut times = Histogram::<u64>::new(3).unwrap();
        for micros in 1..=1000 {
            times.record(micros * 100).unwrap();
        }
        let period = Period { begin: UNIX_EPOCH, length: Duration::from_secs(2) };
        for (name, put) in [("a.txt", distribution as Put), ("a.hgrm", log as Put)] {
            let mut out = BufWriter::new(File::create(folder.path().join(name)).unwrap());
            put(&mut out, &times, &period).unwrap();
            out.flush().unwrap();
        }
        let text = fs::read_to_string(folder.path().join("a.txt")).unwrap();
        let middle = text.lines().find(|line| line.contains(" 0.500000000000")).unwrap();
        let ms: f64 = middle.split_whitespace().next().unwrap().parse().unwrap();
        assert!((ms - 50.0).abs() < 0.1, "{text}");
        assert!(text.contains("Total count    =         1000]"), "{text}");
        let text = fs::read(folder.path().join("a.hgrm")).unwrap();
        let entries: Vec<_> = IntervalLogIterator::new(&text).map(Result::unwrap).collect();
        let packed = entries.iter().find_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval.encoded_histogram()),
            _ => None,
        });
        let bytes = BASE64_STANDARD.decode(packed.unwrap()).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(read, times);
    }

    #[test]
    fn file_names_match_memtier() {
        let file = file(Path::new("out/load"), "GET", 2, "hgrm");
        assert_eq!(file, Path::new("out/load_GET_command_run_2.hgrm"));
    }
}
