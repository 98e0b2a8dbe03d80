//! The statements that prepare a database: publication, slot, the canary's table, and an event
//! trigger that writes changes into the log that it does not show otherwise.
//!
//! The trigger compares the parts of the followed tables before and after each definition
//! statement, and writes a message for each table that lost something (`install.sql`). All of it is
//! in a schema named after the slot, so invalidators of one database do not share it.

use changes::keys::Rules;

use super::connection::{Connection, OTHERS_MAX, identifier, literal};
use super::failure::Failure;
use super::settings::Settings;
use crate::change_source::SourceError;

/// Marks the installed objects, so that the removal leaves all others unchanged.
const MARK: &str = "made by holdall invalidate setup";

/// The last line of the event trigger's comment, after the tables. Its number grows when the
/// trigger reports more changes.
pub(super) const VERSION: &str = "version 3";

/// The longest slot name that the schema's name can include, in bytes: PostgreSQL cuts names at 63.
const SLOT_BYTES_MAX: usize = 47;

/// The reason why there are no statements.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The slot's name is too long for the names derived from it.
    #[error("source.slot: {0} has more than {max} bytes", max = SLOT_BYTES_MAX)]
    SlotTooLong(String),
}

/// The prefix of messages for the invalidator of this slot.
pub(super) fn message_prefix(slot: &str) -> String {
    format!("holdall-ddl:{slot}")
}

/// The schema, which is also the name of the triggers.
fn schema(slot: &str) -> String {
    format!("holdall_{slot}")
}

/// A query for the tables whose changes the event trigger reports, one per line, and [`VERSION`];
/// empty if the trigger is absent or disabled, or if event triggers are off for the server, the
/// database or a role.
pub(super) fn told_tables(slot: &str) -> String {
    let schema = schema(slot);
    format!(
        "SELECT obj_description(e.oid, 'pg_event_trigger') FROM pg_event_trigger e WHERE evtname = {} \
         AND 2 = (SELECT count(*) FROM pg_event_trigger WHERE evtenabled IN ('O', 'A') AND evtname IN ({0}, {})) \
         AND NOT {}",
        literal(&schema),
        literal(&format!("{schema}_rewrite")),
        is_off("event_triggers")
    )
}

/// A condition: the setting is off for new sessions of the server, of this database or of a role.
/// False for settings that the server does not have. True if this session's role has a value of its
/// own: it hides the server's.
pub(super) fn is_off(setting: &str) -> String {
    // A role's or database's setting has the text of its statement.
    format!(
        "(COALESCE(current_setting('{setting}', true) = 'off', false) \
         OR EXISTS (SELECT FROM pg_db_role_setting, unnest(setconfig) one \
         WHERE setdatabase IN (SELECT 0 UNION ALL \
         SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND (one ~* '^{setting}=(of|f|n|0)' OR one ~* '^{setting}=' \
         AND setrole = (SELECT oid FROM pg_roles WHERE rolname = session_user))))"
    )
}

/// The statements that prepare a database for these settings and rules; they may be run again.
///
/// # Errors
///
/// When the slot's name is too long.
pub fn install(settings: &Settings, rules: &Rules) -> Result<String, SetupError> {
    let canary = canary_table(rules).map(|table| {
        let (quoted, user) = (quoted(table), identifier(&settings.user));
        format!(
            "-- The canary's row.\nDO $$ BEGIN\n    IF to_regclass({}) IS NULL THEN\n        \
             CREATE TABLE {quoted} (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL);\n        \
             COMMENT ON TABLE {quoted} IS {};\n    END IF;\nEND $$;\n\
             GRANT SELECT, INSERT, UPDATE ON {quoted} TO {user};\n",
            literal(&quoted),
            literal(MARK)
        )
    });
    let published = rules.columns().into_keys().map(|table| literal(&quoted(table)));
    let followed = rules.tables.keys().map(|table| literal(table));
    let told: Vec<&str> = rules.tables.keys().map(String::as_str).chain([VERSION]).collect();
    let more = [
        ("@canary@", canary.unwrap_or_default()),
        ("@published@", published.collect::<Vec<_>>().join(", ")),
        ("@followed@", followed.collect::<Vec<_>>().join(", ")),
        ("@told@", literal(&told.join("\n"))),
    ];
    filled(include_str!("install.sql"), settings, &more)
}

/// The statements that undo those of [`install`].
///
/// # Errors
///
/// When the slot's name is too long.
pub fn remove(settings: &Settings, rules: &Rules) -> Result<String, SetupError> {
    let canary = canary_table(rules).map(|table| {
        let quoted = quoted(table);
        format!(
            "\nDO $$ BEGIN\n    IF pg_catalog.obj_description(to_regclass({})::oid, 'pg_class') = {} \
             THEN\n        DROP TABLE {quoted};\n    END IF;\nEND $$;\n",
            literal(&quoted),
            literal(MARK)
        )
    });
    filled(include_str!("remove.sql"), settings, &[("@canary@", canary.unwrap_or_default())])
}

/// Runs the statements at the first server that accepts writes; returns its name.
///
/// # Errors
///
/// When there is none, or a statement is refused.
pub async fn run(settings: &Settings, statements: &str) -> Result<String, SourceError> {
    let mut reasons = Vec::new();
    for server in &settings.servers {
        match run_at(settings, server, statements).await.map_err(|failure| failure.at(server)) {
            Ok(true) => return Ok(server.clone()),
            Ok(false) => reasons.push(format!("{server}: it is a standby")),
            Err(SourceError::Lost(why)) => reasons.push(why),
            Err(error) => return Err(error),
        }
    }
    Err(SourceError::Lost(reasons.join("; ")))
}

/// False at a standby.
async fn run_at(settings: &Settings, server: &str, statements: &str) -> Result<bool, Failure> {
    let mut connection = Connection::open(settings, server, false).await?;
    if connection.text("SELECT pg_is_in_recovery()::text").await? == "true" {
        return Ok(false);
    }
    connection.rows_within(statements, OTHERS_MAX).await.map(|_| true)
}

fn canary_table(rules: &Rules) -> Option<&str> {
    rules.canary.as_ref()?.table.as_deref()
}

/// A table's name, `schema.name`, as SQL writes it.
fn quoted(table: &str) -> String {
    let (schema, name) = table.split_once('.').unwrap_or(("public", table));
    format!("{}.{}", identifier(schema), identifier(name))
}

/// The text with its placeholders replaced by the settings' names and those of `more`.
fn filled(text: &str, settings: &Settings, more: &[(&str, String)]) -> Result<String, SetupError> {
    let (slot, publication) = (&settings.slot, &settings.publication);
    if slot.len() > SLOT_BYTES_MAX {
        return Err(SetupError::SlotTooLong(slot.clone()));
    }
    let schema = schema(slot);
    let values = [
        ("@schema@", identifier(&schema)),
        ("@schema_text@", literal(&schema)),
        ("@rewrite@", identifier(&format!("{schema}_rewrite"))),
        ("@slot@", literal(slot)),
        ("@publication@", identifier(publication)),
        ("@publication_text@", literal(publication)),
        ("@prefix@", literal(&message_prefix(slot))),
        ("@mark@", literal(MARK)),
    ];
    let all = values.iter().chain(more);
    Ok(all.fold(text.to_owned(), |text, (name, value)| text.replace(name, value)))
}
