//! Power meters: a fixed figure, a meter's log, the processor's own counters, or the host's
//! management controller. In watts.

mod ipmi;
mod redfish;
mod sampled;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use generator::parse_error::ParseError;
use sampled::Sampled;

/// The source of power readings.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A figure read elsewhere.
    Watts(f64),
    /// A meter's log: lines of seconds since 1970, a comma, watts. A first line without numbers is
    /// a heading.
    Csv(PathBuf),
    /// The counters of the processor packages in this folder (`/sys/class/powercap`). Reading them
    /// needs root.
    Rapl(PathBuf),
    /// A resource of a management controller that speaks Redfish, by its URL.
    Redfish(String),
    /// A management controller that speaks IPMI: this host's, or the one at an address.
    Ipmi(Option<String>),
}

/// The access to a management controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A file whose first line is `USER:PASSWORD`.
    pub login: Option<PathBuf>,
    /// The issuers of the controller's certificate, in PEM.
    pub ca: Option<PathBuf>,
    /// True if any certificate is accepted.
    pub is_insecure: bool,
}

impl Access {
    /// User and password.
    fn login(&self) -> Result<Option<(String, String)>> {
        let Some(path) = &self.login else { return Ok(None) };
        let login = fs::read_to_string(path).and_then(|text| files::login_in(&text));
        login.map(Some).with_context(|| path.display().to_string())
    }
}

/// A running measurement.
#[derive(Debug)]
pub struct Meter<'s> {
    begun: Instant,
    begun_at: f64,
    readings: Readings<'s>,
}

/// The data of a measurement.
#[derive(Debug)]
enum Readings<'s> {
    Watts(f64),
    Log(&'s Path),
    Counters(Vec<Counter>),
    Sampled(Sampled),
}

/// The energy counter of one processor package.
#[derive(Clone, Debug, PartialEq)]
struct Counter {
    file: PathBuf,
    /// Microjoules, and the value at which they wrap to 0.
    microjoules: u64,
    range: u64,
}

/// The forms of a source.
const WANTED: &str = "one of WATTS, csv:FILE, rapl, rapl:FOLDER, redfish:URL, ipmi, ipmi:HOST";

fn is_url(text: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme))
}

impl FromStr for Source {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "rapl" {
            return Ok(Self::Rapl(PathBuf::from("/sys/class/powercap")));
        }
        if text == "ipmi" {
            return Ok(Self::Ipmi(None));
        }
        match text.split_once(':') {
            Some(("rapl", folder)) => Ok(Self::Rapl(PathBuf::from(folder))),
            Some(("ipmi", host)) if !host.is_empty() => Ok(Self::Ipmi(Some(host.to_owned()))),
            Some(("redfish", url)) if is_url(url) => Ok(Self::Redfish(url.to_owned())),
            Some(("csv", file)) => Ok(Self::Csv(PathBuf::from(file))),
            _ => match text.parse::<f64>() {
                Ok(watts) if watts > 0.0 && watts.is_finite() => Ok(Self::Watts(watts)),
                _ => Err(ParseError::form(text, WANTED)),
            },
        }
    }
}

impl Source {
    /// Starts to measure.
    ///
    /// # Errors
    ///
    /// When this host has no such counters or they cannot be read, or the management controller
    /// does not answer.
    pub fn begin(&self, access: &Access) -> Result<Meter<'_>> {
        let readings = match self {
            Self::Watts(watts) => Readings::Watts(*watts),
            Self::Csv(file) => Readings::Log(file),
            Self::Rapl(folder) => Readings::Counters(counters(folder)?),
            Self::Redfish(url) => {
                let resource = redfish::Resource::open(url, access)?;
                Readings::Sampled(Sampled::begin(Box::new(move || resource.watts()))?)
            }
            Self::Ipmi(host) => {
                let controller = ipmi::Controller::open(host.as_deref(), access)?;
                Readings::Sampled(Sampled::begin(Box::new(move || controller.watts()))?)
            }
        };
        Ok(Meter { begun: Instant::now(), begun_at: wall(), readings })
    }
}

impl Meter<'_> {
    /// Mean watts since the start.
    ///
    /// # Errors
    ///
    /// When the log has no line of this time, a counter is gone, or a reading failed.
    pub fn end(self) -> Result<f64> {
        match self.readings {
            Readings::Watts(watts) => Ok(watts),
            Readings::Sampled(sampled) => sampled.end(),
            Readings::Log(file) => {
                let log = fs::read_to_string(file)
                    .with_context(|| format!("{} cannot be read", file.display()))?;
                mean_of_log(&log, self.begun_at, wall())
                    .with_context(|| format!("{}", file.display()))
            }
            Readings::Counters(counters) => joules(&counters).map(|joules| {
                joules / self.begun.elapsed().max(Duration::from_millis(1)).as_secs_f64()
            }),
        }
    }
}

/// Seconds since 1970.
fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn mean_of_log(log: &str, from: f64, to: f64) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for (index, line) in log.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut fields = line.split(',').map(|field| field.trim().parse::<f64>());
        match (fields.next(), fields.next()) {
            (Some(Ok(at)), Some(Ok(watts))) if (from..=to).contains(&at) => {
                sum += watts;
                count += 1;
            }
            (Some(Ok(_)), Some(Ok(_))) => {}
            _ if index == 0 => {}
            _ => bail!("line {}: SECONDS,WATTS is wanted, this is {line:?}", index + 1),
        }
    }
    ensure!(count > 0, "no line is of the time of the measurement, {from:.0} to {to:.0}");
    Ok(sum / f64::from(count))
}

/// The packages' counters: `intel-rapl:0`, `intel-rapl:1`, .. but none of their parts,
/// `intel-rapl:0:0`.
fn counters(folder: &Path) -> Result<Vec<Counter>> {
    let absent = || {
        format!(
            "{}: this host shows no energy counters; give --power WATTS or csv:FILE",
            folder.display()
        )
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(absent)?.map_while(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((_, package)) = name.split_once("rapl:") else { continue };
        if package.contains(':') {
            continue;
        }
        let file = entry.path().join("energy_uj");
        let microjoules = number(&file)?;
        let range = number(&entry.path().join("max_energy_range_uj"))?;
        found.push(Counter { file, microjoules, range });
    }
    ensure!(!found.is_empty(), absent());
    Ok(found)
}

fn joules(counters: &[Counter]) -> Result<f64> {
    let mut sum = 0;
    for counter in counters {
        let now = number(&counter.file)?;
        sum += match now.checked_sub(counter.microjoules) {
            Some(used) => used,
            None => now + (counter.range - counter.microjoules.min(counter.range)),
        };
    }
    #[allow(clippy::cast_precision_loss, reason = "microjoules of one measurement")]
    let joules = sum as f64 / 1e6;
    Ok(joules)
}

fn number(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read (it needs root)", file.display()))?;
    text.trim().parse().with_context(|| format!("{} has no number", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_averaged_over_the_measurement() {
        let log = "time,watts\n99,1000\n100,10\n105,20\n110,30\n111,1000\n";
        assert!((mean_of_log(log, 100.0, 110.0).unwrap() - 20.0).abs() < 1e-9);
        assert!(mean_of_log(log, 200.0, 210.0).is_err());
        let error = mean_of_log("1,2\nx,y\n", 0.0, 9.0).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn package_counters_are_summed_across_wraparound() {
        let folder = std::env::temp_dir().join(format!("holdall-rapl-{}", std::process::id()));
        let write = |name: &str, energy: u64| {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("energy_uj"), format!("{energy}\n")).unwrap();
            fs::write(folder.join(name).join("max_energy_range_uj"), "1000000\n").unwrap();
        };
        write("intel-rapl:0", 100);
        write("intel-rapl:1", 999_000);
        write("intel-rapl:0:0", 5);
        fs::create_dir_all(folder.join("intel-rapl")).unwrap();
        let before = counters(&folder).unwrap();
        assert_eq!(before.len(), 2);
        write("intel-rapl:0", 2_000_100);
        write("intel-rapl:1", 500);
        let used = joules(&before).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!((used - 2.0015).abs() < 1e-9, "{used}");
    }

    #[test]
    fn power_sources_are_parsed() {
        assert_eq!("95.5".parse(), Ok(Source::Watts(95.5)));
        assert_eq!("csv:a.csv".parse(), Ok(Source::Csv(PathBuf::from("a.csv"))));
        assert_eq!("rapl".parse(), Ok(Source::Rapl(PathBuf::from("/sys/class/powercap"))));
        let url = "https://bmc/redfish/v1/Chassis/1";
        assert_eq!(format!("redfish:{url}").parse(), Ok(Source::Redfish(url.to_owned())));
        assert_eq!("ipmi".parse(), Ok(Source::Ipmi(None)));
        assert_eq!("ipmi:bmc".parse(), Ok(Source::Ipmi(Some("bmc".to_owned()))));
        for wrong in ["", "-1", "0", "x:y", "nan", "redfish:bmc", "ipmi:"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
