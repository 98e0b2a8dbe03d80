//! Batches in zstd blocks, to routers that support them and to routers that do not.

use std::net::SocketAddr;

use e2e::invalidator::Invalidator;
use testkit::{Kind, Launch, Router};

use crate::database::Database;
use crate::harness::{absent, cache, fill};

const ROWS: usize = 500;

/// Changes all rows; returns 1 if blocks were sent.
fn deletes_arrive(database: &Database, router: SocketAddr, cache: &testkit::Server) -> u64 {
    database.make("items", 0);
    let keys = format!("[keys.tables]\n\"{}\" = \"item:{{id}}\"", database.table("items"));
    let mut invalidator = Invalidator::new(&database.source(), &keys, &[router], "");
    invalidator.configure("compression = \"zstd\"\n");
    invalidator.start(&[]);
    let names: Vec<_> = (1..=ROWS).map(|row| format!("item:{row}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    fill(cache, &names);
    database.insert("items", u32::try_from(ROWS).unwrap(), 100);
    invalidator.until("cluster:c0:delivered", |count| count >= ROWS as u64);
    assert_eq!(absent(cache, &names), names);
    let is_compressed = invalidator.stat("cluster:c0:compressed").unwrap();
    // A batch that was refused as a block is sent again uncompressed.
    assert_eq!(invalidator.stat("cluster:c0:retried"), Some(0));
    is_compressed
}

#[test]
fn batches_are_compressed_for_routers() {
    for (name, make) in Database::BOTH {
        let cache = cache();
        let router = Router::over(&[cache.addr()], "\"PoolRoute|all\"", &[]);
        assert_eq!(deletes_arrive(&make(), router.addr(), &cache), 1, "{name}");
    }
}

#[test]
fn batches_to_servers_are_not_compressed() {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let cache = Launch::new(kind).start();
        assert_eq!(deletes_arrive(&Database::maria_db(), cache.addr(), &cache), 0, "{kind:?}");
    }
}
