//! The two databases: a primary in the master region, and its replica in the other region, by the
//! database's own replication.

mod mariadb;
mod postgres;
mod session;

pub(crate) use session::Session;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::folder::Folder;
use crate::process::Process;

/// The make of both databases.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Replication by transaction identifiers; the replica is delayed by `MASTER_DELAY`.
    #[default]
    Mariadb,
    /// Logical replication; the replica is delayed by the link between the regions.
    Postgresql,
}

impl Kind {
    /// The name in configurations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mariadb => "mariadb",
            Self::Postgresql => "postgresql",
        }
    }

    /// The name of the table in the invalidator's configuration.
    pub(crate) const fn schema(self) -> &'static str {
        match self {
            Self::Mariadb => "shop",
            Self::Postgresql => "public",
        }
    }

    /// Returns an error with the packages to install if programs are missing.
    pub(crate) fn check(self) -> Result<()> {
        let (is_there, package) = match self {
            Self::Mariadb => (mariadb::programs().is_some(), "mariadb-server"),
            Self::Postgresql => (postgres::programs().is_some(), "postgresql"),
        };
        if !is_there {
            bail!(
                "the demo runs {0} servers of its own, and the programs are not here. On Debian and Ubuntu:\n  \
                 apt-get install --no-install-recommends {package}\nor choose the other database with --database",
                self.name()
            );
        }
        Ok(())
    }
}

/// The tables, each of which is a kind of key.
pub(crate) const TABLES: [&str; 2] = ["items", "photos"];

/// The address and password of a connection to a database.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) password: String,
}

/// The user of every connection.
pub(crate) const USER: &str = "holdall";

/// The name of the database with the tables.
pub(crate) const NAME: &str = "shop";

/// A running database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) process: Process,
    pub(crate) options: ConnectOptions,
}

impl Database {
    /// Starts an empty one. `number` is unique among the servers.
    pub(crate) async fn start(
        kind: Kind,
        folder: &Folder,
        name: &str,
        number: u32,
        password: &str,
    ) -> Result<Self> {
        let folder = folder.below(name)?;
        let name = format!("{name}/database");
        let process = match kind {
            Kind::Mariadb => mariadb::start(&folder, &name, number, password).await?,
            Kind::Postgresql => postgres::start(&folder, &name, password).await?,
        };
        let options =
            ConnectOptions { kind, address: process.address, password: password.to_owned() };
        Ok(Self { process, options })
    }

    async fn all(&self, statements: &[String]) -> Result<()> {
        let mut session = Session::new(self.options.clone());
        for statement in statements {
            session.run(statement).await?;
        }
        Ok(())
    }

    /// Runs one statement.
    pub(crate) async fn run(&self, statement: &str) -> Result<()> {
        self.all(&[statement.to_owned()]).await
    }

    /// Creates the tables, with these numbers of rows.
    pub(crate) async fn fill(&self, rows: [u64; 2]) -> Result<()> {
        self.all(&match self.options.kind {
            Kind::Mariadb => mariadb::filling(rows),
            Kind::Postgresql => postgres::filling(rows),
        })
        .await
    }

    /// Makes it a replica of the database reachable at `primary`.
    pub(crate) async fn follow(&self, primary: SocketAddr) -> Result<()> {
        let password = &self.options.password;
        self.all(&match self.options.kind {
            Kind::Mariadb => mariadb::following(primary, password),
            Kind::Postgresql => postgres::following(primary, password),
        })
        .await
    }

    /// Delays replication; false if this database cannot.
    pub(crate) async fn lag(&self, delay: Duration) -> Result<bool> {
        match self.options.kind {
            Kind::Mariadb => self.all(&mariadb::lagging(delay)).await.map(|()| true),
            Kind::Postgresql => Ok(false),
        }
    }
}
