//! The handle of applications: its state, and the calls that concern all requests.
//!
//! The methods of [`Client`] are many because each command of the protocol is one; they lie beside
//! what they need: commands, look-aside reads, the builder.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::asking::{post, push};
use crate::codec::Codec;
use crate::error::Error;
use crate::flights::Flights;
use crate::inbox::Inbox;
use crate::job::Job;
use crate::leases::Refused;
use crate::look_aside_counters::{LookAsideCounters, LookAsideTotals};
use crate::slot::{Pending, Slot};
use crate::value::Value;
use crate::watch::Watch;
use routes::{DeleteCounts, Plan, Spooler};
use upstream::system::now;
use upstream::{
    Command, CommandClass, Failure, Outcome, OwnedReply, OwnedRequest, Registry, Report, Request,
};

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Inner {
    inboxes: Vec<Arc<Inbox>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next: AtomicUsize,
    registry: Registry,
    pub(crate) codec: Codec,
    pub(crate) refused: Refused,
    pub(crate) flights: Flights,
    pub(crate) counters: LookAsideCounters,
    pub(crate) watch: Arc<Watch>,
    /// Keeps failed deletes, if that is wanted.
    spooler: Option<Arc<Spooler>>,
}

impl Inner {
    pub(crate) fn new(
        inboxes: Vec<Arc<Inbox>>,
        threads: Vec<JoinHandle<()>>,
        registry: Registry,
        codec: Codec,
        spooler: Option<Arc<Spooler>>,
    ) -> Self {
        let threads = Mutex::new(threads);
        let (next, refused, flights, counters, watch) = Default::default();
        Self { inboxes, threads, next, registry, codec, refused, flights, counters, watch, spooler }
    }

    /// All threads take another plan.
    pub(crate) fn replace(&self, plan: &Arc<Plan>) -> Result<(), Error> {
        for inbox in &self.inboxes {
            push(inbox, vec![Job::Replace(Arc::clone(plan))])?;
        }
        if let Some(spooler) = &self.spooler {
            spooler.deletes().set_targets(plan.targets());
        }
        Ok(())
    }
}

impl Drop for Inner {
    /// The threads end when what was asked has been answered; nobody waits for that.
    fn drop(&mut self) {
        self.inboxes.iter().for_each(|inbox| inbox.close(None));
    }
}

/// A handle to servers, for any thread and any executor. Clones are cheap, and share connections.
///
/// Requests through one handle leave in the order of the calls; clones may use other connections
/// where there are several threads. A call that is dropped has been asked or has not, like one that
/// ran out of time; its answer reaches nobody.
///
/// Times are as memcached takes them: 0 is never, up to 30 days are seconds from now, more is Unix
/// time, negative is at once.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = client::Client::builder().servers(["127.0.0.1:11211"]).build()?;
/// client.set("greeting", "hello", 60).await?;
/// match client.get("greeting").await {
///     Ok(Some(value)) => println!("{}", value.decode::<String>()?),
///     Ok(None) => println!("a miss: whoever has the value may store it"),
///     Err(error) => println!("no answer ({error}): as good as a miss, but not to be filled"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    inbox: Arc<Inbox>,
    deadline: Option<Duration>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("threads", &self.inner.inboxes.len()).finish_non_exhaustive()
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.inner), self.deadline)
    }
}

/// The outcome of a cas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CasOutcome {
    /// The item has changed since.
    Exists,
    /// There is no such item.
    NotFound,
    /// Stored.
    Stored,
}

/// The answer to [`Client::lease_get`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Lease {
    /// A miss, and the right to fill it, with a stale value if there is one.
    Fill {
        /// For [`Client::lease_set`].
        token: u64,
        /// The value that was deleted a short time ago.
        stale: Option<Value>,
    },
    /// A value.
    Hit(Value),
    /// Somebody else is filling: wait some milliseconds and ask again, or take the stale value.
    Wait {
        /// The value that was deleted a short time ago.
        stale: Option<Value>,
    },
}

impl Client {
    pub(crate) fn of(inner: Arc<Inner>, deadline: Option<Duration>) -> Self {
        // Relaxed: which clone gets which thread does not matter.
        let turn = inner.next.fetch_add(1, Ordering::Relaxed);
        let inbox = Arc::clone(&inner.inboxes[turn % inner.inboxes.len()]);
        Self { inner, inbox, deadline }
    }

    /// The same client with another deadline for each call; `None`: as long as servers may take.
    #[must_use]
    pub fn with_deadline(&self, deadline: Option<Duration>) -> Self {
        Self { inner: Arc::clone(&self.inner), inbox: Arc::clone(&self.inbox), deadline }
    }

    /// The same client, whose calls are in order with those of this one.
    pub(crate) fn same(&self) -> Self {
        self.with_deadline(self.deadline)
    }

    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    pub(crate) fn begin(&self, requests: Vec<OwnedRequest>) -> Result<Pending, Error> {
        let slot = match requests.as_slice() {
            [one] if asks_lease(&one.get()) => Slot::for_lease(one.get().key),
            _ => Slot::new(requests.len()),
        };
        let mut jobs = Vec::with_capacity(requests.len() + 1);
        let asked = requests.into_iter().enumerate();
        jobs.extend(asked.map(|(index, request)| {
            let slot = Arc::clone(&slot);
            Job::Ask { request, slot, index }
        }));
        if let Some(at) = self.deadline.and_then(|deadline| now().checked_add(deadline)) {
            jobs.push(Job::Expire { at, slot: Arc::downgrade(&slot) });
        }
        push(&self.inbox, jobs)?;
        Ok(Pending(slot))
    }

    /// Asks without waiting. As nobody hears of the answer, it has no deadline.
    pub(crate) fn post(&self, request: OwnedRequest) -> Result<(), Error> {
        post(&self.inbox, vec![Job::Ask { request, slot: Slot::new(1), index: 0 }])
    }

    /// Asks anything that servers understand; the value is sent as it is, and what comes is not
    /// decompressed.
    ///
    /// # Errors
    ///
    /// See [`Error`]; so for all calls.
    pub async fn ask(&self, request: Request<'_>) -> Result<OwnedReply, Error> {
        let request = self.checked(request)?;
        let reply = self.begin(vec![request])?.await.pop();
        succeeded(reply.ok_or(Error::Closed)?)
    }

    /// As [`Self::ask`], without waiting: it will be asked, in the order of this handle's calls,
    /// and the answer dropped.
    ///
    /// # Errors
    ///
    /// That it will not be asked.
    pub fn tell(&self, request: Request<'_>) -> Result<(), Error> {
        let request = self.checked(request)?;
        self.post(request)
    }

    pub(crate) fn checked(&self, request: Request<'_>) -> Result<OwnedRequest, Error> {
        if request.words.iter().any(u8::is_ascii_control) {
            return Err(Error::BadKey);
        }
        if !matches!(request.op, Command::FlushAll | Command::Version) {
            check_key(request.key)?;
        }
        if request.value.len() > self.inner.codec.value_bytes_max {
            return Err(Error::TooLong(request.value.len()));
        }
        // What a load of this client fills, its own flight knows.
        let fills = matches!(request.op, Command::Add | Command::LeaseSet);
        if request.op.class() != CommandClass::Get && !fills {
            self.inner.flights.detach(request.key);
        }
        Ok(request.to_owned())
    }

    /// Counts of the look-aside reads of all handles.
    #[must_use]
    pub fn look_aside_totals(&self) -> LookAsideTotals {
        self.inner.counters.totals()
    }

    async fn ask_all(&self, request: Request<'_>) -> Result<OwnedReply, Error> {
        let (request, slot) = (request.to_owned(), Slot::new(1));
        push(&self.inbox, vec![Job::AskAll { request, slot: Arc::clone(&slot) }])?;
        succeeded(Pending(slot).await.pop().ok_or(Error::Closed)?)
    }

    /// Drops every item of every server, after a delay in seconds.
    ///
    /// # Errors
    ///
    /// The worst of any server's.
    pub async fn flush_all(&self, delay_secs: u32) -> Result<(), Error> {
        let exptime = i64::from(delay_secs);
        self.ask_all(Request { exptime, ..Request::new(Command::FlushAll, b"") }).await.map(drop)
    }

    /// The version of one of the servers; it fails unless all of them answer.
    ///
    /// # Errors
    ///
    /// The worst of any server's.
    pub async fn version(&self) -> Result<String, Error> {
        let reply = self.ask_all(Request::new(Command::Version, b"")).await?;
        Ok(String::from_utf8_lossy(&reply.value).into_owned())
    }

    /// Waits until the time is over: a timer for programs whose executor has none. A time that no
    /// clock can tell does not end.
    pub(crate) async fn sleep(&self, time: Duration) {
        let slot = Slot::new(1);
        let Some(at) = now().checked_add(time) else { return pending().await };
        // A client that is closed does not wait.
        if push(&self.inbox, vec![Job::Expire { at, slot: Arc::downgrade(&slot) }]).is_ok() {
            Pending(slot).await;
        }
    }

    /// Counts of deletes that failed, where [`crate::Builder::keep_deletes`] keeps them.
    #[must_use]
    pub fn kept_deletes(&self) -> Option<DeleteCounts> {
        Some(self.inner.spooler.as_ref()?.deletes().counts())
    }

    /// The servers, and their state as it is known.
    #[must_use]
    pub fn servers(&self) -> Vec<Report> {
        self.inner.registry.report()
    }

    /// Refuses new calls of all handles, and waits until everything that was asked has been
    /// answered, so that nothing is lost that was not waited for.
    pub async fn close(&self) {
        for inbox in &self.inner.inboxes {
            let slot = Slot::new(1);
            inbox.close(Some(Arc::clone(&slot)));
            Pending(slot).await;
        }
        let threads = &self.inner.threads;
        let threads = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A thread whose inbox rests ends at once.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    let is_good = (1..=proto::KEY_BYTES_MAX).contains(&key.len())
        && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    if is_good { Ok(()) } else { Err(Error::BadKey) }
}

/// Whether a reply may bring a lease: `lease-get`, and `mg` with `G`.
fn asks_lease(request: &Request<'_>) -> bool {
    let mut words = request.words.split(|byte| *byte == b' ');
    request.op == Command::LeaseGet
        || request.op == Command::MetaGet && words.any(|word| word == b"G")
}

pub(crate) fn succeeded(reply: OwnedReply) -> Result<OwnedReply, Error> {
    match reply.outcome {
        Outcome::Failed(Failure::Shutdown) if reply.value.is_empty() => Err(Error::Closed),
        Outcome::Failed(failure) => Err(Error::cache(failure, &reply.value)),
        _ => Ok(reply),
    }
}
