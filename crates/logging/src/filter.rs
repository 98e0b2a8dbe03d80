//! The selection of events: a level, and levels of single parts, as in `info,connections=debug`.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::filter::Targets;

/// The parts of the log.
pub const PARTS: [&str; 5] = ["server", "commands", "connections", "route", "invalidate"];

/// The events that are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(Targets);

/// A text that is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// Neither a level nor a part.
    #[error(
        "'{0}' is neither a level (error, warn, info, debug, off) nor PART=LEVEL; parts are server, \
         commands, connections, route and invalidate"
    )]
    Unknown(String),
}

impl Default for Filter {
    fn default() -> Self {
        Self(Targets::new().with_default(tracing::Level::INFO))
    }
}

impl Filter {
    pub(crate) fn targets(&self) -> Targets {
        self.0.clone()
    }
}

impl fmt::Display for Filter {
    /// In the form of settings: parts first, then the level of all others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let is_level = |word: &str| LEVELS.contains(&word);
        let mut targets = Targets::new().with_default(tracing::Level::INFO);
        for element in text.split(',').map(str::trim) {
            let unknown = || BadFilter::Unknown(element.to_owned());
            let (part, level) = element.split_once('=').map_or(("", element), |both| both);
            if !is_level(level) || !(part.is_empty() || PARTS.contains(&part)) {
                return Err(unknown());
            }
            let level: tracing::level_filters::LevelFilter =
                level.parse().map_err(|_| unknown())?;
            targets = match part {
                "" => targets.with_default(level),
                part => targets.with_target(part, level),
            };
        }
        Ok(Self(targets))
    }
}

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "off"];

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_part_has_its_own_or_the_default_level() {
        let filter: Filter = "warn,connections=debug".parse().unwrap();
        let would = |part: &str, level| filter.0.would_enable(part, &level);
        assert!(would("connections", Level::DEBUG) && would("server", Level::WARN));
        assert!(!would("server", Level::INFO));
        assert!(!"off".parse::<Filter>().unwrap().0.would_enable("server", &Level::ERROR));
        assert!(Filter::default().0.would_enable("route", &Level::INFO));
    }

    #[test]
    fn filters_round_trip_through_text() {
        for (written, read) in [
            ("warn", "warn"),
            ("debug,connections=off", "connections=off,debug"),
            ("route=error", "route=error,info"),
        ] {
            let filter: Filter = written.parse().unwrap();
            assert_eq!(filter.to_string(), read);
            assert_eq!(read.parse(), Ok(filter));
        }
        assert_eq!(Filter::default().to_string(), "info");
    }

    #[test]
    fn a_misspelt_word_is_refused() {
        for bad in ["", "infoo", "servr=info", "server=loud", "info,", "server=", "=info,x"] {
            assert!(bad.parse::<Filter>().is_err(), "{bad:?}");
        }
    }
}
