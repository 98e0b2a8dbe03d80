//! The shutdown of a process with clients. First it reports not ready and keeps serving, so that
//! balancers send no new clients. Then it closes its connections between requests.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crate::health::Health;
use crate::supervisor;

/// The parameters of a shutdown.
#[derive(Clone, Debug)]
pub struct End {
    /// Reports not ready from the start of the shutdown.
    pub health: Arc<Health>,
    /// The time for which clients are still served.
    pub window: Duration,
    /// The maximum time of the rest, for systemd.
    pub patience: Duration,
}

/// A shutdown in progress. When dropped, it waits no longer.
#[derive(Debug)]
pub struct Ending {
    _window: Option<Sender<()>>,
}

impl End {
    /// Starts the shutdown: `close` is called when the window is over, or at once if there is none.
    pub fn begin(&self, close: impl Fn() + Clone + Send + 'static) -> Ending {
        supervisor::stopping(self.window.saturating_add(self.patience));
        self.health.end_in(self.window);
        if self.window.is_zero() {
            close();
            return Ending { _window: None };
        }
        let (sender, receiver) = mpsc::channel::<()>();
        let (window, late) = (self.window, close.clone());
        let wait = move || {
            // Either way it is over: the sender is dropped when nothing waits any more.
            let _ = receiver.recv_timeout(window);
            late();
        };
        if thread::Builder::new().name("drain".to_owned()).spawn(wait).is_err() {
            // Without a thread, there is no wait.
            close();
        }
        Ending { _window: Some(sender) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(window: Duration) -> (End, Sender<()>, mpsc::Receiver<()>) {
        let (closed, is_closed) = mpsc::channel();
        let health = Arc::new(Health::default());
        (End { health, window, patience: Duration::ZERO }, closed, is_closed)
    }

    #[test]
    fn without_a_window_everything_is_closed_at_once() {
        let (end, closed, is_closed) = end(Duration::ZERO);
        let _ending = end.begin(move || {
            let _ = closed.send(());
        });
        assert_eq!(is_closed.try_recv(), Ok(()));
        assert!(end.health.staying().fault.is_some());
    }

    #[test]
    fn within_the_drain_window_the_process_is_only_unready() {
        let (end, closed, is_closed) = end(Duration::from_secs(3600));
        let ending = end.begin(move || {
            let _ = closed.send(());
        });
        assert!(end.health.staying().fault.is_some());
        assert_eq!(is_closed.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(ending);
        assert_eq!(is_closed.recv(), Ok(()));
    }

    #[test]
    fn after_the_window_everything_is_closed() {
        let (end, closed, is_closed) = end(Duration::from_millis(1));
        let _ending = end.begin(move || {
            let _ = closed.send(());
        });
        assert_eq!(is_closed.recv(), Ok(()));
    }
}
