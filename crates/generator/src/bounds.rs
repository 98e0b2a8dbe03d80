//! The bounds of a load that a command line and an agent accept.

use super::spec::{Pace, Spec, Tls};

/// The longest run, in seconds.
pub const SECONDS_MAX: f64 = 1e6;

/// Maximum number of threads, connections per thread, requests in flight and keys per get.
pub const COUNT_MAX: usize = 100_000;

/// Maximum number of keys.
pub const KEYS_MAX: u64 = 1 << 40;

/// Minimum and maximum number of requests per second of an open loop.
pub const RATES: std::ops::RangeInclusive<f64> = 0.1..=1e9;

/// The longest prefix of keys, in bytes.
const PREFIX_BYTES_MAX: usize = 200;

/// A load has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the load: {given} is not {wanted}")]
pub struct OutOfBounds {
    what: &'static str,
    given: String,
    wanted: &'static str,
}

/// True if keys may start like this: no key is a second command.
#[must_use]
pub fn is_key_prefix(text: &str) -> bool {
    text.len() <= PREFIX_BYTES_MAX && text.bytes().all(|byte| byte > b' ' && byte != 0x7f)
}

impl Spec {
    /// Checks values that no command line parsed.
    ///
    /// # Errors
    ///
    /// The first value that no command line accepts.
    pub fn check(&self) -> Result<(), OutOfBounds> {
        let rate = match self.pace {
            Pace::Closed => *RATES.start(),
            Pace::Open { rate, .. } => rate,
        };
        let refused = |what, given, wanted| Err(OutOfBounds { what, given, wanted });
        for (what, count) in [
            ("servers", self.targets.len()),
            ("threads", self.threads),
            ("connections", self.connections),
            ("pipeline", self.pipeline),
            ("keys of a get", self.multiget),
        ] {
            if !(1..=COUNT_MAX).contains(&count) {
                return refused(what, count.to_string(), "from 1 to 100000");
            }
        }
        for (what, seconds) in [("seconds", self.seconds), ("warm-up", self.warm_up)] {
            if !(0.0..=SECONDS_MAX).contains(&seconds) {
                return refused(what, seconds.to_string(), "from 0 to 1000000 seconds");
            }
        }
        if !RATES.contains(&rate) {
            return refused("rate", rate.to_string(), "from 0.1 to 1e9 requests per second");
        }
        if !(self.targets.len() as u64..=KEYS_MAX).contains(&self.keys) {
            return refused("keys", self.keys.to_string(), "from one of each server to 2^40");
        }
        if self.first_key.checked_add(self.keys).is_none() {
            return refused("first key", self.first_key.to_string(), "below 2^64 less the keys");
        }
        if !is_key_prefix(&self.key_prefix) {
            let given = self.key_prefix.escape_debug().to_string();
            return refused("key prefix", given, "200 printable characters at most");
        }
        Ok(())
    }

    /// The files of this host that the load needs: certificates, a key, a login.
    pub fn files(&self) -> impl Iterator<Item = &std::path::Path> {
        let authorities = match &self.tls {
            Some(Tls::Verified(file)) => Some(file),
            Some(Tls::Unverified) | None => None,
        };
        let (certificate, key) = self.identity.as_ref().map(|(one, other)| (one, other)).unzip();
        let all = [authorities, certificate, key, self.login.as_ref()];
        all.into_iter().flatten().map(std::path::PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Arrival;

    type Change = fn(&mut Spec);

    #[test]
    fn an_out_of_range_load_is_refused() {
        let open = |rate| Pace::Open { rate, arrival: Arrival::Fixed };
        let wrong: [(&str, Change); 11] = [
            ("seconds", |spec| spec.seconds = 1e300),
            ("seconds", |spec| spec.seconds = -1.0),
            ("warm-up", |spec| spec.warm_up = f64::NAN),
            ("connections", |spec| spec.connections = 3_000_000),
            ("threads", |spec| spec.threads = 0),
            ("pipeline", |spec| spec.pipeline = 0),
            ("servers", |spec| spec.targets.clear()),
            ("keys", |spec| spec.keys = 0),
            ("keys", |spec| spec.keys = u64::MAX),
            ("first key", |spec| spec.first_key = u64::MAX),
            ("key prefix", |spec| spec.key_prefix = "a\r\nflush_all\r\n".to_owned()),
        ];
        assert_eq!(Spec::default().check(), Ok(()));
        for (what, change) in wrong {
            let mut spec = Spec::default();
            change(&mut spec);
            let error = spec.check().unwrap_err();
            assert_eq!(error.what, what, "{error}");
        }
        for rate in [0.0, -5.0, f64::NAN, f64::INFINITY, 1e12] {
            let spec = Spec { pace: open(rate), ..Spec::default() };
            assert_eq!(spec.check().unwrap_err().what, "rate");
        }
    }

    #[test]
    fn the_files_of_a_load_are_named() {
        let spec = Spec {
            login: Some("l".into()),
            tls: Some(Tls::Verified("a".into())),
            identity: Some(("c".into(), "k".into())),
            ..Spec::default()
        };
        let files: Vec<_> = spec.files().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(files, ["a", "c", "k", "l"]);
        assert_eq!(Spec::default().files().count(), 0);
    }
}
