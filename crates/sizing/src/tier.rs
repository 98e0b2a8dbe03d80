//! The data common to all candidates: the requests, the items, and the hits that memory brings.

use std::path::Path;

use serde::Serialize;

use crate::hits::{Curve, GUIDES_EXPONENT, PowerLaw};
use crate::input::{Database, Input, InputError, Limits, curve_file};
use crate::items::{SAMPLE_BYTES, Sizes};

/// Gets per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Demand {
    /// Today's average: the guide's X * M * N.
    pub average: f64,
    /// The average after the growth.
    pub grown: f64,
    /// The maximum after the growth.
    pub peak: f64,
    /// The hottest key's part of the peak.
    pub hot_key: f64,
    /// Fills per second at the peak.
    pub fills: f64,
}

/// The items after the growth.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Items {
    /// Their number.
    pub number: f64,
    /// Mean bytes of a key.
    pub key_bytes: f64,
    /// Mean bytes of a value.
    pub value_bytes: f64,
    /// Mean bytes of memory for each, in this build.
    pub item_bytes: f64,
    /// Memory for all of them.
    pub all_bytes: f64,
}

/// Hit ratio, and the memory that it takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HitSummary {
    /// Hit ratio, 0 to 1.
    pub ratio: f64,
    /// Memory for items in the whole tier: the sum of all `-m`.
    pub memory_bytes: f64,
    /// The power law behind the curve, if one is known.
    pub law: Option<PowerLaw>,
    /// Hit ratio with four times the memory.
    pub ratio_of_four_times: f64,
    /// Reads of the database per second on average, and at the peak.
    pub database_reads: (f64, f64),
    /// The same as shares of what the database can serve; if that is known.
    pub database_used: Option<(f64, f64)>,
}

/// The data common to all candidates.
pub(crate) struct Tier<'i> {
    pub input: &'i Input,
    pub limits: Limits,
    pub demand: Demand,
    pub sizes: Sizes,
    pub items: Items,
    pub hits: HitSummary,
    pub curve: Curve,
    /// The items that a running server keeps, by its own statistics.
    pub kept: Kept,
}

/// The requested items that a running server keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// Bytes of its memory and of the items in it, if known.
    pub memory: Option<(f64, f64)>,
    /// Small items are preferred to large ones.
    pub weighs_size: bool,
}

impl<'i> Tier<'i> {
    /// The tier of `input`; `path` is its file, for errors.
    ///
    /// # Errors
    ///
    /// An entry that is missing, contradicts another, or requests the impossible.
    pub(crate) fn new(input: &'i Input, path: &Path) -> Result<Self, InputError> {
        let wrong = |why: String| InputError::new(path, why);
        let average = average(input).map_err(|why| wrong(why.to_owned()))?;
        let growth = (1.0 + input.load.growth_per_year).powf(input.load.years);
        let sizes = Sizes::of(&input.data, path)?;
        let items = items(input, &sizes, growth).map_err(wrong)?;
        let (curve, kept) = curve(input, path, items.all_bytes / growth)?;
        let curve = curve.grown(growth);
        let peak = average * growth * input.load.peak_factor;
        let hits = hits(input, &curve, &items, average * growth, peak).map_err(wrong)?;
        let demand = Demand {
            average,
            grown: average * growth,
            peak,
            hot_key: peak * input.load.hot_key_share,
            fills: peak * (1.0 - hits.ratio),
        };
        Ok(Self { input, limits: input.limits(), demand, sizes, items, hits, curve, kept })
    }
}

/// The guide's X * M * N, or the value in the file.
fn average(input: &Input) -> Result<f64, &'static str> {
    let load = &input.load;
    let average = match (load.gets_per_second, load.web_servers, load.pages_per_second) {
        (Some(gets), None, _) => gets,
        (Some(_), Some(_), Some(_)) => {
            return Err("load: gets_per_second, or web_servers with pages_per_second and \
                        gets_per_page; not both");
        }
        // The number of web servers is then only for the guide's rule.
        (Some(gets), Some(_), None) => gets,
        (None, web, pages) => {
            let web = web.ok_or("load.web_servers is missing, or load.gets_per_second")?;
            let pages = pages.ok_or(
                "load.pages_per_second is missing: pages a second of each web server, or \
                 load.gets_per_second",
            )?;
            let gets = load.gets_per_page.ok_or(
                "load.gets_per_page is missing: keys that a page asks for, or \
                 load.gets_per_second",
            )?;
            web * pages * gets
        }
    };
    if average > 0.0 && average.is_finite() {
        return Ok(average);
    }
    Err("load: the gets a second are not over 0")
}

fn items(input: &Input, sizes: &Sizes, growth: f64) -> Result<Items, String> {
    let (key_bytes, value_bytes) = (sizes.key_bytes(), sizes.value_bytes());
    let number = match (input.data.items, input.data.bytes) {
        (Some(items), None) => items,
        (None, Some(bytes)) => bytes.0 / (key_bytes + value_bytes),
        (None, None) => {
            return Err("data.items is missing: distinct items that are asked for, or \
                        data.bytes = their keys and values"
                .to_owned());
        }
        (Some(_), Some(_)) => return Err("data.items and data.bytes: give one".to_owned()),
    };
    if number < 1.0 {
        return Err("data: there is not one item".to_owned());
    }
    let item_bytes = sizes
        .item_bytes(SAMPLE_BYTES)
        .map_err(|error| format!("a store of 64 MiB, to measure an item by: {error}"))?;
    let number = number * growth;
    Ok(Items { number, key_bytes, value_bytes, item_bytes, all_bytes: number * item_bytes })
}

fn curve(input: &Input, path: &Path, all_bytes: f64) -> Result<(Curve, Kept), InputError> {
    let (hits, unknown) = (&input.hits, Kept::default());
    match (&hits.curve, hits.known) {
        (Some(_), Some(_)) => {
            Err(InputError::new(path, "hits.curve and hits.known: give one".to_owned()))
        }
        (Some(file), None) => {
            let file = path.with_file_name(file);
            let text = std::fs::read_to_string(&file)
                .map_err(|error| InputError::new(&file, error.to_string()))?;
            let told =
                curve_file::miss_ratio_curve(&text).map_err(|why| InputError::new(&file, why))?;
            let kept = Kept { memory: told.memory, weighs_size: told.weighs_size };
            let servers = hits.servers.unwrap_or(1.0);
            let of_all = |(bytes, ratio)| (bytes * servers, ratio);
            let points = told.points.into_iter().map(of_all).collect();
            Ok((Curve::measured(points, all_bytes), kept))
        }
        (None, Some(known)) => {
            let exponent = hits.exponent.unwrap_or(GUIDES_EXPONENT);
            Ok((Curve::law(known.memory.0, known.hit_ratio, exponent, all_bytes), unknown))
        }
        (None, None) => Ok((Curve::even(all_bytes), unknown)),
    }
}

fn hits(
    input: &Input,
    curve: &Curve,
    items: &Items,
    average: f64,
    peak: f64,
) -> Result<HitSummary, String> {
    let memory = match (input.hits.wanted, input.hits.memory) {
        (Some(_), Some(_)) => return Err("hits.wanted and hits.memory: give one".to_owned()),
        (None, Some(memory)) if memory.0 > 0.0 => memory.0,
        (None, Some(_)) => return Err("hits.memory: over 0".to_owned()),
        (None, None) => items.all_bytes,
        (Some(wanted), None) => curve.memory_for(wanted).ok_or_else(|| {
            format!(
                "hits.wanted: memory for all items hits {:.4} by the curve, so {wanted} is not \
                 reached",
                curve.hit_ratio(items.all_bytes)
            )
        })?,
    };
    let ratio = curve.hit_ratio(memory);
    let reads = (average * (1.0 - ratio), peak * (1.0 - ratio));
    let used = |database: Database| {
        (reads.0 / database.reads_per_second, reads.1 / database.reads_per_second)
    };
    Ok(HitSummary {
        ratio,
        memory_bytes: memory,
        law: curve.power_law(),
        ratio_of_four_times: curve.hit_ratio(4.0 * memory),
        database_reads: reads,
        database_used: input.database.map(used),
    })
}
