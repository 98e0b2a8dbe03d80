//! The invalidators' configuration: one for each region with a database.

use toml::{Table, Value};

use crate::topology::{Database, DatabaseKind, Region, Templates, Topology};

/// The port of an invalidator's metrics.
pub(crate) const STATUS_PORT: u16 = 5180;

/// The settings that depend on the kind of host.
#[derive(Clone, Copy, Debug)]
pub struct Places<'p> {
    /// The file with the database's password.
    pub password_file: &'p str,
    /// The folder of the checkpoint.
    pub folder: &'p str,
    /// The address of the metrics: `host:port`.
    pub status: &'p str,
}

/// The configuration of `region`'s invalidator. `routers` returns the `host:port` of a cluster's
/// routers.
#[must_use]
pub fn invalidator(
    topology: &Topology,
    region: &Region,
    database: &Database,
    routers: impl Fn(&str) -> Vec<String>,
    places: &Places<'_>,
) -> String {
    let mut source = Table::new();
    source.insert("name".into(), region.name.clone().into());
    source.insert("kind".into(), database.kind.name().into());
    source.insert("servers".into(), strings(&database.servers));
    source.insert("user".into(), database.user.clone().into());
    source.insert("password_file".into(), places.password_file.into());
    let sslmode = database.sslmode.map(|mode| mode.name().to_owned());
    for (name, value) in [("sslmode", &sslmode), ("sslrootcert", &database.sslrootcert)] {
        if let Some(value) = value {
            source.insert(name.into(), value.clone().into());
        }
    }
    match database.kind {
        DatabaseKind::Postgresql => {
            source.insert("database".into(), database.database.clone().unwrap_or_default().into());
            source.insert("slot".into(), database.slot.clone().into());
            source.insert("publication".into(), database.publication.clone().into());
        }
        DatabaseKind::MariaDb | DatabaseKind::MySql => {
            source.insert(
                "server_id".into(),
                i64::from(database.server_id.unwrap_or_default()).into(),
            );
        }
    }
    let tables: Table = topology
        .keys
        .iter()
        .map(|(table, templates)| {
            let templates = match templates {
                Templates::One(template) => template.clone().into(),
                Templates::Several(templates) => strings(templates),
            };
            (table.clone(), templates)
        })
        .collect();
    let clusters: Vec<Value> = region
        .clusters
        .iter()
        .map(|cluster| {
            let mut table = Table::new();
            table.insert("name".into(), cluster.name.clone().into());
            table.insert("routers".into(), strings(&routers(&cluster.name)));
            Value::Table(table)
        })
        .collect();
    let mut config = Table::new();
    config.insert(
        "checkpoint".into(),
        format!("{}/{}.checkpoint", places.folder, region.name).into(),
    );
    config.insert("status".into(), places.status.into());
    config.insert("source".into(), source.into());
    config.insert("keys".into(), Table::from_iter([("tables".to_owned(), tables.into())]).into());
    config.insert("cluster".into(), clusters.into());
    toml::to_string_pretty(&config).unwrap_or_default()
}

fn strings(texts: &[String]) -> Value {
    texts.iter().cloned().map(Value::from).collect::<Vec<_>>().into()
}
