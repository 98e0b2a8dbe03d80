//! The link between two regions: a TCP relay with a distance, which can be cut, and can delay bytes
//! of the far side.
//!
//! A delay does not hold up later bytes, and a cut loses none: both behave like a wide-area link's.
//! The same applies to a lost packet: TCP sends it again, and later bytes wait for it. The tests'
//! `testkit::FaultProxy` refuses and resets instead, and delays by waiting. This program is
//! published and cannot use it, because `testkit` is not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// The distance between the regions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Distance {
    /// The round-trip time.
    pub(crate) round_trip: Duration,
    /// The share of packets that are lost and sent again, from 0 to 1.
    pub(crate) loss: f64,
}

/// The shortest time after which TCP retransmits a packet, as in Linux.
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);

impl Distance {
    /// A piece's one-way time.
    fn trip(&self) -> Duration {
        let is_lost = self.loss > 0.0 && rand::random::<f64>() < self.loss;
        let again = if is_lost { RETRANSMIT_MIN + self.round_trip } else { Duration::ZERO };
        self.round_trip / 2 + again
    }
}

/// The current state of a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct State {
    is_cut: bool,
    delay: Duration,
}

/// A link to one address. While it is cut, connections are accepted and nothing passes; afterwards
/// the sent bytes arrive.
#[derive(Debug)]
pub(crate) struct Link {
    /// The address of its near end.
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl Link {
    /// An open link to `far`.
    pub(crate) async fn to(far: SocketAddr, distance: Distance) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let task = tokio::spawn(async move {
            // The client retries a connection that was not accepted.
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, far, distance, seen.clone()));
            }
        });
        Ok(Self { address, state, task })
    }

    /// Cuts or joins it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.send_modify(|state| state.is_cut = is_cut);
    }

    /// Delays the far side's bytes from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    near: TcpStream,
    far: SocketAddr,
    distance: Distance,
    mut state: watch::Receiver<State>,
) {
    // Connecting takes a round trip.
    sleep(distance.round_trip).await;
    if state.wait_for(|state| !state.is_cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(far).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let there = pass(near_read, far_write, distance, state.clone(), false);
    let back = pass(far_read, near_write, distance, state, true);
    // The end of one direction ends both, as in database connections.
    tokio::select! { () = there => {}, () = back => {} }
}

/// Passes bytes on, one way.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    distance: Distance,
    state: watch::Receiver<State>,
    is_delayed: bool,
) {
    // Maximum in-flight data of a connection; more waits at the sender.
    let (pieces, mut waiting) = mpsc::channel::<(Instant, Arc<[u8]>)>(4096);
    let mut seen = state.clone();
    let reader = async move {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(len @ 1..) = from.read(&mut bytes).await {
            let delay = if is_delayed { state.borrow().delay } else { Duration::ZERO };
            let piece = Arc::from(&bytes[..len]);
            let due = Instant::now() + distance.trip() + delay;
            if pieces.send((due, piece)).await.is_err() {
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
    fn data_sent_during_a_cut_arrives_after_it() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let link = Link::to(far.local_addr().unwrap(), Distance::default()).await.unwrap();
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

    #[test]
    fn a_trip_is_half_the_round_trip_and_a_loss_adds_a_delay() {
        let ms = Duration::from_millis;
        let near = Distance { round_trip: ms(80), loss: 0.0 };
        assert_eq!(near.trip(), ms(40));
        let lossy = Distance { loss: 1.0, ..near };
        assert_eq!(lossy.trip(), ms(320));
    }

    #[test]
    fn distant_bytes_arrive_in_order_and_not_early() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let distance = Distance { round_trip: Duration::from_millis(20), loss: 0.2 };
            let link = Link::to(far.local_addr().unwrap(), distance).await.unwrap();
            let mut near = TcpStream::connect(link.address).await.unwrap();
            let begin = Instant::now();
            near.write_all(b"0").await.unwrap();
            let (mut end, _) = far.accept().await.unwrap();
            let mut got = [0; 10];
            end.read_exact(&mut got[..1]).await.unwrap();
            assert!(begin.elapsed() >= distance.round_trip * 3 / 2, "{:?}", begin.elapsed());
            for digit in b"123456789" {
                near.write_all(&[*digit]).await.unwrap();
                sleep(Duration::from_millis(2)).await;
            }
            end.read_exact(&mut got[1..]).await.unwrap();
            assert_eq!(&got, b"0123456789");
        });
    }
}
