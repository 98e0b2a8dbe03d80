//! The clock.

use super::Scene;
use crate::finding::{Finding, Level, Setting};

/// A clock source that needs a system call and a slow device.
pub(super) fn source(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let Some(current) = scene.host.text(&format!("{FOLDER}/current_clocksource")) else { return };
    if !["hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"].contains(&current.as_str()) {
        return;
    }
    let available = scene.host.text(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let best = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"]
        .into_iter()
        .find(|name| available.split_whitespace().any(|word| word == *name));
    let found_line = format!("the clock source is {current}");
    let why = "each reading of the time costs a microsecond in place of some nanoseconds";
    found.push(match best {
        Some(best) => Finding::by_settings(
            "clock",
            Level::Warning,
            found_line,
            why,
            vec![Setting { file: format!("{FOLDER}/current_clocksource"), value: best.to_owned() }],
        ),
        None => Finding::by_hand(
            "clock",
            Level::Warning,
            found_line,
            why,
            "the kernel's log says why tsc was given up: dmesg | grep -i tsc",
        ),
    });
}
