//! The sampler's thread: passes the workers' samples to the estimators, ten times per second; once
//! per second while no worker turns. While sampling is off, it checks once per second if that has
//! changed.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Failure;
use crate::activity::Woken;
use crate::shared::Shared;

/// The running thread.
#[derive(Debug)]
pub(super) struct SamplerThread {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl SamplerThread {
    /// Starts it.
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, Failure> {
        let sampled = Arc::clone(shared);
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || collect(&sampled))
            .map_err(|error| Failure::os(format!("cannot start the sampler: {error}")))?;
        Ok(Self { shared: Arc::clone(shared), thread })
    }

    /// Stops it and waits for its end.
    pub(super) fn stop(self) {
        self.shared.activity.end();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Collects until the server ends. After a while of collecting, it checks if any worker turns:
/// under load that is known at once, and costs one early collection.
fn collect(shared: &Shared) {
    let activity = &shared.activity;
    loop {
        while !shared.engine.is_sampling() {
            if activity.pause(SLEEP) == Woken::ByEnd {
                return;
            }
        }
        for _ in 0..ROUNDS {
            if activity.pause(engine::SAMPLES_INTERVAL) == Woken::ByEnd {
                return;
            }
            shared.collect_samples();
        }
        loop {
            match activity.sleep(SLEEP) {
                Woken::ByEnd => return,
                Woken::ByTurn => break,
                Woken::InTime => shared.collect_samples(),
            }
        }
    }
}

/// Collections between two checks for turning workers: three seconds.
const ROUNDS: u32 = 30;

/// The pause while none turns. Old samples fade by the time that has passed.
const SLEEP: Duration = Duration::from_secs(1);
