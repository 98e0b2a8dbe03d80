//! From the text of a configuration to a plan for trees.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use discovery::{Discovery, Member, is_source};
use routeconf::ast::PoolAddress;
use routeconf::{FileSources, Params, Rejected, Sources, Variables, load};
use routes::{Plan, Target, VariableError, host_id};
use thiserror::Error;
use upstream::Address;

use crate::config_info::{ConfigInfo, RecordingSources};
use crate::dump::Snapshot;
use crate::options::{LoginFileError, Options, Source};
use crate::seen::{Seen, StampingSources};
use crate::shared::{Build, Read};
use crate::stats::files::Counted;

/// The reason why a configuration cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("--enable-flush-cmd: a flush would be of all pools' servers")]
    FlushOfAllPools,
    #[error("where pools listen cannot change while the proxy runs")]
    ListensMoved,
    #[error(transparent)]
    Login(#[from] LoginFileError),
    /// `--serve-cluster` names a missing pool.
    #[error("--serve-cluster: there is no pool '{0}'")]
    NoCluster(String),
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("cannot read {}: {error}", path.display())]
    Unread { path: PathBuf, error: io::Error },
    /// The errors of the tree of routes, each with its place.
    #[error("{}", .0.join("\n"))]
    Unusable(Vec<String>),
    /// The file of runtime variables.
    #[error("{file}: {error}")]
    Variables { file: String, error: VariablesError },
}

/// The reason why the file of runtime variables cannot be used.
#[derive(Debug, Error)]
pub(crate) enum VariablesError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Value(#[from] VariableError),
}

/// The text of the configuration.
fn text(source: &Source) -> Result<Arc<str>, ConfigError> {
    match source {
        Source::Text(text) => Ok(text.as_str().into()),
        Source::File(path) => FileSources::read_path(path)
            .map(Into::into)
            .map_err(|error| ConfigError::Unread { path: path.clone(), error }),
    }
}

/// A configuration that can be used.
pub(crate) struct Configuration {
    pub(crate) read: Read,
    /// The plan from which `read` builds trees.
    pub(crate) plan: Arc<Plan>,
    /// Its servers with their addresses, as kept deletes name them.
    pub(crate) targets: Vec<Target>,
    /// Warnings for its author, a line of the log each.
    pub(crate) warnings: Vec<String>,
    /// Its servers come from a source, or have names whose addresses may change.
    pub(crate) is_dynamic: bool,
    /// The addresses to listen on, one for each of its listeners.
    pub(crate) listens: Vec<PoolAddress>,
    /// The texts from which it was read.
    pub(crate) snapshot: Snapshot,
}

impl Configuration {
    /// Returns true if it equals the one with this plan and these servers. Comparing the servers is
    /// not enough: one may have joined another pool, or have changed its place, name or tag there.
    pub(crate) fn is_same(&self, plan: &Plan, targets: &[Target]) -> bool {
        self.plan.config() == plan.config() && self.targets == targets
    }
}

/// Reads and parses configurations. Errors name file, line and column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) options: &'a Options,
    pub(crate) tls: Option<&'a upstream::Tls>,
    pub(crate) discovery: &'a Discovery,
    /// Pools with statistics.
    pub(crate) counted: &'a Counted,
}

impl Reader<'_> {
    /// Reads the present configuration, which follows the previous one. Adds the files that it
    /// imports, or tries to, to `seen`.
    pub(crate) fn read(
        &self,
        before: Option<&Plan>,
        seen: &mut Seen,
    ) -> Result<Configuration, ConfigError> {
        let path = match self.source {
            Source::File(path) => path.as_path(),
            Source::Text(_) => Path::new(""),
        };
        let files = StampingSources { files: FileSources::beside(path), seen };
        understand(self, &text(self.source)?, files, before)
    }

    /// Reads the kept configuration. Settings of the command line are not taken from there.
    pub(crate) fn read_kept(&self, kept: Snapshot) -> Result<Configuration, ConfigError> {
        let text = match self.source {
            Source::File(_) => Arc::clone(&kept.main),
            Source::Text(text) => text.as_str().into(),
        };
        understand(self, &text, kept, None)
    }
}

fn understand(
    reader: &Reader<'_>,
    text: &Arc<str>,
    mut files: impl Sources,
    before: Option<&Plan>,
) -> Result<Configuration, ConfigError> {
    let Reader { source, options, tls, discovery, counted } = *reader;
    let name = match source {
        Source::File(path) => path.display().to_string(),
        Source::Text(_) => "<text>".to_owned(),
    };
    let params = params(options);
    let (loaded, imports) = discovery.read(&mut files, |sources| {
        let mut sources = RecordingSources { sources, read: BTreeMap::new() };
        let loaded = load(&name, text, &params, &mut sources);
        (loaded, sources.read)
    });
    let loaded = loaded?;
    let files = &loaded.config.files;
    let asked: BTreeSet<&str> = files.names().filter(|name| is_source(name)).collect();
    discovery.retain(&asked);
    let is_discovered = !asked.is_empty();
    let mut warnings: Vec<String> =
        loaded.warnings.iter().map(|warning| warning_line(&warning.render(files))).collect();
    let info = Arc::new(ConfigInfo::new(text, &imports, &loaded.config, &params));
    let snapshot = Snapshot { main: Arc::clone(text), imports };
    let flags = options.routing.tree(options.num_proxies);
    let mut plan =
        Plan::new(loaded.config, options.settings(tls)?, flags).map_err(ConfigError::Unusable)?;
    plan.set_addresses(&discovery.addresses(&plan.hosts()));
    if let Some(before) = before {
        plan.succeed(before);
    }
    let fails = |why| format!("warning: {why}; its requests fail until the name resolves");
    warnings.extend(plan.not_found().into_iter().map(fails));
    plan.count_pools(counted.clone());
    if let Some(path) = &options.runtime_vars_file {
        let name = path.display().to_string();
        let wrong = |error| ConfigError::Variables { file: name.clone(), error };
        let text = FileSources::read_path(path).map_err(|error| wrong(error.into()))?;
        let variables = Variables::parse(&name, &text)?;
        plan.set_variables(variables).map_err(|error| wrong(error.into()))?;
    }
    warnings.extend(plan.unusable_variables().iter().map(|warning| warning_line(warning)));
    let cluster = match &options.serve_cluster {
        None => None,
        Some(name) => match plan.servers_of(name) {
            None => return Err(ConfigError::NoCluster(name.clone())),
            Some(servers) => Some(servers.iter().filter_map(member).collect()),
        },
    };
    let listeners = &plan.config().listeners;
    let listens: Vec<_> = listeners.iter().filter_map(|listener| listener.listen.clone()).collect();
    if listens.len() > 1 && options.enable_flush_cmd {
        return Err(ConfigError::FlushOfAllPools);
    }
    let targets = plan.targets();
    let names = targets.iter().map(|target| (target.address.clone(), target.name.clone()));
    let names = Arc::new(names.collect());
    let is_dynamic = !plan.hosts().is_empty() || is_discovered;
    let plan = Arc::new(plan);
    let of_plan = Arc::clone(&plan);
    let build: Build = Arc::new(move |upstream| of_plan.tree(upstream));
    let read = Read { build, cluster, names, text: Arc::clone(text), info };
    Ok(Configuration { read, plan, targets, warnings, is_dynamic, listens, snapshot })
}

/// A warning about a place of a file, as the log takes warnings.
fn warning_line(warning: &str) -> String {
    format!("warning: {}", warning.replacen(": warning: ", ": ", 1))
}

/// A server for `config get cluster`: its current address, and its name.
fn member((name, address): &(String, Address)) -> Option<Member> {
    let Address::Tcp(address) = address else { return None };
    Some(Member::from(*address).named(Some(name)))
}

fn params(options: &Options) -> Params {
    let mut params = Params::new(&options.route_prefix);
    params.set_number("hostid", i64::from(host_id()));
    params.set_number("num-proxies", i64::try_from(options.num_proxies).unwrap_or(i64::MAX));
    for (name, value) in options.values() {
        params.set_text(&format!("mcr_opts-{name}"), &value);
    }
    for (name, value) in &options.config_params {
        params.set_text(name, value);
    }
    params
}
