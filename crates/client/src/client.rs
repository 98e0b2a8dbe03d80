//! The handle of applications: its state, and the calls that affect all requests.
//!
//! [`Client`] has many methods, because each command of the protocol has one. They are in the files
//! for their topics: commands, look-aside reads, the builder.

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

/// The state that all handles share.
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
    /// Keeps failed deletes, if enabled.
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

    /// Gives all threads another plan.
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
    /// The threads end when all requests are answered; dropping does not wait for that.
    fn drop(&mut self) {
        self.inboxes.iter().for_each(|inbox| inbox.close(None));
    }
}

/// A handle to servers, for any thread and any executor. Clones are cheap and share connections.
///
/// Requests through one handle are sent in the order of the calls; clones may use other connections
/// if there are several threads. A dropped call, like one that timed out, may have been sent or
/// not; its answer reaches no caller.
///
/// Expiry times are memcached's: 0 is never, up to 30 days are seconds from now, more is Unix time,
/// negative expires at once.
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
    /// The item does not exist.
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
        /// The recently deleted value.
        stale: Option<Value>,
    },
    /// A value.
    Hit(Value),
    /// Another client is filling: wait some milliseconds and ask again, or use the stale value.
    Wait {
        /// The recently deleted value.
        stale: Option<Value>,
    },
}

impl Client {
    pub(crate) fn of(inner: Arc<Inner>, deadline: Option<Duration>) -> Self {
        // Relaxed: the assignment of clones to threads does not matter.
        let turn = inner.next.fetch_add(1, Ordering::Relaxed);
        let inbox = Arc::clone(&inner.inboxes[turn % inner.inboxes.len()]);
        Self { inner, inbox, deadline }
    }

    /// The same client with another deadline for each call; `None`: the servers' time limits.
    #[must_use]
    pub fn with_deadline(&self, deadline: Option<Duration>) -> Self {
        Self { inner: Arc::clone(&self.inner), inbox: Arc::clone(&self.inbox), deadline }
    }

    /// The same client, whose calls keep their order with those of this one.
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
        jobs.extend(self.expiry(&slot));
        push(&self.inbox, jobs)?;
        Ok(Pending(slot))
    }

    /// The job that fails a call at its deadline, if it has one.
    fn expiry(&self, slot: &Arc<Slot>) -> Option<Job> {
        let at = now().checked_add(self.deadline?)?;
        Some(Job::Expire { at, slot: Arc::downgrade(slot) })
    }

    /// Sends without waiting. As no caller receives the answer, it has no deadline.
    pub(crate) fn post(&self, request: OwnedRequest) -> Result<(), Error> {
        post(&self.inbox, vec![Job::Ask { request, slot: Slot::new(1), index: 0 }])
    }

    /// Sends any request that servers understand. The value is sent as it is, and the answer is not
    /// decompressed.
    ///
    /// # Errors
    ///
    /// See [`Error`], as for all calls.
    pub async fn ask(&self, request: Request<'_>) -> Result<OwnedReply, Error> {
        let request = self.checked(request)?;
        let reply = self.begin(vec![request])?.await.pop();
        succeeded(reply.ok_or(Error::Closed)?)
    }

    /// As [`Self::ask`], without waiting: the request will be sent, in the order of this handle's
    /// calls, and the answer dropped.
    ///
    /// # Errors
    ///
    /// The request will not be sent.
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
        // A load of this client records its fill in its own flight.
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
        let expiry = self.expiry(&slot);
        let ask = Job::AskAll { request, slot: Arc::clone(&slot) };
        push(&self.inbox, [ask].into_iter().chain(expiry).collect())?;
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

    /// Waits for this time: a timer for programs whose executor has none. A time beyond the clock's
    /// range does not end.
    pub(crate) async fn sleep(&self, time: Duration) {
        let slot = Slot::new(1);
        let Some(at) = now().checked_add(time) else { return pending().await };
        // A closed client does not wait.
        if push(&self.inbox, vec![Job::Expire { at, slot: Arc::downgrade(&slot) }]).is_ok() {
            Pending(slot).await;
        }
    }

    /// Counts of failed deletes, if [`crate::Builder::keep_deletes`] keeps them.
    #[must_use]
    pub fn kept_deletes(&self) -> Option<DeleteCounts> {
        Some(self.inner.spooler.as_ref()?.deletes().counts())
    }

    /// The servers, and their known state.
    #[must_use]
    pub fn servers(&self) -> Vec<Report> {
        self.inner.registry.report()
    }

    /// Refuses new calls of all handles, and waits until all requests are answered, so that no
    /// request is lost for which no caller waited.
    pub async fn close(&self) {
        for inbox in &self.inner.inboxes {
            let slot = Slot::new(1);
            inbox.close(Some(Arc::clone(&slot)));
            Pending(slot).await;
        }
        let threads = &self.inner.threads;
        let threads = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A thread whose inbox is idle ends at once.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    let is_good = (1..=proto::KEY_BYTES_MAX).contains(&key.len())
        && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    if is_good { Ok(()) } else { Err(Error::BadKey) }
}

/// Returns true if a reply may bring a lease: `lease-get`, and `mg` with `G`.
fn asks_lease(request: &Request<'_>) -> bool {
    let mut words = request.words.split(|byte| *byte == b' ');
    request.op == Command::LeaseGet
        || request.op == Command::MetaGet && words.any(|word| word == b"G")
}

pub(crate) fn succeeded(reply: OwnedReply) -> Result<OwnedReply, Error> {
    match reply.outcome {
        Outcome::Failed(Failure::Shutdown) if reply.value.is_empty() => Err(Error::Closed),
        Outcome::Failed(failure) => Err(Error::cache(failure, &reply.value)),
        Outcome::OnlyDeleted => Err(Error::cache(Failure::RemoteError, &reply.value)),
        _ => Ok(reply),
    }
}
