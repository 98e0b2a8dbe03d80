//! Calls are waited for: by their thread, or by an event loop.

use std::future::Future;
use std::pin::pin;

use client::block_on;
use pyo3::prelude::*;

use crate::answer::{Answer, Failed};
use crate::bridge::Bridge;
use crate::exit::detached;
use crate::ticks::until_tick;

/// The loop that waits, if it is one, and its future for the outcome.
pub(crate) type By<'py> = Option<(Bound<'py, Bridge>, Bound<'py, PyAny>)>;

pub(crate) type Found<'py> = PyResult<Bound<'py, PyAny>>;

/// Waits for a call, or begins it.
pub(crate) fn run<'py, F>(py: Python<'py>, by: By<'py>, call: F) -> Found<'py>
where
    F: Future<Output = Result<Answer, Failed>> + Send + 'static,
{
    match by {
        Some((bridge, future)) => bridge.get().start(py, Box::pin(call), future),
        None => match wait(py, call)? {
            Ok(answer) => answer.into_python(py),
            Err(failed) => Err(failed.into_python(py)),
        },
    }
}

/// Waits for a future without the interpreter's lock.
///
/// # Errors
///
/// What a handler of a signal raises meanwhile.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future<Output: Send> + Send,
{
    let mut future = pin!(future);
    loop {
        match detached(py, || block_on(until_tick(future.as_mut()))) {
            Some(output) => return Ok(output),
            None => py.check_signals()?,
        }
    }
}
