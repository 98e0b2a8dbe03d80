//! Calls with [steps](crate::steps), as Python goes through them.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use client::Error;
use pyo3::prelude::*;

use crate::answer::Answer;
use crate::bridge::Call;
use crate::steps::{Steps, lock};
use crate::waiting::{By, Found, run};

/// A call with steps.
#[pyclass(frozen)]
pub(crate) struct Stepped {
    /// `None` when it has ended, or was given up.
    call: Arc<Mutex<Option<Call>>>,
    steps: Steps,
}

impl Stepped {
    pub(crate) fn new(call: Call, steps: Steps) -> Self {
        Self { call: Arc::new(Mutex::new(Some(call))), steps }
    }
}

#[pymethods]
impl Stepped {
    /// Goes on until a step is to be run, or to the end: a `Later` and the step's argument, or
    /// `None` and the outcome.
    #[pyo3(signature = (by=None))]
    fn next<'py>(&self, py: Python<'py>, by: By<'py>) -> Found<'py> {
        let (call, steps) = (Arc::clone(&self.call), self.steps.clone());
        let step = poll_fn(move |context| {
            let mut place = lock(&call);
            let Some(going) = place.as_mut() else {
                return Poll::Ready(Err(Error::Closed.into()));
            };
            if let Poll::Ready(outcome) = going.as_mut().poll(context) {
                *place = None;
                return Poll::Ready(outcome.map(|answer| Answer::Ended(Box::new(answer))));
            }
            match steps.take() {
                Some((argument, later)) => Poll::Ready(Ok(Answer::Step(later, argument))),
                None => Poll::Pending,
            }
        });
        run(py, by, step)
    }

    /// Drops the call: another caller may load at once.
    fn give_up(&self) {
        let call = lock(&self.call).take();
        drop(call);
    }
}
