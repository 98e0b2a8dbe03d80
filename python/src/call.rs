//! The methods.

use std::future::Future;

use client::{
    BlockingClient, CasOutcome, Error, LoadError, LookAsideTotals, Markers, Op, Outcome, Request,
    Source, Value, block_on,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{IllegalInputError, to_python};
use crate::{Native, builder};

/// A value with its flags and its cas unique.
type Found<'py> = Option<(Bound<'py, PyBytes>, u32, u64)>;

fn found(py: Python<'_>, value: Option<Value>) -> Found<'_> {
    value.map(|value| (PyBytes::new(py, &value.bytes), value.flags, value.cas))
}

/// The marker prefix, and how many seconds a marker stands.
type MarkerSettings = (Vec<u8>, u32);

fn markers_of(client: &BlockingClient, settings: MarkerSettings) -> Markers {
    Markers::new(client.client().clone(), settings.0, settings.1)
}

fn loaded<T>(result: Result<T, LoadError<PyErr>>) -> PyResult<T> {
    result.map_err(|error| match error {
        LoadError::BadKey => to_python(Error::BadKey),
        LoadError::Loader(error) => error,
    })
}

#[pymethods]
impl Native {
    #[new]
    fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let client = builder(settings)?.build();
        let client = client.map_err(|error| IllegalInputError::new_err(error.to_string()))?;
        Ok(Self { client: client.into() })
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Found<'py>> {
        Ok(found(py, py.detach(|| self.client.get(key)).map_err(to_python)?))
    }

    fn gets<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Found<'py>> {
        Ok(found(py, py.detach(|| self.client.gets(key)).map_err(to_python)?))
    }

    fn gat<'py>(&self, py: Python<'py>, key: &[u8], expire: i64) -> PyResult<Found<'py>> {
        Ok(found(py, py.detach(|| self.client.gat(key, expire)).map_err(to_python)?))
    }

    fn gats<'py>(&self, py: Python<'py>, key: &[u8], expire: i64) -> PyResult<Found<'py>> {
        Ok(found(py, py.detach(|| self.client.gats(key, expire)).map_err(to_python)?))
    }

    /// The values in the order of the keys, `None` for misses, and what the first key that failed failed with.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Vec<u8>>,
        with_cas: bool,
    ) -> PyResult<(Vec<Found<'py>>, Option<PyErr>)> {
        let client = &self.client;
        let got = py
            .detach(|| if with_cas { client.gets_many(keys) } else { client.get_many(keys) })
            .map_err(to_python)?;
        let mut failed = None;
        let values = got.into_iter().map(|one| match one {
            Ok(value) => found(py, value),
            Err(error) => {
                failed.get_or_insert_with(|| to_python(error));
                None
            }
        });
        let values = values.collect();
        Ok((values, failed))
    }

    /// Stores by `set`, `add`, `replace`, `append` or `prepend`. True when it was stored, and when nobody waits for that.
    fn store(
        &self,
        py: Python<'_>,
        command: &str,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expire: i64,
        noreply: bool,
    ) -> PyResult<bool> {
        let client = &self.client;
        let packed = Value { bytes: value.to_vec(), flags, cas: 0 };
        let op = match command {
            "add" => Op::Add,
            "append" => Op::Append,
            "prepend" => Op::Prepend,
            "replace" => Op::Replace,
            "set" => Op::Set,
            _ => return Err(IllegalInputError::new_err(format!("no command {command:?}"))),
        };
        let stored = py.detach(|| match op {
            Op::Append | Op::Prepend if noreply => {
                client.client().tell(Request { value, ..Request::new(op, key) }).map(|()| true)
            }
            _ if noreply => client.client().store_untold(op, key, packed, expire).map(|()| true),
            Op::Add => client.add(key, packed, expire),
            Op::Append => client.append(key, value),
            Op::Prepend => client.prepend(key, value),
            Op::Replace => client.replace(key, packed, expire),
            _ => client.set(key, packed, expire).map(|()| true),
        });
        stored.map_err(to_python)
    }

    /// Stores many; the places of those that were not stored.
    fn set_many(
        &self,
        py: Python<'_>,
        items: Vec<(Vec<u8>, Vec<u8>, u32)>,
        expire: i64,
        noreply: bool,
    ) -> PyResult<Vec<usize>> {
        let items =
            items.into_iter().map(|(key, bytes, flags)| (key, Value { bytes, flags, cas: 0 }));
        let client = &self.client;
        py.detach(|| {
            if noreply {
                for (key, value) in items {
                    client.client().store_untold(Op::Set, key, value, expire)?;
                }
                return Ok(Vec::new());
            }
            let outcomes = client.set_many(items, expire)?;
            let places = outcomes.iter().enumerate();
            Ok(places.filter(|(_, outcome)| outcome.is_err()).map(|(place, _)| place).collect())
        })
        .map_err(to_python)
    }

    /// True: stored; False: changed meanwhile; `None`: there is no such item.
    fn cas(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expire: i64,
        cas: u64,
    ) -> PyResult<Option<bool>> {
        let value = Value { bytes: value.to_vec(), flags, cas: 0 };
        let outcome = py.detach(|| self.client.cas(key, value, expire, cas)).map_err(to_python)?;
        Ok(match outcome {
            CasOutcome::Stored => Some(true),
            CasOutcome::Exists => Some(false),
            CasOutcome::NotFound => None,
        })
    }

    /// Deletes each; whether all were there. `hold_off` seconds of refusing add, where it is not 0.
    fn delete_many(
        &self,
        py: Python<'_>,
        keys: Vec<Vec<u8>>,
        hold_off: u32,
        noreply: bool,
    ) -> PyResult<bool> {
        let client = self.client.client();
        let delete = |key| Request { exptime: hold_off.into(), ..Request::new(Op::Delete, key) };
        py.detach(|| {
            if noreply {
                keys.iter().try_for_each(|key| client.tell(delete(key)))?;
                return Ok(true);
            }
            let deletes = keys.iter().map(|key| client.ask(delete(key)));
            let replies = block_on(client::together(deletes)).into_iter();
            let outcomes = replies.map(|reply| reply.map(|reply| reply.outcome));
            let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
            Ok(outcomes.iter().all(|outcome| *outcome == Outcome::Deleted))
        })
        .map_err(to_python)
    }

    /// Counts up, or down; `None`: there is no such item, or nobody waits.
    fn count(
        &self,
        py: Python<'_>,
        key: &[u8],
        by: u64,
        down: bool,
        noreply: bool,
    ) -> PyResult<Option<u64>> {
        let client = &self.client;
        py.detach(|| {
            if noreply {
                let op = if down { Op::Decr } else { Op::Incr };
                let request = Request { number: by, ..Request::new(op, key) };
                return client.client().tell(request).map(|()| None);
            }
            if down { client.decr(key, by) } else { client.incr(key, by) }
        })
        .map_err(to_python)
    }

    fn touch(&self, py: Python<'_>, key: &[u8], expire: i64, noreply: bool) -> PyResult<bool> {
        py.detach(|| {
            if noreply {
                let request = Request { exptime: expire, ..Request::new(Op::Touch, key) };
                return self.client.client().tell(request).map(|()| true);
            }
            self.client.touch(key, expire)
        })
        .map_err(to_python)
    }

    /// Look-aside: `load` is called with "local" or "master", and returns bytes and flags.
    fn get_or_load<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        load: Py<PyAny>,
        expire: i64,
        takes_stale: bool,
        markers: Option<MarkerSettings>,
    ) -> PyResult<(Bound<'py, PyBytes>, u32)> {
        let look_aside = self.client.client().look_aside().exptime(expire).takes_stale(takes_stale);
        let load = |source| {
            let source = if source == Source::Master { "master" } else { "local" };
            calls(&load, source, |py, result| {
                let (bytes, flags): (Vec<u8>, u32) = result.extract(py)?;
                Ok(Value { bytes, flags, cas: 0 })
            })
        };
        let value = py.detach(|| match markers {
            Some(settings) => {
                let markers = markers_of(&self.client, settings);
                block_on(look_aside.get_or_load_from(&markers, key, load))
            }
            None => block_on(look_aside.get_or_load(key, || load(Source::Local))),
        });
        let value = loaded(value)?;
        Ok((PyBytes::new(py, &value.bytes), value.flags))
    }

    /// A write under a remote marker: `write` is called with the marker's key. Its result, and whether the marker was set and the key
    /// deleted.
    fn write_marked(
        &self,
        py: Python<'_>,
        key: &[u8],
        write: Py<PyAny>,
        markers: MarkerSettings,
    ) -> PyResult<(Py<PyAny>, bool, bool)> {
        let markers = markers_of(&self.client, markers);
        let write = |marker: Vec<u8>| calls(&write, marker, |_, result| Ok(result));
        let written = loaded(py.detach(|| block_on(markers.write(key, write))))?;
        Ok((written.output, written.unmarked.is_none(), written.undeleted.is_none()))
    }

    /// Takes another configuration, or other servers.
    fn replace_routes(&self, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let replaced = self.client.client().replace_routes(&builder(settings)?);
        replaced.map_err(|error| IllegalInputError::new_err(error.to_string()))
    }

    fn flush_all(&self, py: Python<'_>, delay: u32) -> PyResult<()> {
        py.detach(|| self.client.flush_all(delay)).map_err(to_python)
    }

    fn version(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.client.version()).map_err(to_python)
    }

    /// Waits for what was asked, and ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }

    /// How each server stands: address, state, requests asked, answered, failed, timed out, connections made.
    fn servers(&self) -> Vec<(String, String, u64, u64, u64, u64, u64)> {
        let reports = self.client.client().servers().into_iter();
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
        let LookAsideTotals { hits, stale, waits, loads, fills, refused, unfilled } =
            self.client.client().look_aside_totals();
        let dict = PyDict::new(py);
        let counters = [
            ("hits", hits),
            ("stale", stale),
            ("waits", waits),
            ("loads", loads),
            ("fills", fills),
            ("refused", refused),
            ("unfilled", unfilled),
        ];
        for (name, count) in counters {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }
}

/// Calls a Python function while this thread has not the interpreter's lock.
fn calls<'a, T>(
    function: &'a Py<PyAny>,
    argument: impl for<'py> IntoPyObject<'py> + 'a,
    then: impl FnOnce(Python<'_>, Py<PyAny>) -> PyResult<T> + 'a,
) -> impl Future<Output = PyResult<T>> + 'a {
    async move {
        Python::attach(|py| {
            let result = function.call1(py, (argument,))?;
            then(py, result)
        })
    }
}
