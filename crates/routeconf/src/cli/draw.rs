//! A walk as a tree of lines, and shares as bars.

use std::fmt::Write as _;

use crate::ast::Config;
use crate::walk::{Step, StepCondition, Walker};

const BAR_CHARS: f64 = 30.0;

/// The steps as a tree.
pub(super) fn tree(config: &Config, walker: &Walker<'_>, steps: &[Step], asked: &[u8]) -> String {
    let mut text = String::new();
    for (place, step) in steps.iter().enumerate() {
        branch(config, walker, step, asked, "", place + 1 == steps.len(), &mut text);
    }
    if walker.was_cut() {
        text.push_str("(cut short: the way goes through more routes than are shown)\n");
    }
    text
}

fn branch(
    config: &Config,
    walker: &Walker<'_>,
    step: &Step,
    asked: &[u8],
    indent: &str,
    last: bool,
    text: &mut String,
) {
    let handle = config.handle(step.route);
    let name = handle.name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let key =
        if step.key == asked { String::new() } else { format!(", as {}", step.key.escape_ascii()) };
    let note = if step.note.is_empty() { String::new() } else { format!(": {}", step.note) };
    let server = step.server.map(|server| format!(" -> {}", walker.member_name(server)));
    let (fork, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    let (when, route, place) =
        (when(step.when), handle.route.name(), config.files.place(handle.at));
    let server = server.unwrap_or_default();
    let _ = writeln!(text, "{indent}{fork}{when}{route}{name}{note}{key}{server}  [{place}]");
    let indent = format!("{indent}{below}");
    for (place, next) in step.next.iter().enumerate() {
        branch(config, walker, next, &step.key, &indent, place + 1 == step.next.len(), text);
    }
}

pub(super) fn when(when: StepCondition) -> &'static str {
    match when {
        StepCondition::Reply => "",
        StepCondition::Also => "also: ",
        StepCondition::Background => "behind its back: ",
        StepCondition::IfFailed => "if that fails: ",
        StepCondition::IfMissed => "if that misses: ",
        StepCondition::IfMissedOrFailed => "if that misses or fails: ",
        StepCondition::Sometimes => "sometimes: ",
    }
}

/// A share from 0 to 1 as a bar with eighths.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is within 0 and 1"
)]
pub(super) fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * BAR_CHARS * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}
