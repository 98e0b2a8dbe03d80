//! From the configuration's text to what builds trees.

use std::path::Path;
use std::sync::Arc;

use client::{Plan, Target, host_id};
use routeconf::{FileSources, Params, load};

use crate::options::{Options, Source};
use crate::shared::Build;

/// The text of the configuration.
pub(crate) fn read(source: &Source) -> Result<Arc<str>, String> {
    match source {
        Source::Text(text) => Ok(text.as_str().into()),
        Source::File(path) => FileSources::read_path(path)
            .map(Into::into)
            .map_err(|error| format!("cannot read {}: {error}", path.display())),
    }
}

/// A configuration that can be used.
pub(crate) struct Configuration {
    pub(crate) build: Build,
    /// Its servers, as deletes that were kept name them.
    pub(crate) targets: Vec<Target>,
    /// What its author should know, a sentence each.
    pub(crate) warnings: Vec<String>,
    /// The files that it was read from.
    pub(crate) files: Vec<String>,
}

/// Understands `text`. What is wrong is told with file, line and column.
pub(crate) fn understand(
    text: &str,
    source: &Source,
    options: &Options,
) -> Result<Configuration, String> {
    let (name, path) = match source {
        Source::File(path) => (path.display().to_string(), path.as_path()),
        Source::Text(_) => ("<text>".to_owned(), Path::new("")),
    };
    let mut sources = FileSources::beside(path);
    let loaded =
        load(&name, text, &params(options), &mut sources).map_err(|rejected| rejected.render())?;
    let files = &loaded.config.files;
    let warnings = loaded.warnings.iter().map(|warning| warning.render(files)).collect();
    let files = files.names().map(str::to_owned).collect();
    let invalid_to_default = options.send_invalid_route_to_default;
    let plan = Plan::new(loaded.config, options.settings(), invalid_to_default)
        .map_err(|flaws| flaws.join("\n"))?;
    let targets = plan.targets();
    let build: Build = Arc::new(move |upstream| plan.tree(upstream));
    Ok(Configuration { build, targets, warnings, files })
}

fn params(options: &Options) -> Params {
    let mut params = Params::new(&options.route_prefix);
    params.set_number("hostid", i64::from(host_id()));
    params.set_number("num-proxies", i64::try_from(options.num_proxies).unwrap_or(i64::MAX));
    for (name, value) in &options.config_params {
        params.set_text(name, value);
    }
    params
}
