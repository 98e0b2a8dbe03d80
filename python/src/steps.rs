//! Steps of a call that are Python's: loads and writes.
//!
//! ```text
//!     the call's future -> Steps::run -> Stepped::next -> the loader -> Later -> the future again
//! ```
//!
//! Python runs them, and never Rust: at exit Python ends daemon threads by unwinding their stacks,
//! and Rust's frames cannot be unwound so. What a step raises beside exceptions of the kind
//! `Exception` is the caller's alone, who gives the call up.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use client::{Position, ReadFrom, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::position::PyPosition;

/// The argument of a step.
pub(crate) enum Argument {
    Marker(Vec<u8>),
    Nothing,
    /// The database that a loader is to read.
    Source(ReadFrom),
}

/// The result of a step.
pub(crate) enum Brought {
    Loaded(Value),
    /// The result of a write, and the place of its commit.
    Placed(Py<PyAny>, Position),
    Written(Py<PyAny>),
}

/// The result that a step is to have.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// Bytes and flags.
    Loaded,
    Placed,
    Written,
}

/// What a step has brought, or who waits for it.
#[derive(Default)]
struct State {
    result: Option<PyResult<Brought>>,
    waker: Option<Waker>,
}

/// Takes the result of a step: one of the two methods is called, once.
#[pyclass(frozen)]
pub(crate) struct Later {
    wanted: Wanted,
    state: Arc<Mutex<State>>,
}

/// The step that a call wants next.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<Option<(Argument, Later)>>>);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Argument {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (name, place) = match self {
            Self::Nothing => return Ok(().into_pyobject(py)?.into_any()),
            Self::Marker(marker) => return Ok(PyBytes::new(py, &marker).into_any()),
            Self::Source(ReadFrom::Local) => ("local", None),
            Self::Source(ReadFrom::LocalAt(place)) => ("local", Some(PyPosition(place))),
            Self::Source(ReadFrom::Master) => ("master", None),
        };
        Ok((name, place).into_pyobject(py)?.into_any())
    }
}

impl Steps {
    /// The step that is to be run now, if there is one.
    pub(crate) fn take(&self) -> Option<(Argument, Later)> {
        lock(&self.0).take()
    }

    /// Has Python run a step, and waits for its result.
    pub(crate) async fn run(&self, argument: Argument, wanted: Wanted) -> PyResult<Brought> {
        let state: Arc<Mutex<State>> = Arc::default();
        *lock(&self.0) = Some((argument, Later { wanted, state: Arc::clone(&state) }));
        poll_fn(|context| {
            let mut state = lock(&state);
            match state.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Later {
    fn settle(&self, result: PyResult<Brought>) {
        let mut state = lock(&self.state);
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[pymethods]
impl Later {
    fn bring(&self, result: Bound<'_, PyAny>) {
        self.settle(brought(self.wanted, &result));
    }

    fn fail(&self, exception: Bound<'_, PyAny>) {
        self.settle(Err(PyErr::from_value(exception)));
    }
}

fn brought(wanted: Wanted, result: &Bound<'_, PyAny>) -> PyResult<Brought> {
    Ok(match wanted {
        Wanted::Loaded => {
            let (bytes, flags) = result.extract::<(Vec<u8>, u32)>()?;
            Brought::Loaded(Value { bytes, flags, cas: 0 })
        }
        Wanted::Placed => {
            let (result, place) = result.extract::<(Py<PyAny>, Py<PyPosition>)>()?;
            Brought::Placed(result, place.get().0.clone())
        }
        Wanted::Written => Brought::Written(result.clone().unbind()),
    })
}
