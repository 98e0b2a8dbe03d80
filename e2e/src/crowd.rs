//! A crowd of hostile clients, of every kind that has once harmed a server or a proxy, and its
//! effect on bystanders.
//!
//! The server or proxy runs in a control group with a memory limit, if control groups are
//! available.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use processes::MemoryLimit;
use rustls::{ClientConnection, StreamOwned};
use testkit::process::{free_port, peak_rss_bytes};
use testkit::{Kind, Launch, Router, Server, Wire};

use crate::certificates::Certificates;
use crate::values::{make, store};

/// The memory limit of the server, and of the proxy's memory for clients.
const MEGABYTES: u64 = 64;

/// The limit of the control group: 1.03 x `-m` + 64 MB.
const GROUP_BYTES: u64 = (MEGABYTES << 20) * 103 / 100 + (64 << 20);

/// Items of a thousand bytes. They fit into `-m` together with the clients' share of three eighths.
const ITEMS: u64 = 25_000;

/// The key of a large value, which hostile clients request and do not read.
const BIG: &str = "big";

/// The target of a crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// The server.
    Server,
    /// The server's TLS port.
    ServerTls,
    /// The proxy.
    Proxy,
    /// The proxy's TLS port.
    ProxyTls,
}

impl Front {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Server, Self::ServerTls, Self::Proxy, Self::ProxyTls];

    const fn is_tls(self) -> bool {
        matches!(self, Self::ServerTls | Self::ProxyTls)
    }

    const fn is_proxy(self) -> bool {
        matches!(self, Self::Proxy | Self::ProxyTls)
    }
}

/// The state of the server and the bystanders afterwards.
#[derive(Debug)]
pub struct Outcome {
    /// The number of accepted hostile clients.
    pub came: usize,
    /// The latencies of the bystanders before the crowd connected, sorted.
    pub before: Vec<Duration>,
    /// The latencies while the crowd connected.
    pub coming: Vec<Duration>,
    /// The latencies after the whole crowd had connected.
    pub beside: Vec<Duration>,
    /// Items that the server lost, or counted as evicted if that is more.
    pub lost: u64,
    /// The attacked process has not been replaced.
    pub is_alive: bool,
    /// The maximum memory of the control group, in bytes; none without such a group.
    pub group_peak: Option<u64>,
    /// The maximum resident memory of the process, in bytes.
    pub peak_rss: u64,
}

/// The server, and the proxy if it is the target.
struct Target {
    server: Server,
    router: Option<Router>,
    addr: SocketAddr,
    group: Option<MemoryLimit>,
}

/// Attacks with `clients` hostile clients. Bystanders measure for `calm` before, and for `beside`
/// after all have connected.
#[must_use]
pub fn attack(front: Front, clients: usize, calm: Duration, beside: Duration) -> Outcome {
    let certificates = Certificates::new();
    let mut target = Target::start(front, clients, &certificates);
    target.fill();
    let items = target.server.stat("curr_items");
    let evictions = target.server.stat("evictions");
    let tls = front.is_tls().then_some(&certificates);
    let mut bystander = Bystander::connect(target.addr, tls);
    let before = bystander.look_for(calm);
    // Relaxed: they show the progress of the crowd and order nothing.
    let (have_come, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (coming, beside, crowd) = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut look_until = |end: &AtomicBool| {
                let mut times = bystander.look_for(Duration::from_millis(20));
                while !end.load(Ordering::Relaxed) {
                    times.extend(bystander.look_for(Duration::from_millis(20)));
                }
                times
            };
            (look_until(&have_come), look_until(&is_over))
        });
        let crowd = scope.spawn(|| {
            // A real crowd has its own processors. Here it has the time that server, proxy and
            // bystanders leave. Only this thread has a lower priority from here on.
            rustix::process::setpriority_process(None, 19).unwrap();
            let crowd = Crowd::come(target.addr, clients, tls);
            have_come.store(true, Ordering::Relaxed);
            crowd.stay(beside)
        });
        let crowd = crowd.join();
        have_come.store(true, Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        let crowd = crowd.expect("the crowd comes");
        let (coming, beside) = looking.join().expect("the bystander is served");
        (coming, beside, crowd)
    });
    let mut newcomer = Bystander::connect(target.addr, tls);
    newcomer.look_for(Duration::from_millis(100));
    let mut outcome = target.outcome(items, evictions);
    outcome.came = crowd.came;
    outcome.before = sorted(before);
    outcome.coming = sorted(coming);
    outcome.beside = sorted(beside);
    outcome
}

#[allow(clippy::print_stderr, reason = "a test says what it leaves out")]
fn note_missing_group(error: &std::io::Error) {
    eprintln!("NOT RUN: no control group: {error}");
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}

impl Target {
    fn start(front: Front, clients: usize, certificates: &Certificates) -> Self {
        let group = MemoryLimit::new(&free_port().to_string(), GROUP_BYTES);
        let group = group.inspect_err(note_missing_group).ok();
        let enter = group.as_ref().map(|group| {
            format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.folder().display())
        });
        let within: Vec<&str> = enter.iter().flat_map(|enter| ["sh", "-c", enter, "sh"]).collect();
        let (plain, tls) = (free_port(), free_port());
        let room = (clients + 100).to_string();
        let memory = MEGABYTES.to_string();
        let args = ["-m", &memory, "-t", "2", "-c", &room];
        let tls_addr = SocketAddr::from(([127, 0, 0, 1], tls));
        let mut server = Launch::new(Kind::Holdall).args(&args);
        if front == Front::ServerTls {
            let options = certificates.options("");
            let listen = [format!("127.0.0.1:{tls}"), format!("notls:127.0.0.1:{plain}")];
            let own = ["-Z", "-o", &options, "-l", &listen[0], "-l", &listen[1]];
            server = server.plain_port(plain).args(&own);
        }
        if !front.is_proxy() {
            server = server.under(&within);
        }
        let server = server.start();
        let router = front.is_proxy().then(|| {
            let config = testkit::router::config(&[server.addr()], r#""PoolRoute|all""#);
            let held = (MEGABYTES << 20).to_string();
            let mut args = vec!["--asynclog-disable", "--num-proxies", "2"];
            args.extend(["--client-memory-max", &held, "--max-conns", &room]);
            let (port, path) = (tls.to_string(), |name: &str| certificates.path(name));
            let (cert, key, ca) = (path("server.crt"), path("server.key"), path("ca.crt"));
            if front == Front::ProxyTls {
                args.extend(["--ssl-port", &port, "--pem-cert-path", &cert]);
                args.extend(["--pem-key-path", &key, "--pem-ca-path", &ca]);
            }
            Router::under(&within, &config, &args)
        });
        let plain_addr = router.as_ref().map_or_else(|| server.addr(), Router::addr);
        let addr = if front.is_tls() { tls_addr } else { plain_addr };
        Self { server, router, addr, group }
    }

    /// Stores the items and a large value.
    fn fill(&self) {
        let mut wire = self.server.connect();
        let value = "v".repeat(1000);
        for first in (0..ITEMS).step_by(100) {
            let set = |item| format!("set k{item} 0 0 1000 noreply\r\n{value}\r\n");
            wire.send((first..first + 100).map(set).collect::<String>().as_bytes());
        }
        wire.expect(b"mn\r\n", b"MN\r\n");
        store(&mut wire, BIG, &make(BIG, 1, 1_000_000)).unwrap();
    }

    /// The server's part of the outcome.
    fn outcome(&mut self, items: u64, evictions: u64) -> Outcome {
        let evicted = self.server.stat("evictions") - evictions;
        let mut wire = self.server.connect();
        let is_there = |item: &u64| {
            wire.send(format!("mg k{item}\r\n").as_bytes());
            wire.line() == "HD"
        };
        let there = (0..ITEMS).filter(is_there).count() as u64;
        // The bystander stores one more.
        let lost = (items - 1 - there.min(items - 1)).max(evicted);
        let (is_alive, pid) = match &mut self.router {
            None => (self.server.is_alive(), self.server.pid()),
            Some(router) => (router.is_running(), router.pid()),
        };
        Outcome {
            came: 0,
            before: Vec::new(),
            coming: Vec::new(),
            beside: Vec::new(),
            lost,
            is_alive,
            group_peak: self.group.as_ref().and_then(|group| group.peak().ok()),
            peak_rss: peak_rss_bytes(pid),
        }
    }
}

/// A stream with or without TLS.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A well-behaved client.
struct Bystander {
    addr: SocketAddr,
    stream: Box<dyn Stream>,
    looks: u64,
}

impl Bystander {
    fn connect(addr: SocketAddr, tls: Option<&Certificates>) -> Self {
        let socket = Wire::connect(addr).stream().try_clone().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(socket),
            Some(certificates) => Box::new(handshake(socket, certificates).unwrap()),
        };
        Self { addr, stream, looks: 0 }
    }

    /// Sends sets and gets, checks the replies, and returns their latencies.
    fn look_for(&mut self, time: Duration) -> Vec<Duration> {
        let (mut times, end) = (Vec::new(), Instant::now() + time);
        while Instant::now() < end {
            self.looks += 1;
            let value = format!("{:08}", self.looks);
            self.expect(&format!("set look 0 0 8\r\n{value}\r\n"), "STORED\r\n", &mut times);
            let want = format!("VALUE look 0 8\r\n{value}\r\nEND\r\n");
            self.expect("get look\r\n", &want, &mut times);
            thread::sleep(Duration::from_micros(500));
        }
        times
    }

    fn expect(&mut self, request: &str, want: &str, times: &mut Vec<Duration>) {
        let begun = Instant::now();
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut reply = vec![0; want.len()];
        let read = self.stream.read_exact(&mut reply);
        read.unwrap_or_else(|error| panic!("a bystander of {}: {request:?}: {error}", self.addr));
        assert_eq!(String::from_utf8_lossy(&reply), want, "{request:?}");
        times.push(begun.elapsed());
    }
}

fn handshake(
    mut socket: TcpStream,
    certificates: &Certificates,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = "localhost".try_into().expect("a name");
    let config = certificates.client("ca", None);
    let mut session = ClientConnection::new(config, name).expect("a session");
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// Hostile clients that stay connected.
struct Crowd {
    came: usize,
    open: Vec<(Manner, Box<dyn Stream>)>,
}

/// The behaviour of a hostile client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Sends nothing.
    Silent,
    /// A line without its end.
    HalfLine,
    /// A small value without its end.
    HalfValue,
    /// A value announced as large and sent slowly.
    Creeps,
    /// Much of a large value, whose rest is sent slowly.
    CreepsLarge,
    /// Many values, unread.
    UnreadValues,
    /// A large value, unread, several times.
    UnreadLarge,
    /// Endless small requests with unread replies.
    UnreadReplies,
    /// The head of a packet with a large body.
    HalfPacket,
    /// A dump, unread.
    UnreadDump,
    /// The first bytes of a TLS handshake, or similar ones.
    HalfHello,
    /// Noise.
    Noise,
}

impl Manner {
    const ALL: [Self; 12] = [
        Self::Silent,
        Self::HalfLine,
        Self::HalfValue,
        Self::Creeps,
        Self::CreepsLarge,
        Self::UnreadValues,
        Self::UnreadLarge,
        Self::UnreadReplies,
        Self::HalfPacket,
        Self::UnreadDump,
        Self::HalfHello,
        Self::Noise,
    ];

    /// The first bytes that it sends.
    fn opening(self, number: usize) -> Vec<u8> {
        match self {
            Self::Silent => Vec::new(),
            Self::HalfLine => [&b"get "[..], &[b'k'; 200]].concat(),
            Self::HalfValue => b"set h 0 0 50\r\nab".to_vec(),
            Self::Creeps => b"set h 0 0 1000000\r\nabc".to_vec(),
            Self::CreepsLarge => [&b"set h 0 0 1000000\r\n"[..], &[b'x'; 40_000]].concat(),
            Self::UnreadValues => {
                let keys = (0..200).map(|key| format!(" k{}", (number + key) as u64 % ITEMS));
                format!("get{}\r\n", keys.collect::<String>()).into_bytes()
            }
            Self::UnreadLarge => format!("get {BIG}\r\n").repeat(8).into_bytes(),
            Self::UnreadReplies => b"version\r\n".repeat(3000),
            Self::HalfPacket => {
                [&[0x80, 1, 0, 3, 8, 0, 0, 0, 0, 0x0f, 0, 0][..], &[0; 20], b"abc"].concat()
            }
            Self::UnreadDump => b"lru_crawler metadump all\r\n".to_vec(),
            Self::HalfHello => [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[b'z'; 58]].concat(),
            Self::Noise => (0..500_u16).map(|at| (at * 37 % 251) as u8).collect(),
        }
    }
}

impl Crowd {
    /// Connects all clients, one after the other. With TLS every second one completes its
    /// handshake.
    fn come(addr: SocketAddr, clients: usize, tls: Option<&Certificates>) -> Self {
        let mut crowd = Self { came: 0, open: Vec::new() };
        for number in 0..clients {
            let manner = Manner::ALL[number % Manner::ALL.len()];
            let Ok(socket) = TcpStream::connect(addr) else { continue };
            crowd.came += 1;
            // Its receive buffer is small.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096);
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let control = socket.try_clone().unwrap();
            let mut opening = manner.opening(number);
            let mut stream: Box<dyn Stream> = match tls {
                Some(certificates) if (number / Manner::ALL.len()).is_multiple_of(2) => {
                    match handshake(socket, certificates) {
                        Ok(stream) => Box::new(stream),
                        Err(_) => continue,
                    }
                }
                Some(_) => {
                    opening = Manner::HalfHello.opening(number);
                    Box::new(socket)
                }
                None => Box::new(socket),
            };
            // Does not wait for bytes that the server does not take.
            control.set_nonblocking(true).unwrap();
            let _ = stream.write(&opening);
            crowd.open.push((manner, stream));
        }
        crowd
    }

    /// Keeps the clients connected for a while. Slow senders continue; closed ones do nothing.
    fn stay(mut self, time: Duration) -> Self {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for (manner, stream) in &mut self.open {
                if matches!(manner, Manner::Creeps | Manner::CreepsLarge | Manner::HalfValue) {
                    let _ = stream.write(b"x");
                }
            }
            thread::sleep(Duration::from_millis(250));
        }
        self
    }
}
