//! The choice of the servers that keep the mark of a server with pending deletes. Each router
//! chooses independently, and all routers with the same pools must choose the same servers.

use std::collections::BTreeMap;

use upstream::Address;

/// Servers of a pool that keep the marks of one of them.
const PEERS: usize = 3;

/// Servers of other pools that keep the marks of a server that has its pool for itself.
const PEERS_OF_LONE: usize = 8;

/// A pool's name and the names of its servers, in order.
pub(super) type Pool<'a> = (&'a str, Vec<&'a String>);

/// The servers of a pool that keep the marks of `name`. All routers with this pool choose the same.
pub(super) fn in_pool(name: &str, pool: &[&String]) -> Vec<String> {
    let others = by_rendezvous(name, pool).filter(|other| other.as_str() != name);
    others.take(PEERS).map(|other| (*other).clone()).collect()
}

/// The servers that keep the marks of a server without others in its pools: one of each other pool.
/// All routers with that pool choose the same one, so two routers see each other's marks if they
/// have a pool in common. If there are more pools than needed, the names decide.
pub(super) fn of_lone(
    name: &str,
    pools: &[Pool<'_>],
    addresses: &BTreeMap<String, Address>,
) -> Vec<String> {
    let names: Vec<&str> = pools.iter().map(|(pool, _)| *pool).collect();
    let order = hashing::rendezvous_order(name.as_bytes(), &names);
    // The same server under another name is just as unreachable.
    let is_other = |other: &&&String| addresses.get(other.as_str()) != addresses.get(name);
    let mut peers = Vec::new();
    for (_, servers) in order.into_iter().filter_map(|place| pools.get(place as usize)) {
        if peers.len() == PEERS_OF_LONE {
            break;
        }
        let Some(peer) = by_rendezvous(name, servers).find(is_other) else { continue };
        if !peers.contains(*peer) {
            peers.push((*peer).clone());
        }
    }
    peers
}

fn by_rendezvous<'a, 'n>(
    name: &str,
    servers: &'a [&'n String],
) -> impl Iterator<Item = &'a &'n String> {
    let order = hashing::rendezvous_order(name.as_bytes(), servers);
    order.into_iter().filter_map(|place| servers.get(place as usize))
}
