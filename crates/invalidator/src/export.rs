//! The export of metrics to an OpenTelemetry collector.

use telemetry::{Settings, Telemetry};

use crate::config::Config;
use crate::message::Failure;

/// The exporter of this configuration and the environment; none if they name no collector.
///
/// # Errors
///
/// When a setting or a file of certificates cannot be used.
pub(crate) fn telemetry(config: &Config) -> Result<Option<Telemetry>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::read("invalidate", config.otlp.as_deref(), &variable)?;
    let Some(settings) = settings else { return Ok(None) };
    Ok(Some(Telemetry::open(&settings).map_err(|error| format!("otlp: {error}"))?))
}
