//! Prices and electricity of a tier.

use serde::Serialize;

use crate::input::{Cost, Platform};

const HOURS_OF_A_YEAR: f64 = 8766.0;

/// Costs of a year, in the currency of the file.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Money {
    /// The servers' price divided by their years of use.
    pub servers: f64,
    /// Electricity, if the watts are known.
    pub electricity: Option<f64>,
    /// Both.
    pub total: f64,
    /// The headroom's part of it: servers beyond those that would suffice at full use.
    pub headroom: f64,
}

/// The measure by which candidates are compared: the first that all of them have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cheapest {
    /// Costs of a year.
    Money,
    /// Watts.
    Watts,
    /// Number of servers.
    Servers,
}

impl Money {
    /// `None` without a price.
    pub(crate) fn of(platform: &Platform, servers: f64, headroom: f64, cost: Cost) -> Option<Self> {
        let bought = platform.price? * servers / cost.years;
        let electricity = platform
            .watts
            .map(|watts| watts * servers * cost.pue / 1000.0 * HOURS_OF_A_YEAR * cost.kwh);
        let total = bought + electricity.unwrap_or(0.0);
        Some(Self { servers: bought, electricity, total, headroom: total * headroom / servers })
    }
}
