//! The three scenarios of the guide (section 6), and the limits that they set here.

use serde::{Deserialize, Serialize};

/// The use of the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// High demands on latency: servers keep half of their capacity free.
    #[default]
    LowLatency,
    /// Latency may rise at the peak: servers are used to four fifths.
    Tolerant,
    /// The loss of a server must take little: no server has more than a fiftieth of the items.
    BlastRadius,
}

/// Limits that the number of servers keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Share of a server's capacity that is planned to be used at the peak.
    pub utilization: f64,
    /// Greatest share of the items on one server.
    pub max_loss: f64,
    /// Servers beyond those that the load needs.
    pub spares: f64,
}

impl Scenario {
    /// The limits. The guide names the scenarios and no numbers; these are ours.
    #[must_use]
    pub const fn limits(self) -> Limits {
        match self {
            Self::LowLatency => Limits { utilization: 0.5, max_loss: 1.0, spares: 1.0 },
            Self::Tolerant => Limits { utilization: 0.8, max_loss: 1.0, spares: 0.0 },
            Self::BlastRadius => Limits { utilization: 0.6, max_loss: 0.02, spares: 1.0 },
        }
    }

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowLatency => "low-latency",
            Self::Tolerant => "tolerant",
            Self::BlastRadius => "blast-radius",
        }
    }
}
