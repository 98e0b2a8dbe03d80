//! Awaiting several futures together: two short functions that avoid a dependency of the library on
//! `futures-util`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Waits for all; the replies are in the order of `answers`.
pub(crate) async fn all<F: Future + Unpin>(mut answers: Vec<F>) -> Vec<F::Output> {
    let mut replies: Vec<Option<F::Output>> = answers.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (answer, reply) in answers.iter_mut().zip(&mut replies) {
            if reply.is_none() {
                match Pin::new(answer).poll(context) {
                    Poll::Ready(ready) => *reply = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    replies.into_iter().flatten().collect()
}

/// Waits for the next of `answers` that is ready, and takes it out; `None` when none is left.
pub(crate) async fn next<F: Future + Unpin>(answers: &mut Vec<F>) -> Option<F::Output> {
    if answers.is_empty() {
        return None;
    }
    let (index, reply) = poll_fn(|context| {
        for (index, answer) in answers.iter_mut().enumerate() {
            if let Poll::Ready(reply) = Pin::new(answer).poll(context) {
                return Poll::Ready((index, reply));
            }
        }
        Poll::Pending
    })
    .await;
    drop(answers.swap_remove(index));
    Some(reply)
}
