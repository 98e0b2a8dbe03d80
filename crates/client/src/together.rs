//! Independent fetches, issued together (*Scaling Memcache at Facebook*, 3.1: the graph of a page's
//! data).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::asking::hold;

/// Awaits all `futures`; the results are in their order. Their requests of one step leave in one
/// write for each server.
///
/// For a page whose data form a graph, write futures of its branches: each round of requests, from
/// all branches, is one batch, so a page takes as many rounds as its graph is deep.
///
/// ```no_run
/// # async fn page(client: &client::Client) -> Result<(), client::Error> {
/// let names = ["user:1", "user:2", "user:3"].map(|user| async move {
///     let Some(friend) = client.get(user).await? else { return Ok(None) };
///     client.get(friend.decode::<String>()?).await
/// });
/// for name in client::together(names).await {
///     println!("{:?}", name?);
/// }
/// # Ok(())
/// # }
/// ```
pub fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Together<F> {
    let branches = futures.into_iter().map(|future| Branch::Runs(Box::pin(future))).collect();
    Together { branches }
}

/// See [`together`].
#[must_use = "nothing is asked before it is polled"]
pub struct Together<F: Future> {
    branches: Vec<Branch<F>>,
}

enum Branch<F: Future> {
    Runs(Pin<Box<F>>),
    Done(Option<F::Output>),
}

// The branches are boxed, and outputs are never pinned.
impl<F: Future> Unpin for Together<F> {}

impl<F: Future> fmt::Debug for Together<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("branches", &self.branches.len()).finish()
    }
}

impl<F: Future> Future for Together<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut is_done = true;
        hold(|| {
            for branch in &mut self.branches {
                let Branch::Runs(future) = branch else { continue };
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *branch = Branch::Done(Some(output)),
                    Poll::Pending => is_done = false,
                }
            }
        });
        if !is_done {
            return Poll::Pending;
        }
        let outputs = self.branches.iter_mut().filter_map(|branch| match branch {
            Branch::Done(output) => output.take(),
            Branch::Runs(_) => None,
        });
        Poll::Ready(outputs.collect())
    }
}
