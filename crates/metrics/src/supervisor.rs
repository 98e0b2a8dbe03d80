//! The communication with systemd, if it started the process: ready, stopping, alive.
//!
//! Source: sd_notify(3). Without a listener, nothing is sent.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The time that a start asks for at a time.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The time that a start asks for in all: after it, the unit's own time to start counts.
const START_PATIENCE_IN_ALL: Duration = Duration::from_secs(3600);

/// Reports that clients are served from now on. `is_successor`: this process replaced another one,
/// and is not the one that systemd started.
///
/// # Errors
///
/// systemd is named in the environment and cannot be reached.
pub fn ready(is_successor: bool) -> io::Result<()> {
    let news = [NotifyState::Ready, NotifyState::MainPid(process::id())];
    sd_notify::notify(if is_successor { &news } else { &news[..1] })
}

/// Reports that the settings are being replaced, until [`reloaded`], or [`ready`] of another
/// process, ends this.
pub fn reloading() {
    // The time distinguishes this from an earlier one.
    let since = NotifyState::monotonic_usec_now();
    let news: Vec<_> = [NotifyState::Reloading].into_iter().chain(since.ok()).collect();
    // A missing supervisor need not know.
    let _ = sd_notify::notify(&news);
}

/// Reports the end of the reload: the new settings are in effect, or the old ones stay.
pub fn reloaded() {
    // A missing supervisor need not know.
    let _ = ready(false);
}

/// Asks for more time to start, again and again until the result is dropped, but for an hour at
/// most. Without a supervisor there is no thread.
///
/// # Errors
///
/// There is no thread.
pub fn starting() -> io::Result<Watchdog> {
    let interval = std::env::var_os("NOTIFY_SOCKET").map(|_| START_PATIENCE / 2);
    let since = Instant::now();
    Watchdog::every(
        interval,
        move || since.elapsed() < START_PATIENCE_IN_ALL,
        || {
            // A missing supervisor need not know.
            let _ = sd_notify::notify(&[extension(START_PATIENCE)]);
        },
    )
}

fn extension(patience: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(patience.as_micros()).unwrap_or(u32::MAX))
}

/// Sends one line for people, which `systemctl status` shows.
pub fn status(line: &str) {
    // A missing supervisor need not know.
    let _ = sd_notify::notify(&[NotifyState::Status(line)]);
}

/// Reports that shutdown has started and takes up to `patience`, whatever the unit's timeout.
pub fn stopping(patience: Duration) {
    // A missing supervisor need not know.
    let _ = sd_notify::notify(&[NotifyState::Stopping, extension(patience)]);
}

/// Reports that the process is alive, twice per interval of `WatchdogSec=`, until it is dropped.
/// Without `WatchdogSec=` there is no thread.
#[derive(Debug)]
pub struct Watchdog {
    interval: Option<Duration>,
    is_over: Arc<AtomicBool>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts it. When the process is no longer alive, systemd receives nothing and restarts it.
    /// `inherited` is the interval of a process that this one replaces: systemd names the interval
    /// only to the process that it starts.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(
        inherited: Option<Duration>,
        is_alive: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::every(sd_notify::watchdog_enabled().or(inherited), is_alive, || {
            // After a lost message comes another.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        })
    }

    fn every(
        interval: Option<Duration>,
        is_alive: impl Fn() -> bool + Send + 'static,
        tell: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let Some(period) = interval.map(|interval| interval / 2) else {
            return Ok(Self { interval, is_over, stop: None, thread: None });
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let over = Arc::clone(&is_over);
        let body = move || {
            loop {
                // Relaxed: a flag that orders nothing else; the next message sees it.
                if over.load(Ordering::Relaxed) || is_alive() {
                    tell();
                }
                if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(body)?;
        Ok(Self { interval, is_over, stop: Some(stop), thread: Some(thread) })
    }

    /// `WatchdogSec=`, for the process that replaces this one.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// The process is ending, and the watched threads have ended: systemd waits until the drop.
    pub fn relax(&self) {
        // Relaxed: see the thread.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, systemd acts on its silence.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_hung_process_sends_no_watchdog_message_until_shutdown() {
        let (said, words) = mpsc::channel();
        let (is_alive, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (alive, asks) = (Arc::clone(&is_alive), Arc::clone(&asked));
        let watchdog = Watchdog::every(
            Some(Duration::from_millis(2)),
            move || {
                let is_alive = alive.load(Ordering::Relaxed);
                asks.fetch_add(1, Ordering::Relaxed);
                is_alive
            },
            move || {
                let _ = said.send(());
            },
        )
        .unwrap();
        let wait_for = |more: usize| {
            let until = asked.load(Ordering::Relaxed) + more;
            while asked.load(Ordering::Relaxed) < until {
                thread::sleep(Duration::from_millis(1));
            }
        };
        words.recv().unwrap();
        words.recv().unwrap();
        is_alive.store(false, Ordering::Relaxed);
        // When the second call comes, the possible message of the first has been sent.
        wait_for(2);
        while words.try_recv().is_ok() {}
        wait_for(5);
        assert_eq!(words.try_recv(), Err(mpsc::TryRecvError::Empty));
        watchdog.relax();
        words.recv().unwrap();
        drop(watchdog);
        // No sender is left, so this ends.
        words.iter().for_each(drop);
    }
}
