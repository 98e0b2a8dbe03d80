//! The library's errors as exceptions.

use client::Error;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(
    holdall,
    CacheError,
    PyException,
    "The cache has no answer. To a reader it is a miss that must not be filled."
);
create_exception!(holdall, CacheTimeout, CacheError, "The cache has no answer in time.");
create_exception!(
    holdall,
    IllegalInputError,
    CacheError,
    "A key, value or setting that cannot be; nothing was asked."
);

pub(crate) fn to_python(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::BadKey | Error::TooLong(_) => IllegalInputError::new_err(text),
        _ if error.is_timeout() => CacheTimeout::new_err(text),
        _ => CacheError::new_err(text),
    }
}
