//! Scripts: the actions on the deployment, and their times.

use std::time::Duration;

use anyhow::{Result, bail};

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    /// Adds a cluster in the master region, which reads missing values from the database.
    AddColdCluster,
    /// Adds a cluster that is filled from the warm cluster.
    AddCluster,
    /// A cache server does not answer for a while, and keeps its items.
    BlackHole,
    /// The regions cannot reach each other, or can again.
    Cut(bool),
    /// Clusters filled from a warm one are now filled from the database.
    EndWarmUp,
    /// A cache server is killed, and restarted after a while.
    KillServer,
    /// The replica's database is behind, or no longer.
    Lag(bool),
    /// Deletes of the last half minute are sent again.
    Replay,
}

impl Action {
    /// Its word in a script.
    const WORDS: [(&'static str, Self); 10] = [
        ("kill-server", Self::KillServer),
        ("black-hole", Self::BlackHole),
        ("lag", Self::Lag(true)),
        ("no-lag", Self::Lag(false)),
        ("cut", Self::Cut(true)),
        ("join", Self::Cut(false)),
        ("add-cluster", Self::AddCluster),
        ("add-cold-cluster", Self::AddColdCluster),
        ("end-warm-up", Self::EndWarmUp),
        ("replay", Self::Replay),
    ];
}

/// Actions with their times since the start, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Script(pub(crate) Vec<(Duration, Action)>);

/// Reads `10s kill-server; 20s add-cluster`.
pub(crate) fn parse(text: &str) -> Result<Script> {
    let mut all = Vec::new();
    for step in text.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        let Some((time, word)) = step.split_once(char::is_whitespace) else {
            bail!("'{step}': write a time and an action, as in '10s kill-server'");
        };
        let seconds: Option<f64> = time.strip_suffix('s').unwrap_or(time).parse().ok();
        let Some(seconds) = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds)) else {
            bail!("'{time}' is no time: seconds since the start, as in '10s'");
        };
        let Some((_, action)) = Action::WORDS.iter().find(|(known, _)| *known == word.trim())
        else {
            let known = Action::WORDS.map(|(word, _)| word).join(", ");
            bail!("'{}' is no action: {known}", word.trim());
        };
        all.push((Duration::from_secs_f64(seconds), *action));
    }
    all.sort_by_key(|(time, _)| *time);
    Ok(Script(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_sorted_by_time() {
        let script = parse("20s add-cluster; 1.5s kill-server;").unwrap();
        let steps = [(1500, Action::KillServer), (20_000, Action::AddCluster)];
        assert_eq!(script.0, steps.map(|(ms, action)| (Duration::from_millis(ms), action)));
    }

    #[test]
    fn errors_in_a_script_are_named() {
        for (text, said) in [
            ("kill-server", "write a time"),
            ("soon kill-server", "'soon' is no time"),
            ("-1s cut", "'-1s' is no time"),
            ("1s explode", "'explode' is no action: kill-server"),
        ] {
            assert!(parse(text).unwrap_err().to_string().contains(said), "{text}");
        }
    }
}
