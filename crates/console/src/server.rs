//! The HTTP server: the page, JSON, and the stream of ticks.
//!
//! There are limits on the connections, the streams among them, the head and the body of a request,
//! the time for a head, and the time in which a client reads nothing. If the maximum number of
//! connections is open, the oldest one without an admitted request makes room for a new one, so
//! silent clients and wrong passwords cannot keep others out. Potentially slow work runs in
//! separate threads, a few at a time.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError};

use crate::admission::{Admission, Refusal};
use crate::answers::{Answers, QueryError};
use crate::flush::flush;
use crate::key::fault;
use crate::note::note;
use crate::page::Page;
use crate::servers::{Change, ChangeRequest};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 128;

/// Maximum number of pages that follow the ticks, each with a connection.
const STREAMS_MAX: usize = 64;

/// Maximum number of concurrent requests that query servers or the host.
const QUERIES_MAX: usize = 8;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 1024;

/// The time limit for a request's head, for the next request of a connection, and for a client to
/// read some sent data.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a failed accept: descriptors have run out.
const BACK_OFF: Duration = Duration::from_millis(100);

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// The data for every request.
#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) answers: Answers,
    pub(crate) admission: Admission,
    pub(crate) page: Page,
    streams: Arc<Semaphore>,
    /// The work on a request holds a permit to its end, even when its client is gone.
    questions: Arc<Semaphore>,
    /// One action at a time: two changes of one file would undo each other.
    actions: Arc<Semaphore>,
}

impl Console {
    pub(crate) fn new(answers: Answers, admission: Admission) -> Self {
        Self {
            answers,
            admission,
            page: Page::new(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            questions: Arc::new(Semaphore::new(QUERIES_MAX)),
            actions: Arc::new(Semaphore::new(1)),
        }
    }

    /// Executes an admitted action, and logs its user.
    fn act(&self, path: &str, body: &Value, user: &str) -> Result<Value, String> {
        let word = |name: &str| body[name].as_str();
        if path == "/api/flush" {
            let prefix = word("prefix").ok_or("there is no prefix")?;
            if let Some(why) = fault(prefix) {
                return Err(why.to_owned());
            }
            note(&format!("{user} flushes the prefix {prefix}"));
            let tier = &self.answers.tier;
            return Ok(json!({ "servers": flush(prefix, &tier.servers(), &tier.options) }));
        }
        let server = word("server").ok_or("there is no server")?;
        let action = path.trim_start_matches("/api/");
        let wish = ChangeRequest::of(action, server, word("pool").unwrap_or_default());
        let wish = wish.ok_or("there is no such action")?;
        let source = self.answers.config.as_ref().ok_or("this console has no --config")?;
        let change = Change::of(&wish, source)?;
        let shown = change.shown();
        change.write()?;
        note(&format!("{user} {}", wish.description()));
        Ok(shown)
    }
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: TcpListener, console: Arc<Console>) {
    let mut open = Open::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if !open.has_room() {
                    continue;
                }
                let hold = Hold::default();
                let counted = Arc::downgrade(&hold);
                let task = tokio::spawn(converse(stream, Arc::clone(&console), hold));
                open.0.push_back((task.abort_handle(), counted));
            }
            Err(_) => tokio::time::sleep(BACK_OFF).await,
        }
    }
}

/// A connection has one of these, and each of its admitted requests a clone. It is true after the
/// first one.
type Hold = Arc<AtomicBool>;

/// The connections, oldest first.
#[derive(Default)]
struct Open(VecDeque<(AbortHandle, Weak<AtomicBool>)>);

impl Open {
    /// Makes room for one more connection: if necessary, the oldest one ends that has had no
    /// admitted request, or else the oldest one whose requests have replies. Those may still be on
    /// their way. False if all have an admitted request without a reply.
    fn has_room(&mut self) -> bool {
        if self.0.len() < CONNECTIONS_MAX {
            return true;
        }
        self.0.retain(|(task, _)| !task.is_finished());
        if self.0.len() < CONNECTIONS_MAX {
            return true;
        }
        let is_idle = |hold: &Weak<AtomicBool>| hold.strong_count() <= 1;
        // Relaxed: a connection whose first request was just admitted may count as silent.
        let is_silent =
            |hold: &Weak<AtomicBool>| hold.upgrade().is_none_or(|hold| !hold.load(Relaxed));
        let silent = self.0.iter().position(|(_, hold)| is_idle(hold) && is_silent(hold));
        let idle = silent.or_else(|| self.0.iter().position(|(_, hold)| is_idle(hold)));
        let idle = idle.and_then(|place| self.0.remove(place));
        idle.inspect(|(task, _)| task.abort()).is_some()
    }
}

async fn converse(stream: TcpStream, console: Arc<Console>, hold: Hold) {
    // The kernel ends a connection whose client reads nothing. If this fails, it stays open.
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(PATIENCE));
    let service = service_fn(move |request| {
        let (console, hold) = (Arc::clone(&console), Arc::downgrade(&hold));
        async move { Ok::<_, Infallible>(answer(request, &console, &hold).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    // If a client disconnects or sends no HTTP, hyper has handled it.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    console: &Arc<Console>,
    hold: &Weak<AtomicBool>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let user = match console.admission.pass(&head.method, path, &head.headers).await {
        Ok(user) => user,
        Err(Refusal(status, why)) => {
            let mut response = text(status, why);
            if status == StatusCode::UNAUTHORIZED {
                let scheme = HeaderValue::from_static("Basic realm=\"holdall console\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            }
            return response;
        }
    };
    let hold = hold.upgrade().unwrap_or_default();
    hold.store(true, Relaxed);
    let mut response = if head.method == Method::POST {
        act(path, body, &user, console).await
    } else {
        match path {
            "/" => page(console),
            "/events" => return events(console, hold),
            _ => question(path, head.uri.query().unwrap_or_default(), console).await,
        }
    };
    if head.method == Method::HEAD {
        *response.body_mut() = Either::Left(Full::default());
    }
    response
}

fn page(console: &Console) -> Response<Body> {
    let text = console.page.text(&state(console));
    let mut response = bytes(StatusCode::OK, "text/html; charset=utf-8", text);
    if let Ok(policy) = HeaderValue::from_str(&console.page.policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// The page's initial state as JSON: the last tick, and the constant data.
fn state(console: &Console) -> String {
    let (admission, answers) = (&console.admission, &console.answers);
    let token = json!(admission.acts.then_some(&admission.token));
    let (has_config, tick) = (answers.config.is_some(), answers.tier.last_tick());
    format!(r#"{{"token":{token},"has_config":{has_config},"tick":{tick}}}"#)
}

/// A stream of the ticks as server-sent events, as fast as the page reads.
fn events(console: &Console, hold: Hold) -> Response<Body> {
    let Ok(permit) = Arc::clone(&console.streams).try_acquire_owned() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
    };
    let mut ticks = console.answers.tier.watch();
    ticks.mark_changed();
    let (mut sender, body) = Channel::new(1);
    tokio::spawn(async move {
        while ticks.changed().await.is_ok() {
            let tick = ticks.borrow_and_update().clone();
            if sender.send_data(tick).await.is_err() {
                break;
            }
        }
        drop((permit, hold));
    });
    headed(StatusCode::OK, "text/event-stream", Either::Right(body))
}

/// A request that may take a while.
async fn question(path: &str, query: &str, console: &Arc<Console>) -> Response<Body> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let parameters: BTreeMap<String, String> = pairs.into_owned().collect();
    let (path, console) = (path.to_owned(), Arc::clone(console));
    let turns = Arc::clone(&console.questions);
    match run_limited(turns, move || console.answers.of(&path, &parameters)).await {
        Ok(Ok(value)) => of_json(&value),
        Ok(Err(QueryError::Unknown)) => text(StatusCode::NOT_FOUND, "there is nothing here"),
        Ok(Err(QueryError::Wrong(why))) => text(StatusCode::BAD_REQUEST, &why),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the answer failed"),
    }
}

/// An admitted action.
async fn act(path: &str, body: Incoming, user: &str, console: &Arc<Console>) -> Response<Body> {
    let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long");
    };
    let value: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let (action, user, console) = (path.to_owned(), user.to_owned(), Arc::clone(console));
    let turns = Arc::clone(&console.actions);
    match run_limited(turns, move || console.act(&action, &value, &user)).await {
        Ok(Ok(value)) => of_json(&value),
        Ok(Err(why)) => text(StatusCode::BAD_REQUEST, &why),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the action failed"),
    }
}

/// Runs potentially slow work in turn. A disconnect ends only the waiting: started work keeps its
/// turn until it is done.
async fn run_limited<T: Send + 'static>(
    turns: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // The semaphore is never closed, so there is always a permit.
    let permit = turns.acquire_owned().await;
    let work = move || {
        let _held = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await
}

fn of_json(value: &Value) -> Response<Body> {
    bytes(StatusCode::OK, "application/json", Bytes::from(value.to_string()))
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    bytes(status, "text/plain; charset=utf-8", Bytes::from(format!("{text}\n")))
}

fn bytes(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    headed(status, kind, Either::Left(Full::new(bytes)))
}

fn headed(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    const HEADERS: [(&str, &str); 5] = [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use plan::Target;
    use tokio::runtime::Runtime;
    use tools::Options;

    use super::*;
    use crate::login::Logins;
    use crate::tier::Tier;

    /// A console without logins for an unavailable member, and the runtime that serves it.
    fn console() -> (Runtime, SocketAddr) {
        console_of("127.0.0.1:1", Options::default())
    }

    fn console_of(member: &str, options: Options) -> (Runtime, SocketAddr) {
        console_for(member, options, None)
    }

    fn console_for(
        member: &str,
        options: Options,
        logins: Option<Logins>,
    ) -> (Runtime, SocketAddr) {
        let target = Target { address: member.to_owned(), group: "<b>/x".to_owned() };
        let interval = Duration::from_millis(100);
        let tier = Tier::start(vec![target], options, interval).unwrap();
        let answers = Answers { tier, config: None };
        let admission = Admission { names: vec![], logins, acts: false, token: String::new() };
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, Arc::new(Console::new(answers, admission))));
        (runtime, address)
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        all
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        ask(address, &request)
    }

    #[test]
    fn the_page_allows_only_its_scripts_and_has_the_last_tick() {
        let (_runtime, address) = console();
        let page = get(address, "/");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &page[..200]);
        let policy = page.lines().find(|line| line.starts_with("content-security-policy: "));
        let policy = policy.unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(page.contains("frame-ancestors 'none'"));
        let (_, state) = page.split_once(r#"id="state">"#).unwrap();
        let state: Value = serde_json::from_str(state.split_once('<').unwrap().0).unwrap();
        let first = &state["tick"]["members"][0];
        assert_eq!((&first["group"], &state["token"]), (&json!("<b>/x"), &Value::Null));
        let head = format!("HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let head = ask(address, &head);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn unknown_paths_hosts_and_bad_requests_are_refused() {
        let (_runtime, address) = console();
        assert!(get(address, "/x").starts_with("HTTP/1.1 404 "));
        assert!(get(address, "/api/key?key=a%20b").starts_with("HTTP/1.1 400 "));
        let other = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        assert!(ask(address, other).starts_with("HTTP/1.1 421 "));
        let post = format!(
            "POST /api/flush HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        assert!(ask(address, &post).starts_with("HTTP/1.1 403 "));
        let long =
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nx: {}\r\n\r\n", "y".repeat(40_000));
        assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
        assert!(ask(address, "\0\0\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn ticks_come_one_after_another() {
        let (_runtime, address) = console();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut all = String::new();
        let mut piece = [0; 4096];
        while all.matches("data: {").count() < 3 {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "{all}");
            all.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        assert!(all.contains("content-type: text/event-stream") && all.contains("\"at_ms\":"));
    }

    /// Each page has a separate connection; a page beyond the limit receives an error.
    #[test]
    fn pages_are_bounded() {
        let (_runtime, address) = console();
        let open = || {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            (stream, String::from_utf8_lossy(&head).into_owned())
        };
        let pages: Vec<_> = (0..STREAMS_MAX).map(|_| open()).collect();
        assert!(pages.iter().all(|(_, head)| head == "HTTP/1.1 200"));
        assert_eq!(open().1, "HTTP/1.1 503");
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
    }

    /// An open page and a running query stay; a connection between two requests gives way.
    #[test]
    fn connections_without_a_request_give_way_to_new_ones() {
        // It accepts through its backlog and never answers.
        let member = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = Options { timeout: Duration::from_secs(600), ..Options::default() };
        let (_runtime, address) = console_of(&member.local_addr().unwrap().to_string(), options);
        let open = |path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
            stream
        };
        let (mut page, mut query) = (open("/events"), open("/api/key?key=a"));
        let mut between = open("/x");
        for stream in [&mut page, &mut between] {
            stream.read_exact(&mut [0; 12]).unwrap();
        }
        // For the statistics that the page shows, and for the query.
        let asked = [member.accept().unwrap(), member.accept().unwrap()];
        let silent: Vec<_> =
            (0..2 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        let _ = between.read_to_end(&mut Vec::new());
        query.set_nonblocking(true).unwrap();
        assert_eq!(query.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        let mut all = String::new();
        while all.matches("data: {").count() < 2 {
            let mut piece = [0; 4096];
            let read = page.read(&mut piece).unwrap();
            assert!(read > 0, "{all}");
            all.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        drop((asked, silent));
    }

    /// Requests with wrong passwords, the next ones sent already.
    #[test]
    fn connections_without_a_login_give_way_to_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, "ann:secret\n").unwrap();
        let logins = Logins::open(&file, |_| {}).unwrap();
        let (_runtime, address) = console_for("127.0.0.1:1", Options::default(), Some(logins));
        let get = |login: &str| {
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {login}\r\n")
        };
        // ann:wrong
        let wrong = format!("{}\r\n", get("YW5uOndyb25n")).repeat(50);
        let guessing: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(wrong.as_bytes()).unwrap();
                stream
            })
            .collect();
        // ann:secret
        let right = format!("{}Connection: close\r\n\r\n", get("YW5uOnNlY3JldA=="));
        assert!(ask(address, &right).starts_with("HTTP/1.1 200 "));
        drop(guessing);
    }

    /// A request continues after its client disconnects, so it counts until it ends.
    #[test]
    fn abandoned_requests_count_against_the_limit() {
        // It accepts through its backlog and never answers.
        let member = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        member.set_nonblocking(true).unwrap();
        let options = Options { timeout: Duration::from_secs(600), ..Options::default() };
        let name = member.local_addr().unwrap().to_string();
        let (_runtime, address) = console_of(&name, options);
        let mut asked = Vec::new();
        for _ in 0..5 * QUERIES_MAX {
            let mut client = TcpStream::connect(address).unwrap();
            write!(client, "GET /api/key?key=a HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
            // The time for the console to query, if it does.
            std::thread::sleep(Duration::from_millis(20));
            asked.extend(std::iter::from_fn(|| member.accept().ok()));
        }
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        asked.extend(std::iter::from_fn(|| member.accept().ok()));
        // One of these is for the statistics that the page shows.
        assert!(asked.len() <= QUERIES_MAX + 1, "{}", asked.len());
        assert!(asked.len() > 1, "none was asked");
        drop((member, asked));
    }

    #[test]
    fn a_client_that_reads_nothing_is_disconnected() {
        let (_runtime, address) = console();
        let mut client = TcpStream::connect(address).unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
        // Together, more than fits in the buffers of both sides.
        client.write_all(request.repeat(400).as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
        let begin = std::time::Instant::now();
        loop {
            match client.write(b"G") {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
            assert!(begin.elapsed() < 12 * PATIENCE, "the connection is still there");
        }
    }
}
