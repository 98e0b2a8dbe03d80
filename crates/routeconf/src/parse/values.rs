//! Settings that several routes share: shadows, rates, shard splits, slow warm-up.

use super::fields::{Fields, as_number};
use super::{Builder, owned};
use crate::ast::{
    RateLimit, Rates, Shadow, ShadowKeys, ShardSplit, ShardSplits, SlowWarmUpSettings,
};
use crate::json::{Node, Value};
use crate::source::{At, Fallible, fail};

/// 26 x 26 suffixes, and the empty one.
const SPLITS_MAX: i64 = 26 * 26 + 1;

impl Builder<'_> {
    pub(super) fn shadows(&mut self, fields: &Fields<'_>) -> Fallible<Vec<Shadow>> {
        fields.unused(&["shadow_policy"]);
        let items = fields.list("shadows")?.unwrap_or_default();
        let mut shadows = Vec::new();
        for item in items {
            // As in mcrouter, an invalid shadow has no effect, and everything else works.
            match self.shadow(item) {
                Ok(shadow) => shadows.push(shadow),
                Err(error) => {
                    let text = format!("the shadow is left out: {}", error.message);
                    self.warn(error.at, text);
                }
            }
        }
        Ok(shadows)
    }

    fn shadow(&mut self, node: &Node) -> Fallible<Shadow> {
        let fields = Fields::new(node, "a shadow")?;
        let target = self.need_route(&fields, "target")?;
        let index_range = match fields.list("index_range")? {
            None => None,
            Some([first, last]) => match (&first.value, &last.value) {
                (&Value::Int(first), &Value::Int(last)) if 0 <= first && first <= last => {
                    let place = |number| u32::try_from(number).unwrap_or(u32::MAX);
                    Some((place(first), place(last)))
                }
                _ => {
                    return fail(
                        first.at,
                        "'index_range' is two places, the first not above the second",
                    );
                }
            },
            Some(_) => return fail(fields.place("index_range"), "'index_range' has two entries"),
        };
        let keys = fields.texts("keys_to_shadow")?.filter(|keys| !keys.is_empty());
        let fraction = fraction_range(&fields)?;
        let requests = fields.number("requests_fraction", 0.0, 1.0)?;
        let range_rv = fields.text("key_fraction_range_rv")?.map(str::to_owned);
        let index_range_rv = fields.text("index_range_rv")?.map(str::to_owned);
        let keys = match (keys, fraction, requests) {
            (Some(_), Some(_), _) => {
                let message = "a shadow has 'keys_to_shadow' or 'key_fraction_range', not both";
                return fail(fields.place("keys_to_shadow"), message);
            }
            (Some(keys), None, _) => ShadowKeys::Keys(keys),
            (None, _, Some(share)) => ShadowKeys::Requests(share),
            (None, fraction, None) => {
                let (start, end) = fraction.unwrap_or((0.0, 1.0));
                ShadowKeys::Fraction(start, end)
            }
        };
        fields.finish(&mut self.findings);
        let key_fraction_range_rv = range_rv;
        Ok(Shadow { target, index_range, index_range_rv, keys, key_fraction_range_rv })
    }

    pub(super) fn rates(&mut self, node: &Node) -> Fallible<Rates> {
        let fields = Fields::new(node, "'rates'")?;
        let limit = |rate, burst| -> Fallible<Option<RateLimit>> {
            let (rate, burst) = (
                fields.number(rate, f64::MIN_POSITIVE, f64::MAX)?,
                fields.number(burst, 1.0, f64::MAX)?,
            );
            Ok(rate.map(|rate| RateLimit { rate, burst: burst.unwrap_or_else(|| rate.max(1.0)) }))
        };
        let rates = Rates {
            gets: limit("gets_rate", "gets_burst")?,
            sets: limit("sets_rate", "sets_burst")?,
            deletes: limit("deletes_rate", "deletes_burst")?,
        };
        fields.finish(&mut self.findings);
        Ok(rates)
    }

    /// `shard_splits` of a `PoolRoute` or a `ShardSplitRoute`.
    pub(super) fn shard_splits(&mut self, fields: &Fields<'_>) -> Fallible<Option<ShardSplits>> {
        fields.unused(&["split_shard_fanout"]);
        let Some(map) = fields.object("shard_splits")? else { return Ok(None) };
        let mut splits = Vec::new();
        for (shard, node) in map.members() {
            if shard.contains(':') || !shard.ends_with(|last: char| last.is_ascii_digit()) {
                let text = format!("no key has the shard '{shard}': a shard id ends with a digit");
                self.warn(node.at, text);
            }
            splits.push((owned(shard), self.shard_split(shard, node)?));
        }
        Ok(Some(ShardSplits { splits }))
    }

    fn shard_split(&mut self, shard: &str, node: &Node) -> Fallible<ShardSplit> {
        if let Value::Int(size) = node.value {
            if size < 1 {
                let text = format!("the split of shard {shard} is 1 or more, not {size}");
                return fail(node.at, text);
            }
            let size = self.clamped(size, shard, node.at);
            return Ok(ShardSplit {
                old_size: size,
                new_size: size,
                start: 0,
                migration_secs: 0,
                fanout_deletes: true,
            });
        }
        let fields = Fields::new(node, format!("the split of shard {shard}"))?;
        let old = fields.int("old_split_size", 1, i64::MAX)?.unwrap_or(1);
        let new = fields.int("new_split_size", 1, i64::MAX)?.unwrap_or(1);
        let split = ShardSplit {
            old_size: self.clamped(old, shard, fields.place("old_split_size")),
            new_size: self.clamped(new, shard, fields.place("new_split_size")),
            start: fields.natural("split_start")?.unwrap_or(0),
            migration_secs: fields.natural("migration_period")?.unwrap_or(0),
            fanout_deletes: fields.flag("fanout_deletes", true)?,
        };
        fields.finish(&mut self.findings);
        Ok(split)
    }

    /// As in mcrouter, the number of suffixes limits the names of a shard.
    fn clamped(&mut self, size: i64, shard: &str, at: At) -> u32 {
        if size > SPLITS_MAX {
            let text = format!("the split of shard {shard} is {SPLITS_MAX} at most, not {size}");
            self.warn(at, text);
        }
        u32::try_from(size.min(SPLITS_MAX)).unwrap_or(1)
    }

    pub(super) fn slow_warmup_settings(
        &mut self,
        node: Option<&Node>,
    ) -> Fallible<SlowWarmUpSettings> {
        let default = SlowWarmUpSettings::default();
        let Some(node) = node else { return Ok(default) };
        let fields = Fields::new(node, "the settings of a slow warm-up")?;
        let share = |name, default| -> Fallible<f64> {
            Ok(fields.number(name, 0.0, 1.0)?.unwrap_or(default))
        };
        let settings = SlowWarmUpSettings {
            enable_threshold: share("enable_threshold", default.enable_threshold)?,
            disable_threshold: share("disable_threshold", default.disable_threshold)?,
            start: share("start", default.start)?,
            step: fields.number("step", 0.0, f64::MAX)?.unwrap_or(default.step),
            min_requests: fields
                .int32("min_requests", 0, u32::MAX)?
                .unwrap_or(default.min_requests),
        };
        if settings.enable_threshold >= settings.disable_threshold {
            return fail(node.at, "'enable_threshold' must be below 'disable_threshold'");
        }
        fields.finish(&mut self.findings);
        Ok(settings)
    }
}

/// Two numbers within 0 and 1, in order.
fn fraction_range(fields: &Fields<'_>) -> Fallible<Option<(f64, f64)>> {
    let wrong =
        "'key_fraction_range' is two numbers within 0 and 1, the first not above the second";
    match fields.list("key_fraction_range")? {
        None => Ok(None),
        Some([start, end]) => match (as_number(start), as_number(end)) {
            (Some(from), Some(to)) if 0.0 <= from && from <= to && to <= 1.0 => {
                Ok(Some((from, to)))
            }
            _ => fail(start.at, wrong),
        },
        Some(_) => fail(fields.place("key_fraction_range"), wrong),
    }
}

/// mcrouter's name of a result without the prefixes that configurations may give it.
pub(super) fn result_name(text: &str) -> String {
    let name = text.strip_prefix("mc_res_").unwrap_or(text);
    name.strip_prefix("carbon::Result::").unwrap_or(name).to_ascii_lowercase()
}
