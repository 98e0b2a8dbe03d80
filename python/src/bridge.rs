//! Calls of an asyncio event loop: Rust's futures, polled on the loop's own thread.
//!
//! ```text
//!     coroutine -> Bridge::start -> the client's threads -> a number in `woken`, the eventfd
//!     coroutine <- its asyncio future <- Bridge::turn <- the loop, which watches the eventfd
//! ```
//!
//! There is no thread beside the client's own, and those never take the interpreter's lock. The
//! loop is woken once for all answers that come while it is busy, and delivers them in one turn.
//! Python's code makes the futures and settles them; none of it runs within Rust's frames (see
//! [`crate::steps`]).

use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustix::event::{EventfdFlags, eventfd};

use crate::answer::{Answer, Failed};

/// A call that goes on.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Answer, Failed>> + Send>>;

/// The calls of one event loop. Only the loop's thread uses it, except for the wakers of its calls.
#[pyclass(frozen)]
pub(crate) struct Bridge {
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
    call: Option<(Going, Py<PyAny>)>,
}

enum Going {
    Call(Call),
    /// It ended before the loop's next turn.
    Ended(Result<Answer, Failed>),
}

/// An asyncio future, its result, and its exception or `None`.
type Settled<'py> = (Py<PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

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
    /// Begins a call, whose outcome is for an asyncio future: its place for [`Self::forget`].
    pub(crate) fn start<'py>(
        &self,
        py: Python<'py>,
        mut call: Call,
        future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (number, waker) = lock(&self.places).take(&self.notify);
        let going = match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                waker.wake();
                Going::Ended(outcome)
            }
            Poll::Pending => Going::Call(call),
        };
        lock(&self.places).all[number].call = Some((going, future.unbind()));
        Ok(number.into_pyobject(py)?.into_any())
    }

    /// Polls the call at a place, if there is one: its outcome. No lock is held meanwhile: objects
    /// of Python's may be dropped, and their code may begin calls.
    fn poll(&self, number: usize) -> Option<(Result<Answer, Failed>, Py<PyAny>)> {
        let mut places = lock(&self.places);
        let place = places.all.get_mut(number)?;
        let (going, future) = place.call.take()?;
        let waker = place.waker.clone();
        drop(places);
        let outcome = match going {
            Going::Ended(outcome) => outcome,
            Going::Call(mut call) => match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    lock(&self.places).all[number].call = Some((Going::Call(call), future));
                    return None;
                }
            },
        };
        lock(&self.places).free.push(number);
        Some((outcome, future))
    }
}

#[pymethods]
impl Bridge {
    /// For a loop.
    #[new]
    fn new() -> PyResult<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        let notify = Arc::new(Notify { woken: Mutex::default(), fd });
        Ok(Self { places: Mutex::default(), notify })
    }

    /// The eventfd that the loop watches: readable when a call can go on.
    fn fileno(&self) -> i32 {
        self.notify.fd.as_raw_fd()
    }

    /// Polls the calls that can go on: those that have ended, as tuples of a future, its result,
    /// and its exception or `None`.
    fn turn<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // Nothing to read is no error: the loop may call this without a notification.
        let _ = rustix::io::read(&self.notify.fd, &mut [0; 8]);
        let mut woken = lock(&self.notify.woken);
        woken.is_notified = false;
        let numbers = std::mem::take(&mut woken.places);
        drop(woken);
        let ended = numbers.into_iter().filter_map(|number| self.poll(number));
        PyList::new(
            py,
            ended.map(|(outcome, future)| settled(py, outcome, future)).collect::<Vec<_>>(),
        )
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

fn settled<'py>(
    py: Python<'py>,
    outcome: Result<Answer, Failed>,
    future: Py<PyAny>,
) -> Settled<'py> {
    let outcome = outcome.map_err(|failed| failed.into_python(py));
    match outcome.and_then(|answer| answer.into_python(py)) {
        Ok(value) => (future, Some(value), None),
        Err(error) => (future, None, Some(error.into_value(py).into_bound(py).into_any())),
    }
}
