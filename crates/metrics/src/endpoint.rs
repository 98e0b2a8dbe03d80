//! The HTTP endpoint: one thread, or one task of a program with a runtime.
//!
//! A connection carries one request, has [`PATIENCE`] for everything, and holds one head of a
//! request and one answer, which for the numbers is a page that it may share with others. When
//! [`CONNECTIONS_MAX`] or the configured number are open, the oldest makes room, so silent clients
//! cannot keep others out: only silent connections grow old.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::held::Held;
use crate::program::Pages;
use crate::request::{self, HEAD_BYTES_MAX, Head};

/// The time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum number of open connections, unless there are descriptors for fewer.
pub const CONNECTIONS_MAX: usize = 256;

/// Bytes of an answer that wait in the kernel for the client's window, for each connection
/// (`TCP_NOTSENT_LOWAT`). Without a limit it holds megabytes for a client that does not read.
const UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// The pause after a connection could not be accepted: descriptors have run out, and other code may
/// close some.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A running endpoint, which ends when this is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Answers at `listener` in a separate thread, `metrics`, with at most `connections_max` open
    /// at a time.
    ///
    /// # Errors
    ///
    /// There is no thread, or no descriptor for its poller.
    pub fn start(
        listener: std::net::TcpListener,
        pages: Arc<dyn Pages>,
        connections_max: usize,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        // Not by ioctl, which a confined process may not call.
        let flags = fcntl_getfl(&listener)?;
        fcntl_setfl(&listener, flags | OFlags::NONBLOCK)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            runtime.block_on(async move {
                // A poller accepts any descriptor that was bound.
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve_some(listener, pages, connections_max) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(body)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address, as bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, only its pages are lost.
            let _ = thread.join();
        }
    }
}

/// Answers at `listener` until the task and its connections are dropped.
pub async fn serve(listener: TcpListener, pages: Arc<dyn Pages>) {
    serve_some(listener, pages, CONNECTIONS_MAX).await;
}

async fn serve_some(listener: TcpListener, pages: Arc<dyn Pages>, connections_max: usize) {
    let (mut open, held) = (Open::default(), Arc::new(Held::default()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // If this fails, the kernel holds more, and the connection is still served.
                let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
                let (pages, held) = (Arc::clone(&pages), Arc::clone(&held));
                let task = tokio::spawn(async move {
                    // A slow client, and one that disconnects, gets nothing.
                    let _ = timeout(PATIENCE, converse(stream, &*pages, &held)).await;
                });
                open.add(task.abort_handle(), connections_max);
            }
            Err(_) => sleep(BACK_OFF).await,
        }
    }
}

/// The connections, oldest first; all end when this is dropped.
#[derive(Default)]
struct Open(VecDeque<AbortHandle>);

impl Open {
    fn add(&mut self, task: AbortHandle, max: usize) {
        if self.0.len() >= max {
            self.0.retain(|task| !task.is_finished());
        }
        if self.0.len() >= max
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(task);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Reads one request and answers it; other protocols line by line.
async fn converse(mut stream: TcpStream, pages: &dyn Pages, held: &Held) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let room = HEAD_BYTES_MAX - bytes.len();
        if (&mut stream).take(room as u64).read_buf(&mut bytes).await? == 0 {
            if room > 0 {
                // The other side has finished.
                return Ok(());
            }
            let refusal = if is_http(&bytes) { request::too_long() } else { Vec::new() };
            return end(stream, Arc::new(refusal)).await;
        }
        if is_http(&bytes) {
            match request::head(&bytes) {
                Head::Partial => {}
                Head::Whole(request) => return end(stream, request.answer(pages, held)).await,
                Head::Broken => return end(stream, Arc::new(request::refusal())).await,
            }
            continue;
        }
        while let Some(length) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=length).collect();
            let line = String::from_utf8_lossy(&line);
            let Some(answer) = pages.line(line.trim_end()) else {
                return end(stream, Arc::default()).await;
            };
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}

/// True if these bytes start an HTTP request: its methods are in capitals.
fn is_http(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_uppercase)
}

/// Sends the answer, and reads until the other side has closed: closing earlier could reset the
/// connection before the answer arrives.
async fn end(mut stream: TcpStream, answer: Arc<Vec<u8>>) -> io::Result<()> {
    stream.write_all(&answer).await?;
    drop(answer);
    stream.shutdown().await?;
    let mut rest = [0; 512];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Check;
    use crate::page::Page;

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// Counts the pages made.
    #[derive(Default)]
    struct Shown(AtomicUsize);

    impl Pages for Shown {
        fn metrics(&self) -> Page {
            let mut page = Page::new("");
            page.sample("page", &[], self.0.fetch_add(1, Ordering::SeqCst) + 1);
            (0..50_000).for_each(|_| page.sample("x", &[], 1));
            page
        }

        fn live(&self) -> Vec<Check> {
            Vec::new()
        }

        fn ready(&self) -> Vec<Check> {
            Vec::new()
        }

        fn started(&self) -> Vec<Check> {
            Vec::new()
        }

        fn line(&self, line: &str) -> Option<String> {
            (line != "quit").then(|| format!("<{line}>\n"))
        }
    }

    fn endpoint() -> Endpoint {
        endpoint_of(Arc::default())
    }

    fn endpoint_of(shown: Arc<Shown>) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Endpoint::start(listener, shown, CONNECTIONS_MAX).unwrap()
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    const SCRAPE: &str = "GET /metrics HTTP/1.1\r\n\r\n";

    /// More connections than the limit are silent, and all requests are answered.
    #[test]
    fn silent_connections_do_not_block_other_clients() {
        let endpoint = endpoint();
        let connect = || TcpStream::connect(endpoint.address()).unwrap();
        let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX + 20).map(|_| connect()).collect();
        let askers: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = connect();
                stream.write_all(SCRAPE.as_bytes()).unwrap();
                stream
            })
            .collect();
        for mut stream in askers {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("x 1\n"), "{}", text.len());
        }
        // The oldest silent connections were closed, the youngest were not.
        let mut byte = [0];
        assert_eq!((&silent[0]).read(&mut byte).unwrap_or(0), 0);
        let youngest = silent.last().unwrap();
        youngest.set_nonblocking(true).unwrap();
        let left = (&*youngest).read(&mut byte).unwrap_err();
        assert_eq!(left.kind(), io::ErrorKind::WouldBlock);
    }

    /// Clients that do not read hold one of two pages, whole ones are there for others, and pages
    /// are current again when the silent clients have gone.
    #[test]
    fn stalled_readers_hold_at_most_two_pages() {
        let shown: Arc<Shown> = Arc::default();
        let endpoint = endpoint_of(Arc::clone(&shown));
        let silent: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = TcpStream::connect(endpoint.address()).unwrap();
                SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
                stream.write_all(SCRAPE.as_bytes()).unwrap();
                stream.peek(&mut [0]).unwrap();
                stream
            })
            .collect();
        let text = ask(endpoint.address(), SCRAPE);
        assert!(text.contains("\npage 2\n") && text.ends_with("x 1\n"), "{}", text.len());
        assert_eq!(shown.0.load(Ordering::SeqCst), 2);
        drop(silent);
        let end = Instant::now() + PATIENCE / 2;
        while ask(endpoint.address(), SCRAPE).contains("\npage 2\n") {
            assert!(Instant::now() < end, "the page of the silent is still shown");
        }
        let asked = shown.0.load(Ordering::SeqCst);
        let next = format!("\npage {}\n", asked + 1);
        assert!(ask(endpoint.address(), SCRAPE).contains(&next));
    }

    #[test]
    fn a_split_head_is_reassembled_and_an_endless_one_refused() {
        let endpoint = endpoint();
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        for piece in SCRAPE.as_bytes().chunks(3) {
            stream.write_all(piece).unwrap();
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(HEAD_BYTES_MAX));
        assert!(ask(endpoint.address(), &long).starts_with("HTTP/1.1 431 "));
        assert!(ask(endpoint.address(), "GET\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn lines_of_another_protocol_are_answered_until_quit() {
        let endpoint = endpoint();
        assert_eq!(ask(endpoint.address(), "stats\r\nmore\nquit\nx\n"), "<stats>\n<more>\n");
        let long = "s".repeat(HEAD_BYTES_MAX + 1);
        assert_eq!(ask(endpoint.address(), &long), "");
    }

    #[test]
    fn the_address_is_free_again_when_the_endpoint_is_dropped() {
        let endpoint = endpoint();
        let address = endpoint.address();
        let mut open = TcpStream::connect(address).unwrap();
        drop(endpoint);
        assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
        assert!(TcpStream::connect(address).is_err());
    }
}
