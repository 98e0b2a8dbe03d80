//! The methods. Each waits for its answer, or, by a [`Bridge`], begins a call of an event loop and
//! returns the future to be awaited.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use client::{
    CasOutcome, Command, LookAsideTotals, Markers, Outcome, Position, ReadFrom, Request, Source,
    Value, block_on, together,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::answer::{Answer, Failed};
use crate::bridge::Bridge;
use crate::errors::IllegalInputError;
use crate::later;
use crate::position::PyPosition;
use crate::{Native, builder, secs};

/// The marker prefix, and how many seconds a marker stands.
type MarkerSettings = (Vec<u8>, u32);

/// The first, the longest and all waits, in seconds.
type Waits = (f64, f64, f64);

/// How old the loads' snapshot is, and how old it may be, in seconds.
type Snapshot = (f64, f64);

/// The loop that waits, if it is one.
type By<'a, 'py> = Option<&'a Bound<'py, Bridge>>;

type Found<'py> = PyResult<Bound<'py, PyAny>>;

impl Native {
    fn run<'py, F>(&self, py: Python<'py>, by: By<'_, 'py>, call: F) -> Found<'py>
    where
        F: Future<Output = Result<Answer, Failed>> + Send + 'static,
    {
        match by {
            Some(bridge) => bridge.get().start(py, Box::pin(call)),
            None => py.detach(|| block_on(call)).map_err(PyErr::from)?.into_python(py),
        }
    }

    fn markers(&self, settings: MarkerSettings) -> Markers {
        self.client.markers(settings.0, settings.1)
    }
}

#[pymethods]
impl Native {
    #[new]
    fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let client = builder(settings)?.build();
        let client = client.map_err(|error| IllegalInputError::new_err(error.to_string()))?;
        let look_aside = client.look_aside();
        Ok(Self { client: Arc::new(client), look_aside })
    }

    #[pyo3(signature = (key, by=None))]
    fn get<'py>(&self, py: Python<'py>, key: Vec<u8>, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move { Ok(Answer::Found(client.get(key).await?)) })
    }

    #[pyo3(signature = (key, by=None))]
    fn gets<'py>(&self, py: Python<'py>, key: Vec<u8>, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move { Ok(Answer::Found(client.gets(key).await?)) })
    }

    #[pyo3(signature = (key, expire, by=None))]
    fn gat<'py>(&self, py: Python<'py>, key: Vec<u8>, expire: i64, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move { Ok(Answer::Found(client.gat(key, expire).await?)) })
    }

    #[pyo3(signature = (key, expire, by=None))]
    fn gats<'py>(&self, py: Python<'py>, key: Vec<u8>, expire: i64, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move { Ok(Answer::Found(client.gats(key, expire).await?)) })
    }

    /// The values in the order of the keys, `None` for misses, and what the first key that failed
    /// failed with.
    #[pyo3(signature = (keys, with_cas, by=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Vec<u8>>,
        with_cas: bool,
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
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
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
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
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move {
            if noreply {
                client.tell(Request { exptime: expire, ..Request::new(Command::Touch, &key) })?;
                return Ok(Answer::Is(true));
            }
            Ok(Answer::Is(client.touch(key, expire).await?))
        })
    }

    /// Look-aside: `load` is called with a tuple, "local" or "master" and the place that the
    /// database must have reached or `None`; it returns bytes and flags. By a loop it is also given
    /// a `Later`, to which it brings them.
    #[pyo3(signature = (
        key, load, expire, takes_stale, waits, early, snapshot, markers, exact, by=None
    ))]
    fn get_or_load<'py>(
        &self,
        py: Python<'py>,
        key: Vec<u8>,
        load: Py<PyAny>,
        expire: i64,
        takes_stale: bool,
        waits: Waits,
        early: f64,
        snapshot: Option<Snapshot>,
        markers: Option<MarkerSettings>,
        exact: bool,
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let [first, longest, total] = [waits.0, waits.1, waits.2].map(secs);
        let look_aside = self.look_aside.clone().exptime(expire).takes_stale(takes_stale);
        let mut look_aside = look_aside.waits(first, longest, total).early_refresh(early);
        if let Some((age, repeat_after)) = snapshot {
            let now = Instant::now();
            let began = now.checked_sub(secs(age)).unwrap_or(now);
            look_aside = look_aside.as_of(began, secs(repeat_after));
        }
        let markers = markers.map(|settings| self.markers(settings));
        let is_awaited = by.is_some();
        let load = async move |from: (&'static str, Option<PyPosition>)| {
            let loaded = called(load, from, is_awaited).await?;
            let (bytes, flags) = Python::attach(|py| loaded.extract::<(Vec<u8>, u32)>(py))?;
            PyResult::Ok(Value { bytes, flags, cas: 0 })
        };
        self.run(py, by, async move {
            Ok(Answer::Loaded(match &markers {
                Some(markers) if exact => {
                    look_aside.get_or_load_at(markers, key, |from| load(read_from(from))).await?
                }
                Some(markers) => {
                    let load = |source: Source| load(read_from(source.into()));
                    look_aside.get_or_load_from(markers, key, load).await?
                }
                None => look_aside.get_or_load(key, || load(read_from(ReadFrom::Local))).await?,
            }))
        })
    }

    /// A write under a remote marker: `write` is called with the marker's key, and by a loop with a
    /// `Later` for its result. With `exact` it is called with `()`, and returns its result and the
    /// place of its commit.
    #[pyo3(signature = (key, write, markers, exact, by=None))]
    fn write_marked<'py>(
        &self,
        py: Python<'py>,
        key: Vec<u8>,
        write: Py<PyAny>,
        markers: MarkerSettings,
        exact: bool,
        by: By<'_, 'py>,
    ) -> Found<'py> {
        let (markers, is_awaited) = (self.markers(markers), by.is_some());
        self.run(py, by, async move {
            let written = if exact {
                let write = async || placed(called(write, (), is_awaited).await?);
                markers.write_at(key, write).await?
            } else {
                markers.write(key, |marker| called(write, marker, is_awaited)).await?
            };
            let (marked, deleted) = (written.unmarked.is_none(), written.undeleted.is_none());
            Ok(Answer::Written(written.output, marked, deleted))
        })
    }

    #[pyo3(signature = (delay, by=None))]
    fn flush_all<'py>(&self, py: Python<'py>, delay: u32, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(
            py,
            by,
            async move { Ok(client.flush_all(delay).await.map(|()| Answer::Nothing)?) },
        )
    }

    #[pyo3(signature = (by=None))]
    fn version<'py>(&self, py: Python<'py>, by: By<'_, 'py>) -> Found<'py> {
        let client = Arc::clone(&self.client);
        self.run(py, by, async move { Ok(Answer::Text(client.version().await?)) })
    }

    /// Takes another configuration, or other servers.
    fn replace_routes(&self, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let replaced = self.client.replace_routes(&builder(settings)?);
        replaced.map_err(|error| IllegalInputError::new_err(error.to_string()))
    }

    /// Waits for what was asked, and ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| block_on(self.client.close()));
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

/// The database that a loader is to read, as it receives it.
fn read_from(from: ReadFrom) -> (&'static str, Option<PyPosition>) {
    match from {
        ReadFrom::Local => ("local", None),
        ReadFrom::LocalAt(place) => ("local", Some(PyPosition(place))),
        ReadFrom::Master => ("master", None),
    }
}

/// The result of a write, and its place.
fn placed(written: Py<PyAny>) -> PyResult<(Py<PyAny>, Position)> {
    Python::attach(|py| {
        let (result, place) = written.extract::<(Py<PyAny>, Py<PyPosition>)>(py)?;
        Ok((result, place.get().0.clone()))
    })
}

/// Calls a Python function while this thread has not the interpreter's lock. One that is awaited
/// returns at once, and brings its result later.
async fn called<A>(function: Py<PyAny>, argument: A, is_awaited: bool) -> PyResult<Py<PyAny>>
where
    A: for<'py> IntoPyObject<'py>,
{
    if !is_awaited {
        return Python::attach(|py| function.call1(py, (argument,)));
    }
    let (later, brought) = later::pair();
    Python::attach(|py| function.call1(py, (argument, later)).map(drop))?;
    brought.await
}
