//! Measures how many bytes of the log are unread: queries the server's files at intervals, on a
//! separate connection.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Settings;
use super::server::{Server, cell};

/// The interval between queries.
const EVERY: Duration = Duration::from_secs(2);

/// The server's files as last seen, and the current read position.
#[derive(Debug)]
pub(super) struct Lag {
    files: Arc<Mutex<Vec<(String, u64)>>>,
    place: (String, u64),
    watcher: JoinHandle<()>,
}

impl Lag {
    pub(super) fn watch(settings: &Settings, name: &str) -> Self {
        let files = Arc::new(Mutex::new(Vec::new()));
        let (seen, settings, name) = (Arc::clone(&files), settings.clone(), name.to_owned());
        let watcher = tokio::spawn(async move {
            loop {
                if let Ok(mut server) = Server::connect(&settings, &name).await {
                    while let Ok(rows) = server.rows("SHOW BINARY LOGS").await {
                        let sizes = rows
                            .iter()
                            .map(|row| (cell(row, 0), cell(row, 1).parse().unwrap_or(0)));
                        *seen.lock() = sizes.collect();
                        sleep(EVERY).await;
                    }
                }
                sleep(EVERY).await;
            }
        });
        Self { files, place: (String::new(), 0), watcher }
    }

    pub(super) fn read_until(&mut self, (file, offset): (&str, u64)) {
        if self.place.0 != file {
            self.place.0 = file.to_owned();
        }
        self.place.1 = offset;
    }

    /// None while the current file is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        let files = self.files.lock();
        let at = files.iter().position(|(name, _)| *name == self.place.0)?;
        let whole: u64 = files[at..].iter().map(|(_, size)| size).sum();
        Some(whole.saturating_sub(self.place.1))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}
