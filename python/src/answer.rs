//! Outcomes of calls as Python objects.

use std::sync::Arc;

use client::{Error, LoadError, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyString, PyTuple};

use crate::errors::to_python;
use crate::steps::{Argument, Later};

/// The outcome of a call, made without the interpreter.
pub(crate) enum Answer {
    /// The end of a call with steps.
    Ended(Box<Self>),
    /// A value with its flags and its cas unique, or `None`.
    Found(Option<Value>),
    Is(bool),
    /// A value that may have been loaded, with its flags.
    Loaded(Value),
    /// The values in the order of the keys, `None` for misses, and what the first that failed
    /// failed with.
    Many(Vec<Result<Option<Value>, Error>>),
    Maybe(Option<bool>),
    Nothing,
    Number(Option<u64>),
    Places(Vec<usize>),
    /// A step that Python is to run.
    Step(Later, Argument),
    Text(String),
    /// The result of a write under a marker; whether the marker was set and the key deleted.
    Written(Py<PyAny>, bool, bool),
}

/// Why there is none.
pub(crate) enum Failed {
    Cache(Error),
    /// Those who waited for one load get one exception, as of one future.
    Loader(Arc<PyErr>),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Cache(error)
    }
}

impl From<LoadError<PyErr>> for Failed {
    fn from(error: LoadError<PyErr>) -> Self {
        match error {
            LoadError::BadKey => Self::Cache(Error::BadKey),
            LoadError::Loader(error) => Self::Loader(error),
        }
    }
}

impl Failed {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Cache(error) => to_python(error),
            Self::Loader(error) => error.clone_ref(py),
        }
    }
}

impl Answer {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Ended(answer) => {
                (py.None(), answer.into_python(py)?).into_pyobject(py)?.into_any()
            }
            Self::Found(found) => value(py, found)?,
            Self::Is(is) => PyBool::new(py, is).to_owned().into_any(),
            Self::Loaded(loaded) => {
                (PyBytes::new(py, &loaded.bytes), loaded.flags).into_pyobject(py)?.into_any()
            }
            Self::Many(outcomes) => many(py, outcomes)?,
            Self::Maybe(is) => is.into_pyobject(py)?.into_any(),
            Self::Nothing => py.None().into_bound(py),
            Self::Number(number) => number.into_pyobject(py)?.into_any(),
            Self::Places(places) => PyList::new(py, places)?.into_any(),
            Self::Step(later, argument) => {
                (later, argument.into_python(py)?).into_pyobject(py)?.into_any()
            }
            Self::Text(text) => PyString::new(py, &text).into_any(),
            Self::Written(output, marked, deleted) => {
                (output, marked, deleted).into_pyobject(py)?.into_any()
            }
        })
    }
}

fn value(py: Python<'_>, found: Option<Value>) -> PyResult<Bound<'_, PyAny>> {
    let Some(Value { bytes, flags, cas }) = found else { return Ok(py.None().into_bound(py)) };
    Ok((PyBytes::new(py, &bytes), flags, cas).into_pyobject(py)?.into_any())
}

fn many(py: Python<'_>, outcomes: Vec<Result<Option<Value>, Error>>) -> PyResult<Bound<'_, PyAny>> {
    let mut failed = None;
    let values = outcomes.into_iter().map(|one| match one {
        Ok(found) => value(py, found),
        Err(error) => {
            failed.get_or_insert_with(|| to_python(error));
            value(py, None)
        }
    });
    let values = PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
    let failed = failed.map(|error| error.into_value(py));
    Ok(PyTuple::new(py, [values.into_any(), failed.into_pyobject(py)?])?.into_any())
}
