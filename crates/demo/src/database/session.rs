//! One connection of an application to a database: opened on demand, dropped when it fails or takes
//! too long.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mysql_async::prelude::Queryable as _;
use tokio::time::timeout;
use tokio_postgres::NoTls;

use super::{ConnectOptions, Kind, NAME, USER};

/// The time limit of a statement; one of them fills the tables.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The time limit of a query of the load.
const QUERY_MAX: Duration = Duration::from_secs(2);

enum Connection {
    Mariadb(Box<mysql_async::Conn>),
    Postgres(tokio_postgres::Client),
}

/// A session that connects on first use, and again after a failure.
pub(crate) struct Session {
    options: ConnectOptions,
    connection: Option<Connection>,
}

/// A row: its version and its text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Row {
    pub(crate) version: u64,
    pub(crate) body: String,
}

impl Session {
    pub(crate) const fn new(options: ConnectOptions) -> Self {
        Self { options, connection: None }
    }

    async fn connected(&mut self) -> Result<Connection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let (address, password) = (self.options.address, &self.options.password);
        match self.options.kind {
            Kind::Mariadb => {
                let options = mysql_async::OptsBuilder::default()
                    .ip_or_hostname(address.ip().to_string())
                    .tcp_port(address.port())
                    .prefer_socket(false)
                    .user(Some(USER))
                    .pass(Some(password))
                    .db_name(Some(NAME));
                Ok(Connection::Mariadb(Box::new(mysql_async::Conn::new(options).await?)))
            }
            Kind::Postgresql => {
                let mut options = tokio_postgres::Config::new();
                options.host(address.ip().to_string()).port(address.port());
                // Each database is made in its own name, which the first connection to it does.
                options.user(USER).password(password).dbname(NAME);
                let client = match options.connect(NoTls).await {
                    Err(error) if error.code().is_some_and(|code| code.code() == "3D000") => {
                        let (first, runs) =
                            options.clone().dbname("postgres").connect(NoTls).await?;
                        let runs = tokio::spawn(runs);
                        first.batch_execute(&format!("CREATE DATABASE {NAME}")).await?;
                        runs.abort();
                        options.connect(NoTls).await?
                    }
                    connected => connected?,
                };
                let (client, runs) = client;
                // It ends with the client.
                tokio::spawn(runs);
                Ok(Connection::Postgres(client))
            }
        }
    }

    /// Runs a statement without a result.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<()> {
        let run = async {
            let mut connection = self.connected().await?;
            match &mut connection {
                Connection::Mariadb(connection) => connection.query_drop(statement).await?,
                Connection::Postgres(client) => client.batch_execute(statement).await?,
            }
            self.connection = Some(connection);
            anyhow::Ok(())
        };
        timeout(ANSWER_MAX, run).await.context("no answer")?.context(statement.to_owned())
    }

    /// Reads a row of `table`.
    pub(crate) async fn row(&mut self, table: &str, id: u64) -> Result<Row> {
        let id = i64::try_from(id)?;
        let query = async {
            let mut connection = self.connected().await?;
            let found: Option<(i64, String)> = match &mut connection {
                Connection::Mariadb(connection) => {
                    let text = format!("SELECT version, body FROM {table} WHERE id = ?");
                    connection.exec_first(text, (id,)).await?
                }
                Connection::Postgres(client) => {
                    let text = format!("SELECT version, body FROM {table} WHERE id = $1");
                    let row = client.query_opt(text.as_str(), &[&id]).await?;
                    row.map(|row| (row.get(0), row.get(1)))
                }
            };
            self.connection = Some(connection);
            let (version, body) = found.context("there is no such row")?;
            anyhow::Ok(Row { version: u64::try_from(version)?, body })
        };
        timeout(QUERY_MAX, query).await.context("the database does not answer")?
    }

    /// Sets a row's version, unless it has a later one.
    pub(crate) async fn write(&mut self, table: &str, id: u64, version: u64) -> Result<()> {
        let (id, version) = (i64::try_from(id)?, i64::try_from(version)?);
        let update = async {
            let mut connection = self.connected().await?;
            let changed = match &mut connection {
                Connection::Mariadb(connection) => {
                    let text =
                        format!("UPDATE {table} SET version = ? WHERE id = ? AND version < ?");
                    connection.exec_drop(text, (version, id, version)).await?;
                    connection.affected_rows()
                }
                Connection::Postgres(client) => {
                    let text =
                        format!("UPDATE {table} SET version = $1 WHERE id = $2 AND version < $1");
                    client.execute(text.as_str(), &[&version, &id]).await?
                }
            };
            self.connection = Some(connection);
            if changed != 1 {
                bail!("{changed} rows changed");
            }
            Ok(())
        };
        timeout(QUERY_MAX, update).await.context("the database does not answer")?
    }

    /// Writes a time, or reads the last one written.
    pub(crate) async fn pulse(&mut self, at: Option<i64>) -> Result<i64> {
        let beat = async {
            let mut connection = self.connected().await?;
            let found = match (&mut connection, at) {
                (Connection::Mariadb(connection), Some(at)) => {
                    connection.exec_drop("UPDATE pulse SET at = ? WHERE id = 0", (at,)).await?;
                    Some(at)
                }
                (Connection::Mariadb(connection), None) => {
                    connection.query_first("SELECT at FROM pulse WHERE id = 0").await?
                }
                (Connection::Postgres(client), Some(at)) => {
                    client.execute("UPDATE pulse SET at = $1 WHERE id = 0", &[&at]).await?;
                    Some(at)
                }
                (Connection::Postgres(client), None) => {
                    let row = client.query_opt("SELECT at FROM pulse WHERE id = 0", &[]).await?;
                    row.map(|row| row.get(0))
                }
            };
            self.connection = Some(connection);
            Ok(found.unwrap_or_default())
        };
        timeout(QUERY_MAX, beat).await.context("the database does not answer")?
    }
}
