//! Builds a running client from servers or a configuration.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use discovery::{AccessFiles, Discovery, is_source};
use routeconf::ast::Entry;
use routeconf::{Diagnostic, FileSources, Loaded, Params, Rejected, load};
use spool::Spool;

use crate::client::{Client, Inner};
use crate::codec::Codec;
pub use crate::codec::Compression;
use crate::driver_guard;
use crate::inbox::{Inbox, Limits};
use crate::own_sources::{OwnSources, SourceSettings};
use crate::watch::{self, Planned};
use routes::{Core, Plan, Spooler, TreeFlags, host_id};
use upstream::system::now;
use upstream::{Login, Registry, Settings, Tls, Upstream, Window};

/// The reason why there is no client, for display.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BuildError(pub(crate) String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

/// memcached's port, for servers without one.
const PORT: u16 = 11211;

/// With a shorter period, the querying thread would do nothing else.
const PERIOD_LEAST: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
enum Routes {
    File(PathBuf),
    Servers(Vec<String>),
    Text(String),
}

/// The settings of a new [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    routes: Routes,
    hash: String,
    default_route: String,
    settings: Settings,
    threads: usize,
    deadline: Option<Duration>,
    codec: Codec,
    limits: Limits,
    is_binary: bool,
    tls: Option<upstream::TlsOptions>,
    window: Option<Window>,
    sources: SourceSettings,
    discovery_period: Duration,
    deletes: Option<PathBuf>,
}

impl Default for Builder {
    /// One thread, no servers, no compression; times as in [`Settings`].
    fn default() -> Self {
        Self {
            routes: Routes::Servers(Vec::new()),
            hash: "Ch3".to_owned(),
            default_route: "/././".to_owned(),
            settings: Settings::default(),
            threads: 1,
            deadline: None,
            codec: Codec {
                compression: Compression::Off,
                threshold_bytes: 1024,
                value_bytes_max: 64 << 20,
            },
            limits: Limits { pending_max: 100_000, inbox_bytes_max: 64 << 20 },
            is_binary: false,
            tls: None,
            window: None,
            sources: SourceSettings::default(),
            discovery_period: Duration::from_secs(10),
            deletes: None,
        }
    }
}

impl Builder {
    /// One pool of these servers: `host`, `host:port`, `[v6]:port` or `unix:/path`; the default
    /// port is 11211. Or one source that names them, such as `srv:NAME` or `etcd:HOST:PORT/PREFIX`
    /// (docs/discovery.md), which is queried repeatedly, like names. Keys are sent as they are: one
    /// that begins with `/region/cluster/` has no routing prefix.
    #[must_use]
    pub fn servers<S: Into<String>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        self.routes = Routes::Servers(servers.into_iter().map(Into::into).collect());
        self
    }

    /// The hash of docs/routing.md that spreads keys over [`Self::servers`]; `Ch3` (mcrouter's) by
    /// default.
    #[must_use]
    pub fn hash(mut self, name: &str) -> Self {
        name.clone_into(&mut self.hash);
        self
    }

    /// Routes by the configuration of mcrouter or twemproxy in this file.
    #[must_use]
    pub fn config_file(mut self, path: impl AsRef<Path>) -> Self {
        self.routes = Routes::File(path.as_ref().to_path_buf());
        self
    }

    /// Routes by this text of a configuration of mcrouter.
    #[must_use]
    pub fn config_text(mut self, text: &str) -> Self {
        self.routes = Routes::Text(text.to_owned());
        self
    }

    /// The route of keys without a routing prefix in a configuration: `/region/cluster/`.
    #[must_use]
    pub fn default_route(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.default_route);
        self
    }

    /// The time limit of a server's answer; 1 s by default. A connection on which one takes longer
    /// is closed.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// The time limit of a connection attempt; 1 s by default.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Consecutive timeouts that knock a server out; 3 by default, 0 is never.
    #[must_use]
    pub const fn timeouts_until_tko(mut self, count: u32) -> Self {
        self.settings.timeouts_until_tko = count;
        self
    }

    /// The time limit of a whole call, including failovers; by default the sum for all its servers.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Driver threads, each with a connection to each server; 1 by default, at most 64.
    #[must_use]
    pub const fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Compresses values of `threshold_bytes` and more. Values in either compression can always be
    /// read. A client that calls [`Client::append`] or [`Client::prepend`] must not compress,
    /// because they make a compressed value unreadable.
    #[must_use]
    pub const fn compression(mut self, compression: Compression, threshold_bytes: usize) -> Self {
        self.codec.compression = compression;
        self.codec.threshold_bytes = threshold_bytes;
        self
    }

    /// The maximum length of a value that is sent or read, decompressed; 64 MiB by default.
    #[must_use]
    pub const fn value_bytes_max(mut self, bytes: usize) -> Self {
        self.codec.value_bytes_max = bytes;
        self
    }

    /// The maximum number of unanswered requests, of all callers of a thread together; more are
    /// refused as busy. 100,000 by default.
    #[must_use]
    pub const fn pending_max(mut self, count: usize) -> Self {
        self.limits.pending_max = count;
        self.settings.pending_max = count;
        self
    }

    /// Uses TLS for [`Self::servers`], and for servers of a configuration with that setting
    /// (`security_mech`).
    #[must_use]
    pub fn tls(mut self, options: upstream::TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// The name that servers' certificates must have, also sent as SNI; by default each one's host,
    /// as written. For servers reached by addresses that no certificate has. `hostnames` of a
    /// configuration's pool override it.
    #[must_use]
    pub fn server_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.settings.server_name);
        self
    }

    /// Uses the binary protocol for [`Self::servers`] that support no other. A configuration has
    /// its own setting (`"protocol": "binary"`).
    #[must_use]
    pub const fn binary(mut self) -> Self {
        self.is_binary = true;
        self
    }

    /// The login at the start of every connection: in text for servers with `-Y`, in the binary
    /// protocol by SASL (SCRAM-SHA-256 if available, else PLAIN). Without TLS, name and password
    /// can be read on the network.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.settings.login = Some(Login::new(user, password));
        self
    }

    /// Sends gets by UDP; one without an answer after this time has failed. Not with TLS or a
    /// login.
    #[must_use]
    pub const fn udp_gets(mut self, timeout: Duration) -> Self {
        self.settings.udp_gets = Some(timeout);
        self
    }

    /// The limit of outstanding requests over all servers, for each thread; others wait.
    #[must_use]
    pub const fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// The interval of queries to sources and for the addresses of names; 10 s by default, at least
    /// 10 ms.
    #[must_use]
    pub const fn discovery_period(mut self, period: Duration) -> Self {
        self.discovery_period = period;
        self
    }

    /// A folder that also stores the last answers of sources, for a start at which none answers.
    #[must_use]
    pub fn discovery_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.sources.dir = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Files for sources whose name has `+tls`, and the login to etcd.
    #[must_use]
    pub fn discovery_access(mut self, files: AccessFiles) -> Self {
        self.sources.access = files;
        self
    }

    /// Keeps failed deletes in this folder, answers them as if they had found nothing, and executes
    /// them when their server is back: the router's spool, for one client at a time.
    #[must_use]
    pub fn keep_deletes(mut self, folder: impl AsRef<Path>) -> Self {
        self.deletes = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Starts the client's threads. Connections are made on demand.
    ///
    /// # Errors
    ///
    /// The errors of the configuration, with their places; or a missing thread or descriptor.
    pub fn build(self) -> Result<Client, BuildError> {
        let sources = OwnSources::new(&self.sources);
        let sources = sources.map_err(|error| BuildError(error.to_string()))?;
        let planned = self.plan(None, &sources.discovery)?;
        let (plan, window) = (Arc::clone(&planned.plan), self.window);
        let registry = Registry::default();
        let count = u32::try_from(self.threads.clamp(1, 64)).unwrap_or(1);
        let spooler = self.spooler(&registry, count, &plan)?;
        let mut inboxes = Vec::new();
        let mut threads = Vec::new();
        for worker in 0..count {
            let inbox = Inbox::new(self.limits).map_err(|error| start_failed(&error))?;
            let core = || {
                let mut upstream = Upstream::new(worker, registry.clone(), now())?;
                if let Some(window) = window {
                    upstream.set_window(window);
                }
                let seed = RandomState::new().build_hasher().finish();
                let core = Core::new(upstream, host_id(), seed, |upstream| plan.tree(upstream))?;
                if let Some(spooler) = &spooler {
                    core.keep_deletes(spooler.deletes().clone())?;
                }
                Ok(core)
            };
            let started = core()
                .and_then(|core| driver_guard::start(Arc::clone(&inbox), spooler.clone(), core));
            inboxes.push(inbox);
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    inboxes.iter().for_each(|inbox| inbox.close(None));
                    return Err(start_failed(&error));
                }
            }
        }
        let (codec, deadline) = (self.codec, self.deadline);
        let inner = Arc::new(Inner::new(inboxes, threads, registry, codec, spooler));
        // The threads have it already.
        let load = || Ok(());
        watch(&inner, self, sources, &planned, load).map_err(|error| start_failed(&error))?;
        Ok(Client::of(inner, deadline))
    }

    /// The spooler of failed deletes, if enabled.
    fn spooler(
        &self,
        registry: &Registry,
        worker: u32,
        plan: &Plan,
    ) -> Result<Option<Arc<Spooler>>, BuildError> {
        let Some(folder) = &self.deletes else { return Ok(None) };
        let named = |error: std::io::Error| BuildError(format!("{}: {error}", folder.display()));
        let spool = Spool::open(folder, spool::Settings::default()).map_err(named)?;
        // An error of the disk appears in the calls that fail.
        let (registry, targets) = (registry.clone(), plan.targets());
        let spooler = Spooler::start(spool, None, registry, worker, true, targets, |_| {});
        spooler.map(|one| Some(Arc::new(one))).map_err(|error| start_failed(&error))
    }

    /// The interval of queries to sources.
    pub(crate) const fn period(&self) -> Duration {
        self.discovery_period
    }

    /// The parsed configuration, which follows the previous one.
    pub(crate) fn plan(
        &self,
        before: Option<&Plan>,
        discovery: &Discovery,
    ) -> Result<Planned, BuildError> {
        if self.discovery_period < PERIOD_LEAST {
            return Err(BuildError(format!(
                "discovery_period is {:?}; sources are asked every {PERIOD_LEAST:?} at the most",
                self.discovery_period
            )));
        }
        let mut params = Params::new(&self.default_route);
        params.set_number("hostid", i64::from(host_id()));
        let loaded = match &self.routes {
            Routes::File(path) => {
                let text = FileSources::read_path(path);
                let name = path.display().to_string();
                let text = text.map_err(|error| BuildError(format!("{name}: {error}")))?;
                Self::understand(&name, &text, path, &params, discovery)
            }
            Routes::Text(text) => {
                Self::understand("<text>", text, Path::new(""), &params, discovery)
            }
            Routes::Servers(servers) => {
                let text = pool_of(servers, &self.hash, self.is_binary, self.tls.is_some())?;
                Self::understand(NO_FILE, &text, Path::new(""), &params, discovery)
                    .map(without_prefixes)
            }
        };
        let loaded = loaded.map_err(|rejected| BuildError(reasons(&rejected)))?;
        if loaded.config.listeners.len() > 1 {
            let count = loaded.config.listeners.len();
            return Err(BuildError(format!(
                "{count} pools with addresses of their own; an application uses one"
            )));
        }
        let names = loaded.config.files.names();
        let sources: BTreeSet<&str> = names.filter(|name| is_source(name)).collect();
        discovery.retain(&sources);
        let has_sources = !sources.is_empty();
        let mut settings = self.settings.clone();
        // A server may send compressed values, which are shorter.
        let value_bytes_max = u32::try_from(self.codec.value_bytes_max).unwrap_or(u32::MAX);
        settings.value_bytes_max = value_bytes_max.min(proto::VALUE_BYTES_MAX);
        let tls = self.tls.clone().map(Tls::open).transpose();
        settings.tls = tls.map_err(|error| BuildError(error.to_string()))?;
        let workers = u32::try_from(self.threads).unwrap_or(1);
        let flags = TreeFlags { workers, ..TreeFlags::default() };
        let mut plan = Plan::new(loaded.config, settings, flags)
            .map_err(|flaws| BuildError(flaws.join("\n")))?;
        let hosts = plan.hosts();
        plan.set_addresses(&discovery.addresses(&hosts));
        if let Some(before) = before {
            plan.succeed(before);
        }
        let is_dynamic = has_sources || !hosts.is_empty();
        Ok(Planned { is_dynamic, plan: Arc::new(plan) })
    }

    fn understand(
        name: &str,
        text: &str,
        path: &Path,
        params: &Params,
        discovery: &Discovery,
    ) -> Result<Loaded, Rejected> {
        let mut files = FileSources::beside(path);
        discovery.read(&mut files, |sources| load(name, text, params, sources))
    }
}

/// The name of a text that the application did not write.
const NO_FILE: &str = "";

/// The reasons of a refusal, without places in a text that the application did not write.
fn reasons(rejected: &Rejected) -> String {
    let reason = |finding: &Diagnostic| {
        let place = format!("{}: error: ", rejected.files.place(finding.at));
        let text = finding.render(&rejected.files);
        match text.strip_prefix(&place) {
            Some(reason) if rejected.files.name(finding.at.file) == NO_FILE => reason.to_owned(),
            _ => text,
        }
    };
    rejected.findings.iter().map(reason).collect::<Vec<_>>().join("\n")
}

/// Puts the configuration in `planned` into use by `load`, and watches its servers from now on.
fn watch(
    inner: &Arc<Inner>,
    builder: Builder,
    sources: Arc<OwnSources>,
    planned: &Planned,
    load: impl FnOnce() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let period = builder.period();
    let weak = Arc::downgrade(inner);
    let replace =
        move |plan: &Arc<Plan>| weak.upgrade().is_some_and(|inner| inner.replace(plan).is_ok());
    let asked = Arc::clone(&sources);
    let plan = move |before: &Plan| {
        asked.discovery.refresh();
        builder.plan(Some(before), &asked.discovery).ok()
    };
    watch::start(&inner.watch, period, sources, planned, load, plan, replace)
}

impl Client {
    /// Starts the settings of a client.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Loads another configuration for all handles; running requests end in the old one. Settings
    /// of the client itself stay, and so do the folder and the files for sources, unless `builder`
    /// has others.
    ///
    /// # Errors
    ///
    /// The errors of the new routes; nothing changes then.
    pub fn replace_routes(&self, builder: &Builder) -> Result<(), BuildError> {
        let failed = |error: &dyn fmt::Display| BuildError(error.to_string());
        let (before, sources) = self.inner.watch.in_use();
        let sources = sources.with_settings(&builder.sources).map_err(|error| failed(&error))?;
        let planned = builder.plan(before.as_deref(), &sources.discovery)?;
        let load = || self.inner.replace(&planned.plan).map_err(std::io::Error::other);
        watch(&self.inner, builder.clone(), sources, &planned, load).map_err(|error| failed(&error))
    }
}

/// The configuration of [`pool_of`], whose keys have no routing prefixes: its caller never chose
/// mcrouter's, and a path of a URL is a usual key.
fn without_prefixes(mut loaded: Loaded) -> Loaded {
    for listener in &mut loaded.config.listeners {
        if let Entry::Prefixes(prefixes) = &listener.entry
            && let [only] = prefixes.as_slice()
        {
            listener.entry = Entry::Plain(only.route);
        }
    }
    loaded
}

fn start_failed(error: &std::io::Error) -> BuildError {
    BuildError(format!("the client cannot start: {error}"))
}

/// A configuration with one pool.
fn pool_of(
    servers: &[String],
    hash: &str,
    is_binary: bool,
    is_encrypted: bool,
) -> Result<String, BuildError> {
    if servers.is_empty() {
        return Err(BuildError("there are no servers".to_owned()));
    }
    let mut names = String::new();
    for server in servers {
        // This prefix marks a macro's name.
        let is_call = server.starts_with('@');
        if is_call || server.contains(|c: char| c.is_control() || matches!(c, '"' | '\\' | '%')) {
            return Err(BuildError(format!("{server:?} is not the address of a server")));
        }
        // Writing into a string does not fail.
        let separator = if names.is_empty() { "" } else { ", " };
        let _ = write!(names, "{separator}\"{}\"", with_port(server));
    }
    if !hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(BuildError(format!("{hash:?} is not the name of a hash")));
    }
    let protocol = if is_binary { "binary" } else { "ascii" };
    let security = if is_encrypted { "tls" } else { "plain" };
    let list = match servers {
        [source] if is_source(source) => format!(r#""inherit": {names}"#),
        _ => format!(r#""servers": [{names}]"#),
    };
    Ok(format!(
        r#"{{"pools": {{"servers": {{{list}, "protocol": "{protocol}",
                "security_mech": "{security}"}}}},
            "route": {{"type": "PoolRoute", "pool": "servers", "hash": "{hash}"}}}}"#
    ))
}

/// The address with memcached's port, if it has none.
fn with_port(server: &str) -> Cow<'_, str> {
    let is_host = !server.is_empty() && !server.starts_with("unix:") && !is_source(server);
    if is_host { hostport::with_port(server, PORT).into() } else { server.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_port_get_memcacheds() {
        let plan = |servers: &[&str]| {
            let builder = Builder::default().servers(servers.iter().copied());
            builder.plan(None, &Discovery::default()).map(|planned| planned.plan)
        };
        let plan_of = plan(&["127.0.0.1", "::1", "[::2]", "10.0.0.1:7", "unix:/a/b"]).unwrap();
        let names: Vec<_> =
            plan_of.targets().into_iter().map(|target| target.address.to_string()).collect();
        let sorted = ["10.0.0.1:7", "127.0.0.1:11211", "[::1]:11211", "[::2]:11211", "unix:/a/b"];
        assert_eq!(names, sorted);
        let refused = |server: &str| plan(&[server]).unwrap_err().to_string();
        assert_eq!(refused(""), "the server '' has no host");
        assert_eq!(refused("a:x"), "'x' of the server 'a:x' is not a port");
    }

    /// The names required in certificates, for the servers as sent to them.
    fn names(builder: Builder) -> Vec<String> {
        let plan = builder
            .tls(upstream::TlsOptions::default())
            .plan(None, &Discovery::default())
            .unwrap()
            .plan;
        plan.targets().into_iter().map(|target| target.settings.server_name).collect()
    }

    #[test]
    fn certificates_are_checked_for_the_common_or_own_server_name() {
        let servers = || Builder::default().servers(["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(names(servers()), ["127.0.0.1", "::1"]);
        assert_eq!(names(servers().server_name("cache.example")), ["cache.example"; 2]);
        let wrong = servers().server_name("no name").tls(upstream::TlsOptions::default());
        assert!(
            wrong
                .plan(None, &Discovery::default())
                .unwrap_err()
                .to_string()
                .contains("cannot have this name")
        );
    }
}
