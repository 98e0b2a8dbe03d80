//! The sampler's thread: takes the workers' samples to the estimators, ten times a second.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

use options::Options;

use super::Failure;
use crate::shared::Shared;

/// The running thread.
#[derive(Debug)]
pub(super) struct SamplerThread {
    /// Dropped to stop it.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl SamplerThread {
    /// Starts it, if anything is sampled.
    pub(super) fn start(shared: &Arc<Shared>, options: &Options) -> Result<Option<Self>, Failure> {
        if !options.sampling {
            return Ok(None);
        }
        let shared = Arc::clone(shared);
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            let interval = engine::SAMPLES_INTERVAL;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                shared.collect_samples();
            }
        };
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(body)
            .map_err(|error| Failure::os(format!("cannot start the sampler: {error}")))?;
        Ok(Some(Self { stop, thread }))
    }

    /// Stops it and waits for its end.
    pub(super) fn stop(self) {
        drop(self.stop);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
