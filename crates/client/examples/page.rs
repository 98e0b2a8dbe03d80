//! A page of a site whose database here is a replica: a gutter for failed servers, a pool shared by
//! the region's clusters, remote markers, dependent fetches, compression, deletes that are not
//! lost, gets by UDP.
//!
//!     for port in 11311 11312 11313; do cargo run -p holdall -- serve -p $port -U $port & done
//!     cargo run -p holdall-client --example page -- \
//!         127.0.0.1:11311 127.0.0.1:11312 127.0.0.1:11313
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use client::{Client, Compression, LoadError, LookAside, Markers, Source, block_on, together};

/// The time limit of an answer; a site uses less, but a busy laptop needs this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The routes of keys: keys shared by all clusters of the region by their prefix, others to the
/// cluster's own servers. While one of these does not answer, the gutter keeps its keys, for ten
/// seconds each.
fn routes(own: &str, region: &str, gutter: &str) -> String {
    format!(
        r#"{{
            "pools": {{
                "own": {{"servers": ["{own}"]}},
                "region": {{"servers": ["{region}"]}},
                "gutter": {{"servers": ["{gutter}"]}}
            }},
            "route": {{
                "type": "PrefixSelectorRoute",
                "policies": {{"remote:": "PoolRoute|region", "shared:": "PoolRoute|region"}},
                "wildcard": {{
                    "type": "FailoverWithExptimeRoute",
                    "normal": "PoolRoute|own",
                    "failover": ["PoolRoute|gutter"],
                    "failover_exptime": 10
                }}
            }}
        }}"#
    )
}

/// The site: its clients of the cache, and its databases.
struct Site {
    cache: Client,
    /// The same keys at the cluster's own server, by datagrams: a get needs no connection.
    datagrams: Client,
    rows: LookAside,
    markers: Markers,
}

impl Site {
    fn open(servers: &[String; 3], deletes: &Path) -> Result<Self, Box<dyn Error>> {
        let [own, region, gutter] = servers;
        let cache = Client::builder()
            .config_text(&routes(own, region, gutter))
            .compression(Compression::Zstd, 1024)
            .keep_deletes(deletes)
            .timeout(PATIENCE)
            .build()?;
        let datagrams = Client::builder().servers([own]).udp_gets(PATIENCE).build()?;
        let rows = cache.look_aside().exptime(300);
        // Longer than the replica's maximum lag.
        let markers = Markers::new(cache.clone(), "remote:", 300);
        Ok(Self { cache, datagrams, rows, markers })
    }

    /// A row, from the cache or else from the replica; from the master while a marker shows that
    /// the replica is behind.
    async fn row(&self, key: &str) -> Result<String, LoadError<std::io::Error>> {
        let load = |source: Source| async move { Ok(format!("{key} of {source:?}")) };
        self.rows.get_or_load_from(&self.markers, key, load).await
    }

    /// A user, and then the best friend that the user's row names: two rounds, however many users
    /// there are.
    async fn user_and_friend(
        &self,
        user: u32,
    ) -> Result<(String, String), LoadError<std::io::Error>> {
        let name = self.row(&format!("user:{user}")).await?;
        Ok((name, self.row(&format!("friend:{user}")).await?))
    }

    /// Writes a user to the master. The invalidator deletes key and marker when the replica has the
    /// write.
    async fn rename(&self, user: u32) -> Result<(), Box<dyn Error>> {
        let write = |_marker: Vec<u8>| async { Ok::<(), std::io::Error>(()) };
        let written = self.markers.write(format!("user:{user}"), write).await?;
        // The write has happened; the cache may still have failed.
        assert!(written.unmarked.is_none() && written.undeleted.is_none());
        Ok(())
    }
}

/// Runs the site; the servers are the cluster's own, the region's, and the gutter.
pub(crate) fn run(servers: &[String; 3], deletes: &Path) -> Result<(), Box<dyn Error>> {
    let site = Site::open(servers, deletes)?;
    block_on(async {
        for pair in together((1..=20).map(|user| site.user_and_friend(user))).await {
            let (name, friend) = pair?;
            assert!(name.ends_with("of Local") && friend.ends_with("of Local"));
        }
        println!("20 users and friends: {:?}", site.cache.look_aside_totals());
        site.rename(7).await?;
        println!("after a write: {}", site.row("user:7").await?);
        let text = "what many users see ".repeat(1000);
        site.cache.set("shared:text", &text, 300).await?;
        let shared = site.cache.get("shared:text").await?.ok_or("just stored")?;
        assert_eq!(shared.decode::<String>()?, text);
        println!("{} bytes are kept compressed", text.len());
        // A lost datagram is an error, not a miss.
        let row = site.datagrams.get("user:8").await?.ok_or("it was loaded")?;
        println!("by UDP: {}", row.decode::<String>()?);
        println!("deletes that wait for their server: {:?}", site.cache.kept_deletes());
        site.cache.close().await;
        site.datagrams.close().await;
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    let servers = <[String; 3]>::try_from(servers).map_err(|_| "three servers are needed")?;
    let deletes = std::env::temp_dir().join(format!("page-{}", std::process::id()));
    run(&servers, &deletes)?;
    std::fs::remove_dir_all(deletes)?;
    Ok(())
}
