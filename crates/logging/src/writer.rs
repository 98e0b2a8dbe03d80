//! The thread that writes the queue to stderr.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use tracing::Level;

use super::lines::Line;
use super::queue::Queue;
use super::{LINES, QUEUE};

/// The longest wait for a reader of stderr when the process ends.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);

/// The thread that writes lines to stderr. Dropping it waits until all lines are written, but at
/// most one second: the reader may never return.
#[derive(Debug)]
pub struct Writer(());

impl Writer {
    /// Starts the thread. From now on, logging never blocks. One per process is enough: a second
    /// one is refused.
    ///
    /// # Errors
    ///
    /// The thread cannot be started, or there is already a writer.
    pub fn start(name: &'static str) -> io::Result<Self> {
        if !QUEUE.open() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a log writer"));
        }
        let buffer = Queue::buffer();
        let write = move || write_all(name, buffer);
        match thread::Builder::new().name("log".to_owned()).spawn(write) {
            Ok(_) => Ok(Self(())),
            Err(error) => {
                QUEUE.abandon();
                Err(error)
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        QUEUE.close(Instant::now() + PATIENCE_AT_END);
    }
}

fn write_all(name: &str, mut buffer: Vec<u8>) {
    while let Some(taken) = QUEUE.take(&mut buffer) {
        let mut stderr = io::stderr();
        // A line that cannot be written is lost: a log must not stop a cache.
        let _ = stderr.write_all(&buffer);
        buffer.clear();
        if taken.lost > 0 {
            let lost = taken.lost;
            let message = &format_args!("{lost} log lines were lost: nobody read stderr in time");
            let _ = match LINES.get() {
                Some(form) => {
                    let line = Line { form: *form, level: Level::WARN, part: "log", message };
                    write!(stderr, "{line}")
                }
                None => writeln!(stderr, "{name}: warning: {message}"),
            };
        }
    }
}
