//! A load in words.

use generator::spec::{Pace, Spec};

/// The times at which requests are sent, in words.
pub(crate) fn pace(spec: &Spec) -> String {
    match spec.pace {
        Pace::Closed => "closed loop".to_owned(),
        Pace::Open { rate, arrival } => {
            format!("open loop, {rate} requests a second ({arrival:?} arrivals)").to_lowercase()
        }
    }
}

/// The load in one line.
pub(crate) fn of(spec: &Spec) -> String {
    let pace = pace(spec);
    let targets: Vec<String> = spec.targets.iter().map(ToString::to_string).collect();
    format!(
        "{} by {}: {pace}, {} x {} connections, pipeline {}, {} keys ({}), values {} bytes, sets:gets {}",
        targets.join(" "),
        spec.protocol,
        spec.threads,
        spec.connections * spec.targets.len(),
        spec.pipeline,
        spec.keys,
        spec.pattern,
        spec.value_size,
        spec.ratio
    )
}
