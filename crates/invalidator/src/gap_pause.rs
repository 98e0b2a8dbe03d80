//! The pause before a flush, if the log cannot be read from the position again and again. Each
//! flush empties every cluster, so that the database gets the clients' reads.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST: Duration = Duration::from_mins(5);

/// A gap repeats the previous one if it comes within this time after reading went on.
const REPEATS_WITHIN: Duration = Duration::from_mins(1);

/// The pauses of gaps that repeat.
#[derive(Debug, Default)]
pub(crate) struct GapPause {
    pause: Duration,
    /// The time at which reading went on after the last gap.
    resumed: Option<Instant>,
}

impl GapPause {
    /// The pause before the flush of a gap; zero unless the gap repeats the previous one.
    pub(crate) fn before_flush(&mut self) -> Duration {
        let is_repeated = self.resumed.is_some_and(|at| at.elapsed() < REPEATS_WITHIN);
        self.pause =
            if is_repeated { (self.pause * 2).clamp(FIRST, LONGEST) } else { Duration::ZERO };
        self.pause
    }

    /// Reading goes on after a gap.
    pub(crate) fn resumed(&mut self) {
        self.resumed = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_gaps_that_repeat_pause_and_longer_each_time() {
        let mut gaps = GapPause::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = gaps.before_flush();
            pauses.push(pause.as_secs());
            advance(pause).await;
            gaps.resumed();
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        advance(REPEATS_WITHIN).await;
        assert_eq!(gaps.before_flush(), Duration::ZERO);
        gaps.resumed();
        assert_eq!(gaps.before_flush(), FIRST);
    }
}
