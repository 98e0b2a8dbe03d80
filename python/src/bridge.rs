//! Calls of an asyncio event loop: Rust's futures, polled on the loop's own thread.
//!
//! ```text
//!     coroutine -> Bridge::start -> the client's threads -> a number in `woken`, the eventfd
//!     coroutine <- its asyncio future <- Bridge::turn <- the loop, which watches the eventfd
//! ```
//!
//! There is no thread beside the client's own, and those never take the interpreter's lock. The
//! loop is woken once for all answers that come while it is busy, and delivers them in one turn.

use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::answer::{Answer, Failed};

/// A call that goes on.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Answer, Failed>> + Send>>;

/// The calls of one event loop. Only the loop's thread uses it, except for the wakers of its calls.
#[pyclass(frozen)]
pub(crate) struct Bridge {
    create_future: Py<PyAny>,
    places: Mutex<Places>,
    notify: Arc<Notify>,
}

#[derive(Default)]
struct Places {
    all: Vec<Place>,
    free: Vec<usize>,
}

/// Holds a call. A late wake polls the call that has taken the place since, which is harmless.
struct Place {
    waker: Waker,
    call: Option<(Call, Py<PyAny>)>,
}

/// Wakes the loop: an eventfd that is written at most once until the loop reads it.
struct Notify {
    woken: Mutex<Woken>,
    fd: OwnedFd,
}

#[derive(Default)]
struct Woken {
    places: Vec<usize>,
    is_notified: bool,
}

/// Wakes the call at a place.
struct WakesPlace(usize, Arc<Notify>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for WakesPlace {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Self(place, notify) = self.as_ref();
        let mut woken = lock(&notify.woken);
        woken.places.push(*place);
        let is_first = !std::mem::replace(&mut woken.is_notified, true);
        drop(woken);
        if is_first {
            // A full eventfd has been written.
            let _ = rustix::io::write(&notify.fd, &1u64.to_ne_bytes());
        }
    }
}

impl Places {
    /// A free place and its waker.
    fn take(&mut self, notify: &Arc<Notify>) -> (usize, Waker) {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.all.len();
            let waker = Waker::from(Arc::new(WakesPlace(number, Arc::clone(notify))));
            self.all.push(Place { waker, call: None });
            number
        });
        (number, self.all[number].waker.clone())
    }
}

impl Bridge {
    /// Begins a call: the asyncio future of its outcome, and its place for [`Self::forget`].
    pub(crate) fn start<'py>(
        &self,
        py: Python<'py>,
        mut call: Call,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = self.create_future.bind(py).call0()?;
        let (number, waker) = lock(&self.places).take(&self.notify);
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                lock(&self.places).free.push(number);
                settle(&future, outcome)?;
            }
            Poll::Pending => {
                lock(&self.places).all[number].call = Some((call, future.clone().unbind()));
            }
        }
        Ok((future, number).into_pyobject(py)?.into_any())
    }

    /// Polls the call at a place, if there is one. No lock is held meanwhile: it may run Python,
    /// which may begin calls.
    fn poll(&self, py: Python<'_>, number: usize) -> PyResult<()> {
        let mut places = lock(&self.places);
        let Some(place) = places.all.get_mut(number) else { return Ok(()) };
        let Some((mut call, future)) = place.call.take() else { return Ok(()) };
        let waker = place.waker.clone();
        drop(places);
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                lock(&self.places).all[number].call = Some((call, future));
                Ok(())
            }
            Poll::Ready(outcome) => {
                lock(&self.places).free.push(number);
                settle(future.bind(py), outcome)
            }
        }
    }
}

#[pymethods]
impl Bridge {
    /// For a loop, by its `create_future`.
    #[new]
    fn new(create_future: Py<PyAny>) -> PyResult<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        let notify = Arc::new(Notify { woken: Mutex::default(), fd });
        Ok(Self { create_future, places: Mutex::default(), notify })
    }

    /// The eventfd that the loop watches: readable when a call can go on.
    fn fileno(&self) -> i32 {
        self.notify.fd.as_raw_fd()
    }

    /// Polls the calls that can go on.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        // Nothing to read is no error: the loop may call this without a notification.
        let _ = rustix::io::read(&self.notify.fd, &mut [0; 8]);
        let mut woken = lock(&self.notify.woken);
        woken.is_notified = false;
        let numbers = std::mem::take(&mut woken.places);
        drop(woken);
        // One that fails keeps no other waiting.
        let outcomes: Vec<PyResult<()>> =
            numbers.into_iter().map(|number| self.poll(py, number)).collect();
        outcomes.into_iter().collect()
    }

    /// Drops a call whose asyncio future was cancelled.
    fn forget(&self, number: usize, future: &Bound<'_, PyAny>) {
        let mut places = lock(&self.places);
        let Some(place) = places.all.get_mut(number) else { return };
        if !place.call.as_ref().is_some_and(|(_, kept)| kept.is(future)) {
            return;
        }
        let dropped = place.call.take();
        places.free.push(number);
        drop(places);
        drop(dropped);
    }
}

/// Gives the outcome to an asyncio future, unless that was cancelled.
fn settle(future: &Bound<'_, PyAny>, outcome: Result<Answer, Failed>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome.map_err(PyErr::from).and_then(|answer| answer.into_python(py)) {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}
