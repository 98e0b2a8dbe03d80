//! Reads the generated configurations with the readers of the programs that get them.

use std::path::Path;

use ::invalidator::config::Config;
use routeconf::{MemorySources, Params};

use crate::PlanError;
use crate::routes::prefix;
use crate::topology::Region;

/// The text, if every router of `region` accepts it.
pub(crate) fn by_routers(region: &Region, text: String) -> Result<String, PlanError> {
    for cluster in &region.clusters {
        let params = Params::new(&prefix(region, cluster));
        let loaded = routeconf::load("routes.json", &text, &params, &mut MemorySources::default());
        loaded.map_err(|rejected| refused(region, "routers", &rejected))?;
    }
    Ok(text)
}

/// The text, if the invalidator of `region` accepts it.
pub(crate) fn by_invalidator(region: &Region, text: String) -> Result<String, PlanError> {
    let read = Config::parse(Path::new("invalidate.toml"), &text);
    read.map_err(|error| refused(region, "invalidator", &error))?;
    Ok(text)
}

fn refused(region: &Region, who: &'static str, why: &dyn std::fmt::Display) -> PlanError {
    PlanError::Configuration { region: region.name.clone(), who, why: why.to_string() }
}
