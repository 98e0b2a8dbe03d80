//! The statements that prepare a database: rights of the invalidator's user, and the canary's
//! table.

use changes::keys::Rules;

use super::Settings;
use super::server::Server;
use crate::change_source::SourceError;

/// Server error codes for revoking an absent right: for a user, on a table, and without the user.
const NOTHING_TO_REVOKE: [u16; 3] = [1141, 1147, 1133];

/// The statements that prepare a database for this user and these rules; they may be run again.
#[must_use]
pub fn install(user: &str, rules: &Rules) -> Vec<String> {
    let user = account(user);
    let canary = canary_table(rules).map(|table| {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name VARCHAR(190) PRIMARY KEY, beat BIGINT NOT NULL)",
            quoted(table)
        )
    });
    let grants = rights(rules).into_iter().map(|right| format!("GRANT {right} TO {user}"));
    canary.into_iter().chain(grants).collect()
}

/// The statements that undo those of [`install`]. They also revoke rights that someone else
/// granted.
#[must_use]
pub fn remove(user: &str, rules: &Rules) -> Vec<String> {
    let user = account(user);
    let revokes = rights(rules).into_iter().map(|right| format!("REVOKE {right} FROM {user}"));
    let canary = canary_table(rules).map(|table| format!("DROP TABLE IF EXISTS {}", quoted(table)));
    revokes.chain(canary).collect()
}

/// Runs the statements at the first server that accepts writes; returns its name.
///
/// # Errors
///
/// When there is none, or a statement is refused.
pub async fn run(settings: &Settings, statements: &[String]) -> Result<String, SourceError> {
    let mut reasons = Vec::new();
    for name in &settings.servers {
        let mut server = match Server::connect(settings, name).await {
            Ok(server) => server,
            Err(SourceError::Lost(why)) => {
                reasons.push(why);
                continue;
            }
            Err(error) => return Err(error),
        };
        if server.text("SELECT @@GLOBAL.read_only").await? != "0" {
            reasons.push(format!("{name}: read_only is set"));
            continue;
        }
        for statement in statements {
            server.set_unless(statement, &NOTHING_TO_REVOKE).await?;
        }
        return Ok(name.clone());
    }
    Err(SourceError::Lost(reasons.join("; ")))
}

/// The user's needs: the log and its end, the descriptions of the tables, and the canary's row.
fn rights(rules: &Rules) -> Vec<String> {
    let mut rights = vec!["REPLICATION SLAVE, REPLICATION CLIENT ON *.*".to_owned()];
    let tables = rules.columns().into_keys();
    rights.extend(tables.map(|table| format!("SELECT ON {}", quoted(table))));
    let canary = canary_table(rules);
    rights.extend(canary.map(|table| format!("INSERT, DELETE ON {}", quoted(table))));
    rights
}

fn canary_table(rules: &Rules) -> Option<&str> {
    rules.canary.as_ref()?.table.as_deref()
}

/// A table's name, `database.name`, as SQL writes it.
pub(super) fn quoted(table: &str) -> String {
    let names = table.splitn(2, '.').map(|name| format!("`{}`", name.replace('`', "``")));
    names.collect::<Vec<_>>().join(".")
}

fn account(user: &str) -> String {
    format!("'{}'@'%'", user.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("shop.a`b.c"), "`shop`.`a``b.c`");
        assert_eq!(account(r"o'\x"), r"'o''\\x'@'%'");
    }
}
