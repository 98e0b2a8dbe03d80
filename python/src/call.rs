//! The methods. Each waits for its answer, or, by a [`Bridge`](crate::bridge::Bridge), begins a
//! call of an event loop, and returns its place for `forget`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use client::{
    CasOutcome, Command, LookAsideTotals, Markers, Outcome, ReadFrom, Request, Source, Value,
    together,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::answer::Answer;
use crate::dropped::Kept;
use crate::errors::IllegalInputError;
use crate::exit::detached;
use crate::stepped::Stepped;
use crate::steps::{Argument, Brought, Steps, Wanted};
use crate::waiting::{By, Found, run, wait};
use crate::{Native, builder, secs};

/// The marker prefix, and how many seconds a marker stands.
type MarkerSettings = (Vec<u8>, u32);

/// The first, the longest and all waits, in seconds.
type Waits = (f64, f64, f64);

/// How old the loads' snapshot is, and how old it may be, in seconds.
type Snapshot = (f64, f64);

impl Native {
    fn markers(&self, settings: MarkerSettings) -> Markers {
        self.client.markers(settings.0, settings.1)
    }
}

#[pymethods]
impl Native {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let builder = builder(settings)?;
        // A source of servers may take its time.
        let client = detached(py, || builder.build());
        let client = client.map_err(|error| IllegalInputError::new_err(error.to_string()))?;
        let look_aside = client.look_aside();
        let client = Arc::new(client);
        let kept = Kept::new(Arc::clone(&client));
        Ok(Self { client, look_aside, kept })
    }

    #[pyo3(signature = (key, by=None))]
    fn get<'py>(&self, py: Python<'py>, key: Vec<u8>, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(Answer::Found(client.get(key).await?)) })
    }

    #[pyo3(signature = (key, by=None))]
    fn gets<'py>(&self, py: Python<'py>, key: Vec<u8>, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(Answer::Found(client.gets(key).await?)) })
    }

    #[pyo3(signature = (key, expire, by=None))]
    fn gat<'py>(&self, py: Python<'py>, key: Vec<u8>, expire: i64, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(Answer::Found(client.gat(key, expire).await?)) })
    }

    #[pyo3(signature = (key, expire, by=None))]
    fn gats<'py>(&self, py: Python<'py>, key: Vec<u8>, expire: i64, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(Answer::Found(client.gats(key, expire).await?)) })
    }

    /// The values in the order of the keys, `None` for misses, and what the first key that failed
    /// failed with.
    #[pyo3(signature = (keys, with_cas, by=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Vec<u8>>,
        with_cas: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            let got =
                if with_cas { client.gets_many(keys).await } else { client.get_many(keys).await };
            Ok(Answer::Many(got?))
        })
    }

    /// Stores by `set`, `add`, `replace`, `append` or `prepend`. True when it was stored, and when
    /// nobody waits for that.
    #[pyo3(signature = (command, key, value, flags, expire, noreply, by=None))]
    fn store<'py>(
        &self,
        py: Python<'py>,
        command: &str,
        key: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
        expire: i64,
        noreply: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        let op = match command {
            "add" => Command::Add,
            "append" => Command::Append,
            "prepend" => Command::Prepend,
            "replace" => Command::Replace,
            "set" => Command::Set,
            _ => return Err(IllegalInputError::new_err(format!("no command {command:?}"))),
        };
        run(py, by, async move {
            let packed = |bytes| Value { bytes, flags, cas: 0 };
            let stored = match op {
                Command::Append | Command::Prepend if noreply => {
                    let request = Request { value: &value, ..Request::new(op, &key) };
                    client.tell(request).map(|()| true)
                }
                _ if noreply => client.store_untold(op, key, packed(value), expire).map(|()| true),
                Command::Add => client.add(key, packed(value), expire).await,
                Command::Append => client.append(key, &value).await,
                Command::Prepend => client.prepend(key, &value).await,
                Command::Replace => client.replace(key, packed(value), expire).await,
                _ => client.set(key, packed(value), expire).await.map(|()| true),
            };
            Ok(Answer::Is(stored?))
        })
    }

    /// Stores many; the places of those that were not stored.
    #[pyo3(signature = (items, expire, noreply, by=None))]
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        items: Vec<(Vec<u8>, Vec<u8>, u32)>,
        expire: i64,
        noreply: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            let packed = |(key, bytes, flags)| (key, Value { bytes, flags, cas: 0 });
            let items = items.into_iter().map(packed);
            if noreply {
                for (key, value) in items {
                    client.store_untold(Command::Set, key, value, expire)?;
                }
                return Ok(Answer::Places(Vec::new()));
            }
            let outcomes = client.set_many(items, expire).await?;
            let places = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_err());
            Ok(Answer::Places(places.map(|(place, _)| place).collect()))
        })
    }

    /// True: stored; False: changed meanwhile; `None`: there is no such item.
    #[pyo3(signature = (key, value, flags, expire, cas, by=None))]
    fn cas<'py>(
        &self,
        py: Python<'py>,
        key: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
        expire: i64,
        cas: u64,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            let value = Value { bytes: value, flags, cas: 0 };
            Ok(Answer::Maybe(match client.cas(key, value, expire, cas).await? {
                CasOutcome::Stored => Some(true),
                CasOutcome::Exists => Some(false),
                CasOutcome::NotFound => None,
            }))
        })
    }

    /// Deletes each; whether all were there. `hold_off` seconds of refusing add, where it is not 0.
    #[pyo3(signature = (keys, hold_off, noreply, by=None))]
    fn delete_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Vec<u8>>,
        hold_off: u32,
        noreply: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            let delete =
                |key| Request { exptime: hold_off.into(), ..Request::new(Command::Delete, key) };
            if noreply {
                keys.iter().try_for_each(|key| client.tell(delete(key)))?;
                return Ok(Answer::Is(true));
            }
            let mut were_there = true;
            for reply in together(keys.iter().map(|key| client.ask(delete(key)))).await {
                were_there &= reply?.outcome == Outcome::Deleted;
            }
            Ok(Answer::Is(were_there))
        })
    }

    /// Counts up, or down; `None`: there is no such item, or nobody waits.
    #[pyo3(signature = (key, number, down, noreply, by=None))]
    fn count<'py>(
        &self,
        py: Python<'py>,
        key: Vec<u8>,
        number: u64,
        down: bool,
        noreply: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            let op = if down { Command::Decr } else { Command::Incr };
            let counted = match (noreply, down) {
                (true, _) => {
                    client.tell(Request { number, ..Request::new(op, &key) }).map(|()| None)
                }
                (false, true) => client.decr(key, number).await,
                (false, false) => client.incr(key, number).await,
            };
            Ok(Answer::Number(counted?))
        })
    }

    #[pyo3(signature = (key, expire, noreply, by=None))]
    fn touch<'py>(
        &self,
        py: Python<'py>,
        key: Vec<u8>,
        expire: i64,
        noreply: bool,
        by: By<'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move {
            if noreply {
                client.tell(Request { exptime: expire, ..Request::new(Command::Touch, &key) })?;
                return Ok(Answer::Is(true));
            }
            Ok(Answer::Is(client.touch(key, expire).await?))
        })
    }

    /// Look-aside. The load is a step: its argument is a tuple, "local" or "master" and the place
    /// that the database must have reached or `None`; its result is bytes and flags.
    #[pyo3(signature = (key, expire, takes_stale, waits, early, snapshot, markers, exact))]
    fn get_or_load(
        &self,
        key: Vec<u8>,
        expire: i64,
        takes_stale: bool,
        waits: Waits,
        early: f64,
        snapshot: Option<Snapshot>,
        markers: Option<MarkerSettings>,
        exact: bool,
    ) -> Stepped {
        let [first, longest, total] = [waits.0, waits.1, waits.2].map(secs);
        let look_aside = self.look_aside.clone().exptime(expire).takes_stale(takes_stale);
        let mut look_aside = look_aside.waits(first, longest, total).early_refresh(early);
        if let Some((age, repeat_after)) = snapshot {
            let now = Instant::now();
            let began = now.checked_sub(secs(age)).unwrap_or(now);
            look_aside = look_aside.as_of(began, secs(repeat_after));
        }
        let markers = markers.map(|settings| self.markers(settings));
        let steps = Steps::default();
        let loads = steps.clone();
        let call = async move {
            let load = async |from: ReadFrom| match loads
                .run(Argument::Source(from), Wanted::Loaded)
                .await?
            {
                Brought::Loaded(value) => Ok(value),
                Brought::Placed(..) | Brought::Written(_) => unreachable!("a load was wanted"),
            };
            Ok(Answer::Loaded(match &markers {
                Some(markers) if exact => look_aside.get_or_load_at(markers, key, load).await?,
                Some(markers) => {
                    let load = |source: Source| load(source.into());
                    look_aside.get_or_load_from(markers, key, load).await?
                }
                None => look_aside.get_or_load(key, || load(ReadFrom::Local)).await?,
            }))
        };
        Stepped::new(Box::pin(call), steps)
    }

    /// A write under a remote marker. The write is a step: its argument is the marker's key. With
    /// `exact` that is `()`, and the step's result is that of the write and the place of its
    /// commit.
    fn write_marked(&self, key: Vec<u8>, markers: MarkerSettings, exact: bool) -> Stepped {
        let markers = self.markers(markers);
        let steps = Steps::default();
        let writes = steps.clone();
        let call = async move {
            let written = if exact {
                let write = async || match writes.run(Argument::Nothing, Wanted::Placed).await? {
                    Brought::Placed(output, place) => Ok((output, place)),
                    Brought::Loaded(_) | Brought::Written(_) => unreachable!("a place was wanted"),
                };
                markers.write_at(key, write).await?
            } else {
                let write = async |marker| match writes
                    .run(Argument::Marker(marker), Wanted::Written)
                    .await?
                {
                    Brought::Written(output) => Ok(output),
                    Brought::Loaded(_) | Brought::Placed(..) => unreachable!("no place"),
                };
                markers.write(key, write).await?
            };
            let (marked, deleted) = (written.unmarked.is_none(), written.undeleted.is_none());
            Ok(Answer::Written(written.output, marked, deleted))
        };
        Stepped::new(Box::pin(call), steps)
    }

    #[pyo3(signature = (delay, by=None))]
    fn flush_all<'py>(&self, py: Python<'py>, delay: u32, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(client.flush_all(delay).await.map(|()| Answer::Nothing)?) })
    }

    #[pyo3(signature = (by=None))]
    fn version<'py>(&self, py: Python<'py>, by: By<'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        run(py, by, async move { Ok(Answer::Text(client.version().await?)) })
    }

    /// Takes another configuration, or other servers.
    fn replace_routes(&self, py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let builder = builder(settings)?;
        let replaced = detached(py, || self.client.replace_routes(&builder));
        replaced.map_err(|error| IllegalInputError::new_err(error.to_string()))
    }

    /// Waits for what was asked, and ends the threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: the interpreter's lock orders it.
        self.kept.is_closed.store(true, Ordering::Relaxed);
        wait(py, self.client.close())
    }

    /// How each server stands: address, state, requests asked, answered, failed, timed out,
    /// connections made.
    fn servers(&self) -> Vec<(String, String, u64, u64, u64, u64, u64)> {
        let reports = self.client.servers().into_iter();
        let rows = reports.map(|one| {
            let (state, sums) = (format!("{:?}", one.state).to_lowercase(), one.totals);
            let failed = sums.failed + sums.tko;
            let counts = (sums.asked, sums.answered, failed, sums.timeouts, sums.connects);
            let address = one.address.to_string();
            (address, state, counts.0, counts.1, counts.2, counts.3, counts.4)
        });
        rows.collect()
    }

    /// Counters of the look-aside reads, by name.
    fn look_aside_totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let totals = self.client.look_aside_totals();
        let LookAsideTotals { hits, stale, waits, loads, fills, refused, unfilled, shared, early } =
            totals;
        let counters = [
            ("hits", hits),
            ("stale", stale),
            ("waits", waits),
            ("loads", loads),
            ("fills", fills),
            ("refused", refused),
            ("unfilled", unfilled),
            ("shared", shared),
            ("early", early),
        ];
        named(py, &counters)
    }

    /// Counters of the deletes that failed, by name; `None` where they are not kept.
    fn kept_deletes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(counts) = self.client.kept_deletes() else { return Ok(None) };
        let counters = [
            ("pending", counts.pending),
            ("bytes", counts.bytes),
            ("kept", counts.kept),
            ("failed", counts.failed),
            ("replayed", counts.replayed),
            ("refused", counts.refused),
            ("expired", counts.expired),
            ("lost", counts.lost),
        ];
        named(py, &counters).map(Some)
    }
}

fn named<'py>(py: Python<'py>, counters: &[(&str, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in counters {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}
