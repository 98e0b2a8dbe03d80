//! The thread that sends metrics and spans to the collector.
//!
//! Each export makes new metrics, so a failed one costs nothing: the next contains everything.
//! Spans of a batch that was not accepted are kept and sent again, at most [`TRIES_MAX`] times; in
//! the meantime others wait in the queue, and those without room are dropped. Both are counted.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use metrics::{Page, VERSION};
use prost::Message;
use spans::Spans;

use crate::client::{Client, Outcome};
use crate::export_counts::{ExportCounts, Outcomes};
use crate::message::{
    Metrics, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics, ScopeSpans, Traces,
};
use crate::numbers::Numbers;
use crate::pace::Pace;
use crate::settings::{Settings, Target};
use crate::{resource, traces};

/// The time that the end of a process leaves for unsent data.
const FLUSH: Duration = Duration::from_secs(2);

/// Requests for one batch of spans.
const TRIES_MAX: u32 = 5;

/// The export of a process, before its thread starts.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Option<Signal>,
    traces: Option<Signal>,
    resource: Resource,
    export_counts: Arc<ExportCounts>,
    began_ns: u64,
}

impl Telemetry {
    /// Exports by these settings; numbers count from now on.
    ///
    /// # Errors
    ///
    /// A file of certificates cannot be read.
    pub fn open(settings: &Settings) -> io::Result<Self> {
        let signal = |name, target: &Option<Target>, every| {
            target.clone().map(|target| Signal::new(name, target, every)).transpose()
        };
        Ok(Self {
            metrics: signal("metrics", &settings.metrics, settings.interval)?,
            traces: signal("spans", &settings.traces, settings.delay)?,
            resource: resource::message(&settings.resource),
            export_counts: Arc::default(),
            began_ns: now_ns(),
        })
    }

    /// The counts of exports, for the page of metrics.
    #[must_use]
    pub const fn export_counts(&self) -> &Arc<ExportCounts> {
        &self.export_counts
    }

    /// The queue for ended spans; `None` if they are not exported.
    #[must_use]
    pub fn spans(&self) -> Option<&Arc<Spans>> {
        self.traces.as_ref().map(|_| self.export_counts.spans())
    }

    /// Starts the thread. `page` makes the metrics, `log` takes a line for people when the
    /// collector fails and when it is back.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(
        self,
        page: impl Fn() -> Page + Send + 'static,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Exporter> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (running, ended) = mpsc::channel::<()>();
        let worker = Worker {
            metrics: self.metrics,
            traces: self.traces,
            resource: self.resource,
            numbers: Numbers::new(self.began_ns),
            batch: None,
            export_counts: self.export_counts,
            page: Box::new(page),
            log: Box::new(log),
            is_over: Arc::clone(&is_over),
        };
        let body = move || {
            worker.run();
            drop(running);
        };
        let thread = thread::Builder::new().name("telemetry".to_owned()).spawn(body)?;
        Ok(Exporter { is_over, ended, thread: thread.thread().clone() })
    }
}

/// A running export. When dropped, it sends the rest, for at most two seconds.
#[derive(Debug)]
pub struct Exporter {
    is_over: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: Thread,
}

impl Exporter {
    /// No more data will come: starts to send the rest, and does not wait.
    pub fn finish(&self) {
        // Relaxed: the wake-up that follows orders it.
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.finish();
        // It ends by dropping its sender. One that hangs in a request is abandoned.
        let _ = self.ended.recv_timeout(FLUSH + Duration::from_millis(500));
    }
}

/// One kind of data for its collector.
#[derive(Debug)]
struct Signal {
    name: &'static str,
    client: Client,
    pace: Pace,
    /// A line has reported that the collector does not accept everything.
    is_in_trouble: bool,
}

impl Signal {
    fn new(name: &'static str, target: Target, every: Duration) -> io::Result<Self> {
        let (client, pace) = (Client::new(target)?, Pace::new(every, Instant::now()));
        Ok(Self { name, client, pace, is_in_trouble: false })
    }

    /// Sends, counts, and reports changes to people.
    fn send(
        &mut self,
        message: &[u8],
        patience: Duration,
        outcomes: &Outcomes,
        log: &dyn Fn(&str),
    ) -> Outcome {
        let outcome = self.client.send(message, patience);
        let now = Instant::now();
        outcomes.count(matches!(outcome, Outcome::Taken(..)));
        let trouble = match &outcome {
            Outcome::Taken(rejected, why) => {
                self.pace.taken(now);
                (*rejected > 0).then(|| format!("{rejected} of them: {why}"))
            }
            Outcome::Later(asked, why) => {
                self.pace.failed(*asked, now);
                Some(why.clone())
            }
            Outcome::Refused(why) => {
                self.pace.refused(now);
                Some(why.clone())
            }
        };
        let (name, url) = (self.name, self.client.shown_url());
        match (&trouble, self.is_in_trouble) {
            (Some(why), false) => log(&format!("warning: {url} does not take {name}: {why}")),
            (None, true) => log(&format!("{url} takes {name} again")),
            _ => {}
        }
        self.is_in_trouble = trouble.is_some();
        outcome
    }
}

/// Spans that were not accepted yet.
#[derive(Debug)]
struct Batch {
    message: Vec<u8>,
    spans: u64,
    tries: u32,
}

/// The state of the thread.
struct Worker {
    metrics: Option<Signal>,
    traces: Option<Signal>,
    resource: Resource,
    numbers: Numbers,
    batch: Option<Batch>,
    export_counts: Arc<ExportCounts>,
    page: Box<dyn Fn() -> Page + Send>,
    log: Box<dyn Fn(&str) + Send>,
    is_over: Arc<AtomicBool>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl Worker {
    fn run(mut self) {
        self.export_counts.spans().wakes(thread::current());
        // Relaxed: see `Exporter::finish`.
        while !self.is_over.load(Ordering::Relaxed) {
            let has_more = self.send_spans();
            if self.metrics.as_ref().is_some_and(|signal| signal.pace.due <= Instant::now()) {
                let message = self.numbers_of_now();
                self.send_metrics(&message, Duration::MAX);
            }
            if !has_more {
                thread::park_timeout(self.idle());
            }
        }
        self.flush();
    }

    /// The time until the next action.
    fn idle(&self) -> Duration {
        let due = |signal: &Option<Signal>| signal.as_ref().map(|signal| signal.pace.due);
        let next = due(&self.metrics).into_iter().chain(due(&self.traces)).min();
        let now = Instant::now();
        next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }

    /// Sends the rest. The source of the page is dropped before anything is sent.
    fn flush(mut self) {
        let deadline = Instant::now() + FLUSH;
        let numbers = self.metrics.is_some().then(|| self.numbers_of_now());
        self.page = Box::new(|| Page::new(""));
        let left = || deadline.saturating_duration_since(Instant::now());
        if let Some(message) = numbers {
            self.send_metrics(&message, left());
        }
        while !left().is_zero() && self.has_batch(true) {
            if !self.send_batch(left()) {
                break;
            }
        }
        let waiting = std::iter::from_fn(|| Some(self.export_counts.spans().take().len() as u64));
        let lost: u64 = waiting.take_while(|count| *count > 0).sum();
        let unsent = self.batch.as_ref().map_or(0, |batch| batch.spans);
        // Relaxed: a count, as all of `ExportCounts`.
        self.export_counts.spans_failed.fetch_add(lost + unsent, Ordering::Relaxed);
    }

    /// Sends a batch of spans, if one is due. Returns true if the next one should follow at once:
    /// a turn sends one batch, so that metrics are on time while spans are many.
    fn send_spans(&mut self) -> bool {
        let Some(signal) = &mut self.traces else { return false };
        let now = Instant::now();
        if signal.pace.waits(now) {
            return false;
        }
        let is_due = signal.pace.due <= now;
        if self.has_batch(is_due) {
            return self.send_batch(Duration::MAX);
        }
        if let Some(signal) = self.traces.as_mut().filter(|_| is_due) {
            signal.pace.taken(now);
        }
        false
    }

    /// True if there is a batch to send; an incomplete one only if `is_due`.
    fn has_batch(&mut self, is_due: bool) -> bool {
        let spans = self.export_counts.spans();
        if self.batch.is_none() && (is_due || spans.has_batch()) {
            let taken: Vec<_> = spans.take().into_iter().map(traces::convert).collect();
            let count = taken.len() as u64;
            if count > 0 {
                let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans: taken }];
                let resource = Some(self.resource.clone());
                let resource_spans = vec![ResourceSpans { resource, scope_spans }];
                let message = Traces { resource_spans }.encode_to_vec();
                self.batch = Some(Batch { message, spans: count, tries: 0 });
            }
        }
        self.batch.is_some()
    }

    /// Sends the batch. False if another should not follow now.
    fn send_batch(&mut self, patience: Duration) -> bool {
        let (Some(signal), Some(mut batch)) = (&mut self.traces, self.batch.take()) else {
            return false;
        };
        let outcome = signal.send(&batch.message, patience, &self.export_counts.traces, &*self.log);
        batch.tries += 1;
        let (exported, failed) = match &outcome {
            Outcome::Taken(rejected, _) => {
                let rejected = batch.spans.min(*rejected);
                (batch.spans - rejected, rejected)
            }
            Outcome::Later(..) if batch.tries < TRIES_MAX => {
                self.batch = Some(batch);
                return false;
            }
            Outcome::Later(..) | Outcome::Refused(_) => (0, batch.spans),
        };
        // Relaxed: counts, as all of `ExportCounts`.
        self.export_counts.spans_exported.fetch_add(exported, Ordering::Relaxed);
        self.export_counts.spans_failed.fetch_add(failed, Ordering::Relaxed);
        matches!(outcome, Outcome::Taken(..))
    }

    fn numbers_of_now(&mut self) -> Vec<u8> {
        let families = (self.page)().into_families();
        let metrics = self.numbers.convert(families, now_ns());
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics }];
        let resource = Some(self.resource.clone());
        Metrics { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] }
            .encode_to_vec()
    }

    fn send_metrics(&mut self, message: &[u8], patience: Duration) {
        if let Some(signal) = &mut self.metrics {
            signal.send(message, patience, &self.export_counts.metrics, &*self.log);
        }
    }
}

fn scope() -> Scope {
    Scope { name: "holdall".to_owned(), version: VERSION.to_owned() }
}

/// Nanoseconds since 1970, which fit until 2554.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
