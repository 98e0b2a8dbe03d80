//! A result that Python brings later: what a coroutine of the loop returns to a call that waits for
//! it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;

#[derive(Default)]
struct State {
    result: Option<PyResult<Py<PyAny>>>,
    waker: Option<Waker>,
}

/// Python's end: one of the two is called, once.
#[pyclass(frozen)]
pub(crate) struct Later(Arc<Mutex<State>>);

/// Rust's end.
pub(crate) struct Brought(Arc<Mutex<State>>);

/// Both ends.
pub(crate) fn pair() -> (Later, Brought) {
    let state = Arc::default();
    (Later(Arc::clone(&state)), Brought(state))
}

impl Later {
    fn settle(&self, result: PyResult<Py<PyAny>>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn bring(&self, result: Py<PyAny>) {
        self.settle(Ok(result));
    }

    fn fail(&self, exception: Bound<'_, PyAny>) {
        self.settle(Err(PyErr::from_value(exception)));
    }
}

impl Future for Brought {
    type Output = PyResult<Py<PyAny>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
