//! Candidate servers: their capacity, equipment and cost.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::InputError;
use crate::units::{BitsPerSecond, Bytes};

/// The guide's weights of random keys and of the hot key (section 5).
const RANDOM_WEIGHT: f64 = 0.8;
const HOT_WEIGHT: f64 = 0.2;

/// A kind of server.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// Its name.
    pub name: String,
    /// Gets per second under the SLA. Left out, it follows from the next three.
    pub gets_per_second: Option<f64>,
    /// Gets of random keys per second under the SLA.
    pub random_gets_per_second: Option<f64>,
    /// Gets of one key per second under the SLA.
    pub hot_gets_per_second: Option<f64>,
    /// A result of `holdall bench score` or `search` (`--json`) of this kind of server.
    #[serde(skip_serializing)]
    pub bench: Option<PathBuf>,
    /// Physical cores, which are the threads of its server.
    pub cores: Option<u32>,
    /// Memory of the host.
    pub memory: Bytes,
    /// Memory that the host needs for itself.
    #[serde(default = "base_memory")]
    pub base_memory: Bytes,
    /// Its network interface.
    pub nic: BitsPerSecond,
    /// Watts under load.
    pub watts: Option<f64>,
    /// Price.
    pub price: Option<f64>,
}

fn base_memory() -> Bytes {
    Bytes(1e9)
}

/// The platforms of the guide's appendix B.
///
/// # Panics
///
/// Never: a test reads the file that is built in.
#[must_use]
#[allow(clippy::expect_used, reason = "the text is a part of the program")]
pub(crate) fn of_the_guide() -> Vec<Platform> {
    #[derive(Deserialize)]
    struct Guide {
        platform: Vec<Platform>,
    }
    let guide: Guide =
        toml::from_str(include_str!("../../data/guide.toml")).expect("data/guide.toml is good");
    guide.platform
}

impl Platform {
    /// Computes `gets_per_second`, and reads the bench's result; `path` is the sizing file.
    ///
    /// # Errors
    ///
    /// If an entry is missing or out of its range, or the result cannot be read.
    pub(super) fn resolve(&mut self, path: &Path) -> Result<(), InputError> {
        let wrong = |why: String| InputError::new(path, format!("platform '{}': {why}", self.name));
        if let Some(result) = &self.bench {
            let file = path.with_file_name(result);
            let measured = measured(&file).map_err(|why| wrong(format!("bench: {why}")))?;
            self.random_gets_per_second = self.random_gets_per_second.or(Some(measured.random));
            self.hot_gets_per_second = self.hot_gets_per_second.or(measured.hot);
        }
        let scored = match (self.random_gets_per_second, self.hot_gets_per_second) {
            (Some(random), Some(hot)) => Some(RANDOM_WEIGHT * random + HOT_WEIGHT * hot),
            (random, _) => random,
        };
        let Some(gets) = self.gets_per_second.or(scored) else {
            return Err(wrong(
                "gets_per_second is missing: gets a second under your SLA, or bench = the JSON of \
                 `holdall bench score`"
                    .to_owned(),
            ));
        };
        self.gets_per_second = Some(gets);
        let positive = |value: Option<f64>| value.is_none_or(|value| value > 0.0);
        let rules = [
            (gets > 0.0, "gets_per_second: over 0"),
            (positive(self.hot_gets_per_second), "hot_gets_per_second: over 0"),
            (positive(self.watts), "watts: over 0"),
            (self.price.is_none_or(|price| price >= 0.0), "price: at least 0"),
            (self.nic.0 > 0.0, "nic: over 0"),
            (self.cores != Some(0), "cores: at least 1"),
            (self.memory > self.base_memory, "memory: more than base_memory"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(wrong((*broken).to_owned())),
            None => Ok(()),
        }
    }

    /// Gets per second under the SLA.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.gets_per_second.unwrap_or(0.0)
    }

    /// Gets of one key per second under the SLA; those of random keys if it was not measured.
    #[must_use]
    pub fn hot_capacity(&self) -> f64 {
        self.hot_gets_per_second.unwrap_or_else(|| self.capacity())
    }

    /// Gets per second for each watt, if the watts are known (guide, section 5).
    #[must_use]
    pub fn per_watt(&self) -> Option<f64> {
        Some(self.capacity() / self.watts?)
    }
}

struct Measured {
    random: f64,
    hot: Option<f64>,
}

/// The maxima of a stored bench result.
fn measured(file: &Path) -> Result<Measured, String> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
    let result: Value = serde_json::from_str(&text).map_err(|error| at(&error))?;
    let number = |pointer: &str| result.pointer(pointer).and_then(Value::as_f64);
    let found = match result["schema"].as_str() {
        Some("holdall-bench-score") => {
            number("/maxima/random").map(|random| Measured { random, hot: number("/maxima/hot") })
        }
        Some("holdall-bench-search") => {
            let gets = gets_of_a_request(&result["spec"]).map_err(|why| at(&why))?;
            number("/found/throughput/0").map(|all| Measured { random: all * gets, hot: None })
        }
        Some(other) => {
            return Err(at(&format!(
                "a result of '{other}'; give one of `holdall bench score` or `search`"
            )));
        }
        None => return Err(at(&"not a result of `holdall bench`")),
    };
    found.ok_or_else(|| at(&"no load held the bounds"))
}

/// Average number of keys that a request of the bench gets: some set a key, others get many.
fn gets_of_a_request(spec: &Value) -> Result<f64, String> {
    let parts = spec["ratio"].as_str().and_then(|ratio| ratio.split_once(':'));
    let parts = parts.and_then(|(sets, gets)| Some((number(sets)?, number(gets)?)));
    let keys = spec["multiget"].as_f64().filter(|keys| *keys >= 1.0);
    match (parts, keys) {
        (Some((sets, gets)), Some(keys)) if gets > 0.0 => Ok(keys * gets / (sets + gets)),
        (Some(_), Some(_)) => Err("nothing but sets was measured".to_owned()),
        _ => Err("no 'ratio' or 'multiget' in 'spec'".to_owned()),
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| *number >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rates_exclude_sets_and_count_multiget_keys() {
        let gets = |ratio: &str, keys: u32| {
            gets_of_a_request(&serde_json::json!({ "ratio": ratio, "multiget": keys }))
        };
        assert_eq!(gets("0:1", 1), Ok(1.0));
        assert_eq!(gets("1:3", 1), Ok(0.75));
        assert_eq!(gets("1:1", 10), Ok(5.0));
        assert!(gets("1:0", 1).is_err() && gets("x", 1).is_err());
        assert!(gets_of_a_request(&Value::Null).is_err());
    }

    /// Appendix B of the guide, with the ratios of its section 5 (which rounds to 8.4, 12.9, ~55,
    /// and 5.6, 4.3, 3.7).
    #[test]
    fn the_platforms_match_the_figures_of_the_guide() {
        let mut platforms = of_the_guide();
        for platform in &mut platforms {
            platform.resolve(Path::new("guide.toml")).unwrap_or_else(|error| panic!("{error}"));
        }
        let overall: Vec<f64> = platforms.iter().map(|p| p.capacity().round()).collect();
        assert_eq!(overall, [70_400.0, 588_000.0, 908_800.0, 3_856_000.0]);
        let per_watt: Vec<f64> =
            platforms.iter().filter_map(Platform::per_watt).map(f64::round).collect();
        assert_eq!(per_watt, [3520.0, 19_600.0, 15_147.0, 12_853.0]);
        let times = |value: fn(&Platform) -> f64| -> Vec<f64> {
            let first = value(&platforms[0]);
            platforms.iter().map(|p| (value(p) / first * 100.0).round() / 100.0).collect()
        };
        assert_eq!(times(Platform::capacity), [1.0, 8.35, 12.91, 54.77]);
        assert_eq!(times(|p| p.per_watt().unwrap_or(0.0)), [1.0, 5.57, 4.30, 3.65]);
    }
}
