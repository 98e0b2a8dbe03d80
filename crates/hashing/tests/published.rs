//! Values published by the originals' own tests.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use hashing::{POOL_SIZE_MAX, Placement, furc_hash, jump_hash, spooky_hash32};

/// Every byte once, -128 first, as mcrouter's tests build it.
fn all_bytes() -> Vec<u8> {
    (0..=255_u8).map(|byte| byte.wrapping_add(128)).collect()
}

fn counts(placement: &Placement, keys: impl Iterator<Item = String>) -> Vec<u32> {
    let mut counts = vec![0; placement.servers() as usize];
    for key in keys {
        counts[placement.pick(key.as_bytes()) as usize] += 1;
    }
    counts
}

fn numbers(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|number| number.to_string())
}

fn my_keys(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("mykey:{number}"))
}

/// `mcrouter/lib/test/Ch3HashTest.cpp`; the last value is of mcrouter, run.
#[test]
fn ch3() {
    let mut bytes = all_bytes();
    for (key, pool, server) in [
        (&b"sample"[..], 100, 97),
        (b"sample", 1, 0),
        (b"", 100, 72),
        (b"", 1, 0),
        (b"", POOL_SIZE_MAX, 6_173_600),
        (b"sample", POOL_SIZE_MAX, 5_167_780),
        (&bytes, 99_999, 31_015),
        (b"key1", 5, 2),
    ] {
        assert_eq!(furc_hash(key, pool), server, "{} of {pool}", key.escape_ascii());
    }
    bytes.reverse();
    assert_eq!(furc_hash(&bytes, 99_999), 67_101);
    assert_eq!(counts(&Placement::ch3(3).unwrap(), numbers(1000)), [307, 342, 351]);
    assert_eq!(
        counts(&Placement::ch3(10).unwrap(), numbers(10_000)),
        [995, 955, 1046, 968, 1032, 972, 1016, 1038, 1010, 968]
    );
}

/// `mcrouter/lib/test/WeightedCh3HashFuncTest.cpp`.
#[test]
fn weighted_ch3() {
    let zero = Placement::weighted_ch3(&[0.0; 100]).unwrap();
    assert_eq!((zero.pick(b"sample"), zero.pick(b"")), (59, 45), "gives up after 32 servers");
    let full = Placement::weighted_ch3(&[1.0; 100]).unwrap();
    assert_eq!((full.pick(b"sample"), full.pick(b"")), (97, 72));
    let three = Placement::weighted_ch3(&[1.0, 1.0, 0.7]).unwrap();
    assert_eq!(counts(&three, numbers(1000)), [341, 371, 288]);
    let ten = [0.429, 0.541, 0.117, 0.998, 0.283, 0.065, 0.109, 0.042, 0.676, 0.943];
    assert_eq!(
        counts(&Placement::weighted_ch3(&ten).unwrap(), numbers(10_000)),
        [1016, 1252, 288, 2354, 661, 195, 247, 122, 1668, 2197]
    );
}

fn tags(count: u32) -> Vec<String> {
    (0..count).map(|server| format!("xxx.{server}.yy")).collect()
}

/// `mcrouter/lib/test/RendezvousHashTest.cpp`.
#[test]
fn rendezvous() {
    let three = Placement::rendezvous(&tags(3)).unwrap();
    let many = Placement::rendezvous(&tags(343)).unwrap();
    let all_bytes = all_bytes();
    for (key, of_three, of_many) in
        [(&b"sample"[..], 1, 45), (b"", 1, 291), (b"mykey", 1, 132), (&all_bytes, 1, 183)]
    {
        assert_eq!((three.pick(key), many.pick(key)), (of_three, of_many));
    }
    assert_eq!(counts(&three, my_keys(1000)), [337, 353, 310]);
    assert_eq!(
        counts(&Placement::rendezvous(&tags(10)).unwrap(), my_keys(10_000)),
        [947, 1026, 1028, 981, 1016, 970, 1013, 939, 1023, 1057]
    );
}

/// `mcrouter/lib/test/WeightedRendezvousHashTest.cpp`.
#[test]
fn weighted_rendezvous() {
    let pool = |weights: &[f64]| {
        let tags = tags(u32::try_from(weights.len()).unwrap());
        let servers: Vec<_> =
            tags.iter().zip(weights).map(|(tag, weight)| (tag, *weight)).collect();
        Placement::weighted_rendezvous(&servers).unwrap()
    };
    let (three, many) = (pool(&[1.0; 3]), pool(&[1.0; 343]));
    let all_bytes = all_bytes();
    for (key, of_three, of_many) in
        [(&b"sample"[..], 0, 115), (b"", 2, 279), (b"mykey", 1, 302), (&all_bytes, 1, 142)]
    {
        assert_eq!((three.pick(key), many.pick(key)), (of_three, of_many));
    }
    assert_eq!(counts(&three, my_keys(10_000)), [3409, 3360, 3231]);
    assert_eq!(counts(&pool(&[1.0, 0.5, 0.1]), my_keys(10_000)), [6292, 3118, 590]);
    assert_eq!(counts(&pool(&[1.0, 0.0, 0.5]), my_keys(10_000)), [6737, 0, 3263]);
    let ten = [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5];
    assert_eq!(
        counts(&pool(&ten), my_keys(10_000)),
        [1381, 1299, 1283, 1359, 1296, 667, 669, 665, 672, 709]
    );
}

/// `x:7:y` lives on server 7; text that is no number below the pool size is placed by Ch3
/// (`mcrouter/routes/ShardHashFunc.cpp`).
#[test]
fn const_shard() {
    let placement = Placement::const_shard(10).unwrap();
    assert_eq!(placement.pick(b"x:7:y"), 7);
    assert_eq!(placement.pick(b"x:07:y"), 7);
    for key in ["x:10:y", "x:7", "x", "x:a7:b"] {
        assert_eq!(placement.pick(key.as_bytes()), furc_hash(key.as_bytes(), 10), "{key}");
    }
}

/// The check value of the CRC catalogue, without its sign.
#[test]
fn crc32() {
    let placement = Placement::crc32(1000).unwrap();
    assert_eq!(placement.pick(b"123456789"), (0xcbf4_3926 & 0x7fff_ffff) % 1000);
}

/// Lamping and Veach's algorithm, with the vectors that its implementations share.
#[test]
fn jump() {
    for (hash, buckets, bucket) in [
        (1, 1, 0),
        (42, 57, 43),
        (0xdead_10cc, 1, 0),
        (0xdead_10cc, 666, 361),
        (256, 1024, 520),
        (0, 60, 0),
        (1, 60, 55),
        (2, 60, 46),
        (0, 0, 0),
    ] {
        assert_eq!(jump_hash(hash, buckets), bucket, "{hash} of {buckets}");
    }
}

/// Hashes from Bob Jenkins's `TestSpookyV2.cpp`, by the length of the first: short ones, the change
/// to long ones at 192 bytes, the longest.
#[rustfmt::skip]
const SPOOKY: [(usize, [u32; 7]); 7] = [
    (0, [0x6bf5_0919, 0x70de_1d26, 0xa2b3_7298, 0x35bc_5fbf, 0x8223_b279, 0x5bcb_315e, 0x53fe_88a1]),
    (7, [0xf9f1_a233, 0xee19_3982, 0x54f8_6f29, 0xc877_2d36, 0x9ed6_0886, 0x5f23_d1da, 0x1ed9_f474]),
    (14, [0xf2ef_0c89, 0x83ec_01f9, 0xf274_736c, 0x7e9a_c0df, 0xc7ae_d250, 0xb101_5811, 0xe234_70f5]),
    (21, [0x48ac_20c4, 0xe2ab_3cd5, 0x608f_8363, 0xd063_9e68, 0xc4e8_e7ab, 0x863c_7c5b, 0x4ea6_3579]),
    (28, [0x99ae_8622, 0x170c_658b, 0x149b_a493, 0x027b_ca7c, 0xe5cf_c8b6, 0xce01_d9d7, 0x1110_3330]),
    (189, [0x0394_c3b2, 0x11ef_bbae, 0xe13d_9e19, 0x77e0_12bd, 0x2d05_114c, 0xaecf_2ddd, 0xb2a2_b4aa]),
    (504, [0x27c2_e04b, 0x0b75_23bd, 0x0730_5776, 0xc6be_7503, 0x918f_a7c9, 0xaf2e_2cd9, 0x8204_6f8e]),
];

/// Message `n` is the first `n` bytes of 128, 129, ...
#[test]
fn spooky() {
    let bytes: Vec<_> = all_bytes().into_iter().cycle().take(512).collect();
    for (first, hashes) in SPOOKY {
        for (length, hash) in (first..).zip(hashes) {
            assert_eq!(spooky_hash32(&bytes[..length], 0), hash, "{length} bytes");
        }
    }
}
