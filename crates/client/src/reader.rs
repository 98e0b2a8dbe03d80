//! One caller of a look-aside read, until it has the value or must load it.

use std::any::Any;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::client::{Client, Lease};
use crate::early::{LoadTimes, Read};
use crate::error::Error;
use crate::flights::{Finished, Follower, Joined, Leader};
use crate::held_lease::HeldLease;
use crate::look_aside_counters::count;
use crate::value::Value;
use upstream::system::now;
use upstream::{Command, Failure, Request};

/// The permitted use of a loaded value.
#[derive(Debug)]
pub(crate) enum Fill<'c> {
    Add,
    Lease(HeldLease<'c>),
    Nothing,
    /// It replaces this value, if that still exists.
    Refresh(Value),
}

/// The end of a caller's read.
#[derive(Debug)]
pub(crate) enum Next<'c> {
    BadKey,
    /// The error of the caller whose load was waited for.
    Failed(Arc<dyn Any + Send + Sync>),
    Load(Fill<'c>),
    Value(Value),
}

/// The cache's answer.
enum Found<'c> {
    Miss(Fill<'c>),
    /// A recently deleted value.
    Stale(Value),
    Value(Value),
    /// Another client fills.
    Wait,
}

/// Settings of reads.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Shared, since a clone might use other connections.
    pub(crate) client: Arc<Client>,
    pub(crate) takes_stale: bool,
    pub(crate) wait_first: Duration,
    pub(crate) wait_longest: Duration,
    pub(crate) wait_total: Duration,
    /// 0: nothing is refreshed early.
    pub(crate) early: f64,
    pub(crate) load_times: Arc<LoadTimes>,
}

/// A caller: how long it has waited, and the flight that it leads.
#[derive(Debug)]
pub(crate) struct Reader<'c> {
    settings: &'c Settings,
    key: &'c [u8],
    begun: Instant,
    wait: Duration,
    pub(crate) leader: Option<Leader<'c>>,
    /// The key was recently deleted.
    pub(crate) saw_stale: bool,
}

impl<'c> Reader<'c> {
    pub(crate) fn new(settings: &'c Settings, key: &'c [u8]) -> Self {
        Self {
            settings,
            key,
            begun: now(),
            wait: settings.wait_first,
            leader: None,
            saw_stale: false,
        }
    }

    /// Queries and waits until this caller has the value, or loads it.
    pub(crate) async fn next(&mut self) -> Next<'c> {
        loop {
            if let Some(leader) = &mut self.leader {
                leader.requests();
            }
            let found = match self.find().await {
                Err(Error::BadKey) => return Next::BadKey,
                Err(_) => Found::Miss(Fill::Nothing),
                Ok(found) => found,
            };
            let next = match found {
                Found::Stale(value) => {
                    self.finish(&value, false);
                    Some(Next::Value(value))
                }
                Found::Value(value) => {
                    self.finish(&value, true);
                    Some(Next::Value(value))
                }
                Found::Miss(fill) => self.missed(fill).await,
                Found::Wait => self.wait().await,
            };
            if let Some(next) = next {
                if let (Next::Load(_), Some(leader)) = (&next, &mut self.leader) {
                    leader.load();
                }
                return next;
            }
        }
    }

    /// Deletes an unreadable value, so that the next caller fills the key.
    pub(crate) fn delete_unreadable(&self) -> Fill<'c> {
        // If that fails, the item stays until it expires.
        let _ = self.settings.client.tell(Request::new(Command::Delete, self.key));
        Fill::Nothing
    }

    async fn find(&mut self) -> Result<Found<'c>, Error> {
        let (client, counters) = (&self.settings.client, &self.settings.client.inner.counters);
        if client.inner.refused.has(self.key) {
            return self.find_without_leases().await;
        }
        match self.lease().await {
            Ok(Read::Lease(Lease::Hit(value))) => {
                count(&counters.hits);
                Ok(Found::Value(value))
            }
            Ok(Read::Refresh(value)) => Ok(Found::Miss(Fill::Refresh(value))),
            Ok(Read::Lease(Lease::Fill { token, stale })) => {
                self.saw_stale |= stale.is_some();
                Ok(Found::Miss(Fill::Lease(HeldLease::new(client, self.key, token))))
            }
            Ok(Read::Lease(Lease::Wait { stale: Some(value) })) if self.settings.takes_stale => {
                count(&counters.stale);
                Ok(Found::Stale(value))
            }
            Ok(Read::Lease(Lease::Wait { stale })) => {
                self.saw_stale |= stale.is_some();
                Ok(Found::Wait)
            }
            Err(Error::Cache(Failure::ClientError, _)) => {
                client.inner.refused.note(self.key);
                self.find_without_leases().await
            }
            Err(Error::Undecodable(_)) => Ok(Found::Miss(self.delete_unreadable())),
            Err(error) => Err(error),
        }
    }

    /// The client, whose requests end with the deadline of the whole read.
    fn client_in_time(&self) -> Cow<'_, Client> {
        let client = &*self.settings.client;
        match client.deadline() {
            None => Cow::Borrowed(client),
            Some(deadline) => {
                Cow::Owned(client.with_deadline(Some(deadline.saturating_sub(self.elapsed()))))
            }
        }
    }

    async fn lease(&self) -> Result<Read, Error> {
        let client = self.client_in_time();
        if self.settings.early <= 0.0 {
            return client.lease_get(self.key).await.map(Read::Lease);
        }
        let early_secs =
            self.settings.load_times.draw_secs(self.settings.early, 1.0 - fastrand::f64());
        client.lease_get_early(self.key, early_secs).await
    }

    async fn find_without_leases(&self) -> Result<Found<'c>, Error> {
        match self.client_in_time().get(self.key).await {
            Ok(Some(value)) => {
                count(&self.settings.client.inner.counters.hits);
                Ok(Found::Value(value))
            }
            Ok(None) => Ok(Found::Miss(Fill::Add)),
            Err(Error::Undecodable(_)) => Ok(Found::Miss(self.delete_unreadable())),
            Err(error) => Err(error),
        }
    }

    /// Ends the flight with the cache's value, so that waiting callers need not query it.
    fn finish(&mut self, value: &Value, is_current: bool) {
        if let Some(leader) = self.leader.take() {
            leader.finish(|| value.clone(), is_current);
        }
    }

    /// A miss that this caller may fill, or that no caller can.
    async fn missed(&mut self, fill: Fill<'c>) -> Option<Next<'c>> {
        let (flights, key) = (&self.settings.client.inner.flights, self.key);
        match fill {
            // The value still exists, so no caller waits for its refresh.
            Fill::Refresh(ref value) => self.finish(value, true),
            Fill::Lease(_) => {
                self.leader.get_or_insert_with(|| flights.lead(key));
            }
            // An earlier load may be older than a delete, and nothing would show that.
            Fill::Nothing if !self.settings.takes_stale => {}
            Fill::Add | Fill::Nothing if self.leader.is_some() => {}
            Fill::Add | Fill::Nothing => match flights.join(key) {
                Joined::Leader(leader) => self.leader = Some(leader),
                Joined::Follower(follower) => return self.follow(follower).await,
            },
        }
        Some(Next::Load(fill))
    }

    /// Waits for the filling caller, in this process or in another.
    async fn wait(&mut self) -> Option<Next<'c>> {
        if self.has_waited() {
            return Some(Next::Load(Fill::Nothing));
        }
        count(&self.settings.client.inner.counters.waits);
        let other = match &self.leader {
            Some(leader) => leader.follows(),
            None => match self.settings.client.inner.flights.join(self.key) {
                Joined::Leader(leader) => self.leader.insert(leader).follows(),
                Joined::Follower(follower) => return self.follow(follower).await,
            },
        };
        let wait = self.wait.min(self.left());
        self.wait = (self.wait * 2).min(self.settings.wait_longest);
        // Another caller of this process may have the lease.
        let finished = self.finished(&other, wait).await?;
        self.leader = None;
        self.shared(finished)
    }

    /// Waits for another caller's outcome. A caller that has waited the maximum time for the same
    /// flight starts the next, because its leader may be stuck.
    async fn follow(&mut self, mut follower: Follower) -> Option<Next<'c>> {
        let settings = self.settings;
        loop {
            if let Some(finished) = self.finished(&follower, settings.wait_total).await {
                return self.shared(finished);
            }
            match settings.client.inner.flights.join_after(self.key, &follower) {
                Joined::Follower(next) => follower = next,
                Joined::Leader(leader) => {
                    self.leader = Some(leader);
                    return None;
                }
            }
        }
    }

    /// Another caller's outcome for this one; `None`: query the cache again.
    fn shared(&self, finished: Finished) -> Option<Next<'c>> {
        let next = match finished {
            Finished::Failed(error) => Next::Failed(error),
            Finished::Value { value, is_current } if is_current || self.settings.takes_stale => {
                Next::Value(value)
            }
            Finished::GivenUp | Finished::Value { .. } => return None,
        };
        count(&self.settings.client.inner.counters.shared);
        Some(next)
    }

    /// The flight's outcome, if it comes in time.
    async fn finished(&self, follower: &Follower, within: Duration) -> Option<Finished> {
        let mut finished = pin!(follower.finished());
        let mut late = pin!(self.settings.client.sleep(within));
        poll_fn(|context| match finished.as_mut().poll(context) {
            Poll::Ready(finished) => Poll::Ready(Some(finished)),
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.begun)
    }

    /// The remaining wait for another client's load.
    fn left(&self) -> Duration {
        let total = self.settings.wait_total;
        let total = self.settings.client.deadline().map_or(total, |deadline| deadline.min(total));
        total.saturating_sub(self.elapsed())
    }

    fn has_waited(&self) -> bool {
        self.left().is_zero()
    }
}
