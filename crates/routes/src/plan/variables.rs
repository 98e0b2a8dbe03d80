//! The runtime variables of a plan: weights, and the ranges of shadows.

use std::collections::BTreeSet;

use routeconf::Variables;
use routeconf::ast::{HashFunction, Route, Shadow};
use thiserror::Error;

use super::Plan;

/// A runtime variable whose numbers are not weights or shares of keys.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{name}: {numbers:?} are not from 0 to 1")]
pub struct VariableError {
    name: String,
    numbers: Vec<f64>,
}

impl Plan {
    /// Takes the values of runtime variables.
    ///
    /// # Errors
    ///
    /// An invalid weight or share of keys, by the variable's name.
    pub fn set_variables(&mut self, variables: Variables) -> Result<(), VariableError> {
        let most = |name| if self.names_places(name) { f64::from(u32::MAX) } else { 1.0 };
        let all = variables.iter().map(|(name, numbers)| (name, numbers, most(name)));
        let weights = variables.iter_weights().map(|(name, numbers)| (name, numbers, 1.0));
        for (name, numbers, most) in all.chain(weights) {
            if numbers.iter().any(|number| !(0.0..=most).contains(number)) {
                return Err(VariableError { name: name.to_owned(), numbers: numbers.to_vec() });
            }
        }
        self.variables = variables;
        Ok(())
    }

    /// A warning for each variable that the configuration names and that does not have the numbers
    /// of its use.
    #[must_use]
    pub fn unusable_variables(&self) -> BTreeSet<String> {
        let mut warnings = BTreeSet::new();
        for handle in &self.config.handles {
            let flaws = match &handle.route {
                Route::Hash { hash, .. } => {
                    self.flaw_of_weights(&hash.function).into_iter().collect()
                }
                Route::Pool(pool) => {
                    let weights = self.flaw_of_weights(&pool.hash.function).into_iter();
                    weights.chain(self.flaws_of_ranges(&pool.shadows)).collect()
                }
                Route::Shadow { shadows, .. } => self.flaws_of_ranges(shadows).collect(),
                _ => Vec::new(),
            };
            let place = self.config.files.place(handle.at);
            warnings.extend(flaws.iter().map(|flaw| format!("{place}: warning: {flaw}")));
        }
        warnings
    }

    fn flaw_of_weights(&self, function: &HashFunction) -> Option<String> {
        let HashFunction::WeightedCh3Rv { variable, without } = function else { return None };
        let children = without.len();
        Some(match self.variables.weights(variable).map(<[f64]>::len) {
            None => {
                // A PoolRoute's variable, or that of a hash.
                let is_share = without.ends_with(&[0.0]);
                let effect =
                    if is_share { "the pool receives all requests" } else { "all weights are 1" };
                format!("no runtime variable '{variable}' has numbers; {effect} without it")
            }
            Some(given) if given < children => format!(
                "the runtime variable '{variable}' has fewer weights ({given}) than children \
                 ({children}); missing ones count 0.5"
            ),
            Some(given) if given > children => format!(
                "the runtime variable '{variable}' has more weights ({given}) than children \
                 ({children}); the last ones change nothing"
            ),
            Some(_) => return None,
        })
    }

    fn flaws_of_ranges<'s>(&'s self, shadows: &'s [Shadow]) -> impl Iterator<Item = String> + 's {
        let names = shadows.iter().flat_map(|shadow| {
            [shadow.index_range_rv.as_deref(), shadow.key_fraction_range_rv.as_deref()]
        });
        let is_range = |numbers: &[f64]| matches!(numbers, [from, to] if from <= to);
        let unusable =
            names.flatten().filter(move |name| !self.variables.get(name).is_some_and(is_range));
        unusable.map(|name| {
            format!(
                "no runtime variable '{name}' has two rising numbers; the shadow keeps its range"
            )
        })
    }

    /// Returns true if a shadow takes its places from the variable of this name.
    fn names_places(&self, name: &str) -> bool {
        let mut shadows = self.config.handles.iter().flat_map(|handle| match &handle.route {
            Route::Pool(pool) => pool.shadows.as_slice(),
            Route::Shadow { shadows, .. } => shadows,
            _ => &[],
        });
        shadows.any(|shadow| shadow.index_range_rv.as_deref() == Some(name))
    }
}
