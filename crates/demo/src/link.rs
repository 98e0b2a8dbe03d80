//! The link between two regions: a TCP relay that can be cut, and that can delay bytes of the far
//! side.
//!
//! A delay holds up no later bytes, and a cut loses none: both are a wide-area link's. The tests'
//! `testkit::FaultProxy` refuses and resets instead, and delays by waiting. This program is
//! published and cannot use it: `testkit` is not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// The present state of a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct State {
    is_cut: bool,
    delay: Duration,
}

/// A link to one address. While it is cut, connections are taken and nothing passes; afterwards
/// what was sent arrives.
#[derive(Debug)]
pub(crate) struct Link {
    /// The address of its near end.
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Link {
    /// An open link to `far`.
    pub(crate) async fn to(far: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let task = tokio::spawn(async move {
            // A connection that could not be taken is the client's to try again.
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, far, seen.clone()));
            }
        });
        Ok(Self { address, state, task })
    }

    /// Cuts or joins it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.send_modify(|state| state.is_cut = is_cut);
    }

    /// Delays what the far side sends from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(near: TcpStream, far: SocketAddr, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| !state.is_cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(far).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let there = pass(near_read, far_write, state.clone(), false);
    let back = pass(far_read, near_write, state, true);
    // The end of one direction is the end of both, as databases' connections go.
    tokio::select! { () = there => {}, () = back => {} }
}

/// Passes bytes on, one way.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<State>,
    is_delayed: bool,
) {
    // As much as a connection may have on its way; more waits at the sender's.
    let (pieces, mut waiting) = mpsc::channel::<(Instant, Arc<[u8]>)>(4096);
    let mut seen = state.clone();
    let reader = async move {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(len @ 1..) = from.read(&mut bytes).await {
            let delay = if is_delayed { state.borrow().delay } else { Duration::ZERO };
            let piece = Arc::from(&bytes[..len]);
            if pieces.send((Instant::now() + delay, piece)).await.is_err() {
                return;
            }
        }
    };
    let writer = async move {
        while let Some((due, piece)) = waiting.recv().await {
            sleep_until(due).await;
            if seen.wait_for(|state| !state.is_cut).await.is_err()
                || to.write_all(&piece).await.is_err()
            {
                return;
            }
        }
    };
    tokio::join!(reader, writer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn what_was_sent_while_it_was_cut_arrives_when_it_is_joined() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let link = Link::to(far.local_addr().unwrap()).await.unwrap();
            let mut near = TcpStream::connect(link.address).await.unwrap();
            near.write_all(b"one").await.unwrap();
            let (mut end, _) = far.accept().await.unwrap();
            let mut got = [0; 3];
            end.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"one");
            link.cut(true);
            near.write_all(b"two").await.unwrap();
            let nothing = tokio::time::timeout(Duration::from_millis(50), end.read(&mut got)).await;
            assert!(nothing.is_err(), "it came through: {got:?}");
            link.cut(false);
            end.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"two");
        });
    }
}
