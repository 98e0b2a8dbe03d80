//! The file that describes the load to size. Every error names the entry that is missing or wrong.

pub(crate) mod curve_file;
pub(crate) mod platform;
mod scenario;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::units::Bytes;
pub use platform::Platform;
pub use scenario::{Limits, Scenario};

/// A commented file of every entry.
pub const EXAMPLE: &str = include_str!("../../data/example.toml");

/// A cache tier that is to be sized.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The use of the tier; sets the limits that are not given.
    #[serde(default)]
    pub scenario: Scenario,
    /// Share of a server's capacity that is planned to be used, over 0 to 1.
    pub utilization: Option<f64>,
    /// Greatest share of the items that the loss of one server may take, over 0 to 1.
    pub max_loss: Option<f64>,
    /// Servers beyond those that the load needs.
    pub spares: Option<u32>,
    /// The requests.
    pub load: Load,
    /// The items.
    pub data: Data,
    /// Hit ratio by memory.
    #[serde(default)]
    pub hits: Hits,
    /// The database behind.
    pub database: Option<Database>,
    /// Prices.
    #[serde(default)]
    pub cost: Cost,
    /// Candidate servers; if there are none, the guide's.
    #[serde(default, rename = "platform")]
    pub platforms: Vec<Platform>,
}

/// The requests of the web tier (guide, section 4.3.2).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Gets per second on average, if the total is known.
    pub gets_per_second: Option<f64>,
    /// The guide's X.
    pub web_servers: Option<f64>,
    /// The guide's N, of each web server.
    pub pages_per_second: Option<f64>,
    /// The guide's M.
    pub gets_per_page: Option<f64>,
    /// The greatest load as a multiple of the average.
    #[serde(default = "one")]
    pub peak_factor: f64,
    /// Growth of the load and of the items in a year: 0.3 is 30 %.
    #[serde(default)]
    pub growth_per_year: f64,
    /// Years that the tier is to be large enough for.
    #[serde(default)]
    pub years: f64,
    /// Share of the gets that ask for the hottest key.
    #[serde(default)]
    pub hot_key_share: f64,
    /// Keys of a request: a multiget's, on average.
    #[serde(default = "one")]
    pub gets_per_request: f64,
}

/// The items.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Distinct items that are asked for.
    pub items: Option<f64>,
    /// Keys and values of all of them, in place of their number.
    pub bytes: Option<Bytes>,
    /// `[key bytes, value bytes, weight]`.
    pub sizes: Option<Vec<[f64; 3]>>,
    /// The answer of a running server to `stats sizes`, in place of `sizes`.
    pub stats_sizes: Option<PathBuf>,
    /// With `stats_sizes`: bytes of a key.
    pub key_bytes: Option<f64>,
    /// With `stats_sizes`: bytes of the server's header of an item: 16 of holdall, 56 of memcached.
    pub header_bytes: Option<f64>,
}

/// Hit ratio by memory (guide, section 4.3.1).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hits {
    /// The hit ratio that is wanted; memory follows.
    pub wanted: Option<f64>,
    /// Memory for items in the whole tier; the hit ratio follows.
    pub memory: Option<Bytes>,
    /// The answer of a running server to `stats mrc`.
    pub curve: Option<PathBuf>,
    /// Servers of the tier of which `curve` is one; without it, it is the only one.
    pub servers: Option<f64>,
    /// One point of the tier's curve.
    pub known: Option<Known>,
    /// Exponent of the power law through `known`: the miss ratio falls with memory to this power.
    /// The guide's rule, a quarter of the misses' half by four times the memory, is 0.5.
    pub exponent: Option<f64>,
}

/// A point that was seen.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Memory of the tier.
    pub memory: Bytes,
    /// Hit ratio, 0 to 1.
    pub hit_ratio: f64,
}

/// The database.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Reads per second that it can serve.
    pub reads_per_second: f64,
}

/// Prices, in any one currency.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// Years that a server is used for.
    pub years: f64,
    /// Price of a kilowatt hour.
    pub kwh: f64,
    /// Electricity of the building over that of its servers.
    pub pue: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { years: 3.0, kwh: 0.12, pue: 1.5 }
    }
}

fn one() -> f64 {
    1.0
}

/// The reason why a file cannot be sized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct InputError {
    /// The file.
    pub path: PathBuf,
    /// The entry, what is wrong with it, and what to do.
    pub why: String,
}

impl InputError {
    /// The entry of `path` is wrong.
    #[must_use]
    pub fn new(path: &Path, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }
}

impl Input {
    /// Reads a file. Files that it names are relative to it.
    ///
    /// # Errors
    ///
    /// If it or a file that it names cannot be read, has the wrong form, or an entry is out of its
    /// range.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| InputError::new(path, error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Reads `text`, which errors call `path`.
    ///
    /// # Errors
    ///
    /// As [`Input::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, InputError> {
        let mut input: Self =
            toml::from_str(text).map_err(|error| InputError::new(path, error.to_string()))?;
        if input.platforms.is_empty() {
            input.platforms = platform::of_the_guide();
        }
        for platform in &mut input.platforms {
            platform.resolve(path)?;
        }
        match input.out_of_range() {
            Some(why) => Err(InputError::new(path, why)),
            None => Ok(input),
        }
    }

    /// The limits of the scenario with what the file changes.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let preset = self.scenario.limits();
        Limits {
            utilization: self.utilization.unwrap_or(preset.utilization),
            max_loss: self.max_loss.unwrap_or(preset.max_loss),
            spares: self.spares.map_or(preset.spares, f64::from),
        }
    }

    fn out_of_range(&self) -> Option<String> {
        let share = |value: f64| value > 0.0 && value <= 1.0;
        let (load, hits, cost) = (&self.load, &self.hits, &self.cost);
        let growth = load.growth_per_year > -1.0 && load.years >= 0.0;
        let rules = [
            (self.utilization.is_none_or(share), "utilization: a share over 0, at most 1"),
            (self.max_loss.is_none_or(share), "max_loss: a share over 0, at most 1"),
            (load.peak_factor >= 1.0, "load.peak_factor: at least 1"),
            (growth, "load.growth_per_year and load.years: over -1, and at least 0"),
            ((0.0..=1.0).contains(&load.hot_key_share), "load.hot_key_share: 0 to 1"),
            (load.gets_per_request >= 1.0, "load.gets_per_request: at least 1"),
            (
                hits.wanted.is_none_or(|wanted| (0.0..1.0).contains(&wanted)),
                "hits.wanted: a hit ratio of at least 0 and below 1",
            ),
            (hits.servers.is_none_or(|servers| servers >= 1.0), "hits.servers: at least 1"),
            (
                hits.exponent.is_none_or(|exponent| exponent > 0.0 && exponent <= 4.0),
                "hits.exponent: over 0, at most 4",
            ),
            (
                hits.known.is_none_or(|known| {
                    known.memory.0 > 0.0 && (0.0..1.0).contains(&known.hit_ratio)
                }),
                "hits.known: memory over 0, and a hit_ratio of at least 0 and below 1",
            ),
            (
                self.database.is_none_or(|database| database.reads_per_second > 0.0),
                "database.reads_per_second: over 0",
            ),
            (
                cost.years > 0.0 && cost.kwh >= 0.0 && cost.pue >= 1.0,
                "cost: years over 0, kwh at least 0, pue at least 1",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map(|(_, broken)| (*broken).to_owned())
    }
}
