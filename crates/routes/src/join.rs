//! Several replies awaited together.

use std::future::poll_fn;
use std::task::Poll;

use crate::route::Answer;
use upstream::OwnedReply;

/// Waits for all; the replies are in the order of `answers`.
pub(crate) async fn all(mut answers: Vec<Answer<'_>>) -> Vec<OwnedReply> {
    let mut replies: Vec<Option<OwnedReply>> = answers.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (answer, reply) in answers.iter_mut().zip(&mut replies) {
            if reply.is_none() {
                match answer.as_mut().poll(context) {
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

/// Waits for the next of `answers` that is ready, and takes it out; `None` when there is none left.
pub(crate) async fn next(answers: &mut Vec<Answer<'_>>) -> Option<OwnedReply> {
    if answers.is_empty() {
        return None;
    }
    let (index, reply) = poll_fn(|context| {
        for (index, answer) in answers.iter_mut().enumerate() {
            if let Poll::Ready(reply) = answer.as_mut().poll(context) {
                return Poll::Ready((index, reply));
            }
        }
        Poll::Pending
    })
    .await;
    drop(answers.swap_remove(index));
    Some(reply)
}
