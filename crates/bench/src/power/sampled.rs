//! Readings of a meter of momentary watts, once per second on a separate thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};

/// The time between two readings. Management controllers measure about as often.
const INTERVAL: Duration = Duration::from_secs(1);

/// A meter of momentary watts.
pub(super) type Read = Box<dyn FnMut() -> Result<f64> + Send>;

/// Running readings.
#[derive(Debug)]
pub(super) struct Sampled {
    stop: Sender<()>,
    thread: JoinHandle<Result<f64>>,
}

impl Sampled {
    /// Reads once, and then once per second until [`Self::end`].
    ///
    /// # Errors
    ///
    /// When the first reading fails.
    pub(super) fn begin(mut read: Read) -> Result<Self> {
        let (mut sum, mut count) = (read()?, 1.0);
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                sum += read()?;
                count += 1.0;
            }
            Ok(sum / count)
        });
        Ok(Self { stop, thread })
    }

    /// The mean of the readings.
    ///
    /// # Errors
    ///
    /// When a reading failed.
    pub(super) fn end(self) -> Result<f64> {
        // The thread has ended if a reading failed.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the thread of the power readings failed"))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_meter_is_reported_at_the_start_or_end() {
        assert!(Sampled::begin(Box::new(|| Err(anyhow!("away")))).is_err());
        let mut answers = [Ok(100.0), Err(anyhow!("gone"))].into_iter();
        let (told, read) = channel();
        let sampled = Sampled::begin(Box::new(move || {
            let answer = answers.next().unwrap();
            let _ = told.send(());
            answer
        }));
        let sampled = sampled.unwrap();
        assert!(read.iter().count() == 2, "the thread ends with the first failure");
        assert_eq!(sampled.end().unwrap_err().to_string(), "gone");
        let sampled = Sampled::begin(Box::new(|| Ok(60.0))).unwrap();
        assert!((sampled.end().unwrap() - 60.0).abs() < 1e-9);
    }
}
