//! Places in a database's log as Python objects.

use client::Position;
use pyo3::prelude::*;

use crate::errors::IllegalInputError;

/// A place in the log, which cannot be changed.
#[pyclass(frozen, name = "Position", module = "holdall")]
pub(crate) struct PyPosition(pub(crate) Position);

#[pymethods]
impl PyPosition {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let parsed = text.parse::<Position>();
        parsed.map(Self).map_err(|error| IllegalInputError::new_err(error.to_string()))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Position('{}')", self.0)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    #[getter]
    fn in_database(&self) -> String {
        self.0.in_database()
    }

    #[getter]
    fn reached_query(&self) -> String {
        self.0.reached_query()
    }
}
