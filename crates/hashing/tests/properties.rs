//! Properties of every key and pool: the index lies within the pool, and few keys move when a pool
//! grows.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use hashing::{KeyHash, Placement};
use proptest::prelude::*;

fn placements(servers: usize) -> Vec<Placement> {
    let names: Vec<_> = (0..servers).map(|server| format!("server-{server}")).collect();
    let named: Vec<_> = names.iter().cloned().zip((1..4).cycle()).collect();
    let weights: Vec<_> = names.iter().map(|name| (name, 0.5)).collect();
    let hosts: Vec<_> = names.iter().map(|name| (name.as_str(), 11212)).collect();
    let mut all = vec![
        Placement::ch3(servers),
        Placement::crc32(servers),
        Placement::const_shard(servers),
        Placement::weighted_ch3(&vec![0.4; servers]),
        Placement::rendezvous(&names),
        Placement::weighted_rendezvous(&weights),
        Placement::jump(servers, 7),
    ];
    for (_, hash) in KeyHash::ALL {
        all.push(Placement::modula(servers, hash));
        all.push(Placement::ketama(&hosts, hash));
        all.push(Placement::twemproxy_ketama(&named, hash));
        all.push(Placement::twemproxy_modula(&named, hash));
    }
    all.into_iter().map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_has_a_server(
        servers in 1_usize..40,
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        salt in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        for placement in placements(servers) {
            for key in &keys {
                prop_assert!(placement.pick(key) < placement.servers());
                prop_assert!(placement.pick_salted(key, &salt) < placement.servers());
            }
        }
    }
}

/// A placement's consistency. A margin of a hundredth: 20,000 keys vary by less than that.
#[test]
fn an_added_server_takes_its_share_and_no_other_key_moves() {
    let keys = 20_000_u32;
    let names = |servers: u32| (0..servers).map(|server| format!("s{server}")).collect::<Vec<_>>();
    let named = |servers| names(servers).into_iter().map(|name| (name, 1)).collect::<Vec<_>>();
    type Make<'m> = Box<dyn Fn(u32) -> Placement + 'm>;
    let makers: [(&str, Make<'_>); 4] = [
        ("Ch3", Box::new(|servers| Placement::ch3(servers as usize).unwrap())),
        ("jump", Box::new(|servers| Placement::jump(servers as usize, 0).unwrap())),
        ("Rendezvous", Box::new(move |servers| Placement::rendezvous(&names(servers)).unwrap())),
        (
            "ketama",
            Box::new(move |servers| {
                Placement::twemproxy_ketama(&named(servers), KeyHash::Md5).unwrap()
            }),
        ),
    ];
    for (name, make) in makers {
        let (old, new) = (make(19), make(20));
        let mut moved = 0;
        for key in 0..keys {
            let key = format!("key:{key}");
            let (from, to) = (old.pick(key.as_bytes()), new.pick(key.as_bytes()));
            assert!(from == to || to == 19, "{name}: {key} went from {from} to {to}");
            moved += u32::from(from != to);
        }
        let share = f64::from(moved) / f64::from(keys);
        assert!((0.03..0.07).contains(&share), "{name}: {share}");
    }
}
