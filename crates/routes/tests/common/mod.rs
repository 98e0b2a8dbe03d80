//! A worker without a front (requests in, replies out), and servers whose every byte the test
//! chooses.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

pub mod cluster;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use routes::route::{DestinationRoute, RouteRef};
use routes::{Core, Submitted, Tree};
use spans::Spans;
use upstream::{
    Command, Failure, Outcome, OwnedReply, Registry, Reply, Request, Settings, Sink, Ticket,
    Upstream,
};

/// How long a test waits for an expected event; even slow machines need less.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number in an environment variable, or `default`.
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[derive(Default)]
struct Replies(Vec<(Ticket, OwnedReply)>);

impl Sink for Replies {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        self.0.push((ticket, reply.to_owned()));
    }
}

/// One worker. Its time is the machine's, or, once it is frozen, the test's. In frozen time no
/// answer is late, however slow the machine, and silence lasts as long as it should.
pub struct Rig {
    pub core: Core,
    pub registry: Registry,
    /// Spans of traced requests.
    pub spans: Arc<Spans>,
    replies: Replies,
    next: Ticket,
    frozen: Option<Instant>,
}

/// The servers of a tree under construction.
pub struct Servers<'a> {
    upstream: &'a mut Upstream,
    settings: Settings,
    destinations: Vec<upstream::DestinationId>,
}

impl Servers<'_> {
    pub fn at(&mut self, address: SocketAddr) -> RouteRef {
        let id = self.upstream.destination(&address.into(), &self.settings);
        self.destinations.push(id);
        let label = address.to_string().into();
        Arc::new(DestinationRoute {
            id,
            label,
            asynclog: Some("pool".to_owned()),
            keeps_prefix: false,
            shadows: Default::default(),
        })
    }
}

impl Rig {
    pub fn new(settings: Settings, build: impl FnOnce(&mut Servers<'_>) -> RouteRef) -> Self {
        Self::over(|upstream| {
            let mut servers = Servers { upstream, settings, destinations: Vec::new() };
            let root = build(&mut servers);
            Tree { root, destinations: servers.destinations, keeps_prefixes: false }
        })
    }

    /// A worker on a host whose number is 7.
    pub fn over(build: impl FnOnce(&mut Upstream) -> Tree) -> Self {
        Self::on_host(7, build)
    }

    /// A worker on a host of this number.
    pub fn on_host(host_id: u32, build: impl FnOnce(&mut Upstream) -> Tree) -> Self {
        let (registry, spans) = (Registry::default(), Arc::new(Spans::default()));
        registry.set_spans(&spans);
        let upstream = Upstream::new(0, registry.clone(), Instant::now()).unwrap();
        let core = Core::new(upstream, host_id, 42, build);
        let (replies, next, frozen) = Default::default();
        Self { core: core.unwrap(), registry, spans, replies, next, frozen }
    }

    /// Makes time pass only by [`Self::pass`] from now on.
    pub fn freeze(mut self) -> Self {
        self.frozen = Some(Instant::now());
        self
    }

    /// Lets this time pass, and does the work that is due then.
    pub fn pass(&mut self, time: Duration) {
        self.frozen = Some(self.now() + time);
        self.core.turn(self.now());
        self.core.settle(&mut self.replies);
    }

    fn now(&self) -> Instant {
        self.frozen.unwrap_or_else(Instant::now)
    }

    /// Returns true if the reply to `ticket` has come.
    pub fn has_reply(&self, ticket: Ticket) -> bool {
        self.replies.0.iter().any(|(other, _)| *other == ticket)
    }

    /// Sends a request without waiting.
    pub fn submit(&mut self, request: &Request<'_>) -> Ticket {
        self.core.turn(self.now());
        self.next += 1;
        if let Submitted::Done(reply) = self.core.submit(request, self.next) {
            self.replies.0.push((self.next, reply));
        }
        self.next
    }

    /// Returns true if the request was announced as one in several steps; waits for its reply.
    pub fn takes_steps(&mut self, request: &Request<'_>) -> bool {
        self.core.turn(self.now());
        self.next += 1;
        let ticket = self.next;
        let submitted = self.core.submit(request, ticket);
        let takes_steps = submitted == Submitted::InSteps;
        match submitted {
            Submitted::Done(_) => {}
            Submitted::InSteps | Submitted::Pending => drop(self.reply(ticket)),
        }
        takes_steps
    }

    /// One turn of the loop.
    pub fn turn(&mut self) {
        self.core.turn(self.now());
        self.core.settle(&mut self.replies);
        let wait = self.core.deadline().map_or(Duration::from_millis(20), |end| {
            end.saturating_duration_since(self.now()).min(Duration::from_millis(20))
        });
        let poller = self.core.poller();
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(poller, rustix::event::PollFlags::IN)];
        let timeout = rustix::time::Timespec::try_from(wait).unwrap();
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap();
        self.core.turn(self.now());
        self.core.on_events(&mut self.replies);
        self.core.settle(&mut self.replies);
    }

    /// The reply to `ticket`.
    #[track_caller]
    pub fn reply(&mut self, ticket: Ticket) -> OwnedReply {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(index) = self.replies.0.iter().position(|(other, _)| *other == ticket) {
                return self.replies.0.swap_remove(index).1;
            }
            assert!(Instant::now() < end, "no reply");
            self.turn();
        }
    }

    #[track_caller]
    pub fn ask(&mut self, request: &Request<'_>) -> OwnedReply {
        let ticket = self.submit(request);
        self.reply(ticket)
    }

    #[track_caller]
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Failure> {
        let reply = self.ask(&Request::new(Command::Get, key.as_bytes()));
        match reply.outcome {
            Outcome::Found => {
                assert_eq!(String::from_utf8_lossy(&reply.key), key);
                Ok(Some(String::from_utf8(reply.value).unwrap()))
            }
            Outcome::NotFound => Ok(None),
            Outcome::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn store(&mut self, op: Command, key: &str, value: &str) -> Outcome {
        let request = Request { value: value.as_bytes(), ..Request::new(op, key.as_bytes()) };
        self.ask(&request).outcome
    }

    #[track_caller]
    pub fn simple(&mut self, op: Command, key: &str) -> Outcome {
        self.ask(&Request::new(op, key.as_bytes())).outcome
    }

    /// Runs turns until no server is asked any more, also for requests without a waiter.
    #[track_caller]
    pub fn rest(&mut self) {
        self.eventually("nobody is asked any more", |rig| {
            rig.registry.report().iter().all(|report| report.totals.pending == 0)
        });
    }

    /// Runs turns until `holds`.
    #[track_caller]
    pub fn eventually(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "never: {what}");
            self.turn();
        }
    }
}

/// A server that answers everything that a read returns with the text from `answer`; `None` closes
/// the connection.
pub struct Scripted {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Scripted {
    pub fn new(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub fn on(
        listener: TcpListener,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let (address, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (ends, answer) = (Arc::clone(&stop), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream, &*answer));
            }
        });
        Self { address, stop }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str) -> Option<String>) {
    let mut buffer = vec![0; 65536];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        let Some(reply) = answer(&String::from_utf8_lossy(&buffer[..len])) else { return };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// Settings for servers that answer: they are in time however slow the machine is.
pub fn patient() -> Settings {
    Settings { timeout: PATIENCE, connect_timeout: PATIENCE, ..Settings::default() }
}

/// Short times, for a frozen [`Rig`].
pub fn quick() -> Settings {
    Settings {
        timeout: Duration::from_millis(200),
        connect_timeout: Duration::from_millis(200),
        probe_initial: Duration::from_millis(20),
        probe_max: Duration::from_millis(50),
        ..Settings::default()
    }
}
