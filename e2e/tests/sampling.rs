//! Estimates of a real server from samples of a real load: hot keys, working set, miss-ratio curve,
//! latencies.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Rng, Server, Wire};

/// A group of statistics by name.
fn group(server: &Server, name: &str) -> BTreeMap<String, String> {
    server.stats(name).into_iter().collect()
}

fn float(group: &BTreeMap<String, String>, name: &str) -> f64 {
    group.get(name).unwrap_or_else(|| panic!("no {name} in {group:?}")).parse().unwrap()
}

/// Gets the keys from `next`, 50 at a time on each of four connections, for this long.
fn gets(server: &Server, length: Duration, next: impl Fn(&mut Rng) -> String + Sync) {
    thread::scope(|scope| {
        for number in 0..4u64 {
            let next = &next;
            scope.spawn(move || {
                let (mut wire, mut rng) = (server.connect(), Rng::new(number + 1));
                let end = Instant::now() + length;
                while Instant::now() < end {
                    let mut request: String =
                        (0..50).map(|_| format!("get {}\r\n", next(&mut rng))).collect();
                    request.push_str("mn\r\n");
                    wire.send(request.as_bytes());
                    wire.read_until(b"MN\r\n");
                }
            });
        }
    });
}

fn store_all(wire: &mut Wire, keys: std::ops::Range<usize>, value_len: impl Fn(usize) -> usize) {
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(100) {
        let mut request = Vec::new();
        for &key in some {
            let value = "v".repeat(value_len(key));
            let set = format!("set {} 0 0 {} noreply\r\n{value}\r\n", name_of(key), value.len());
            request.extend_from_slice(set.as_bytes());
        }
        request.extend_from_slice(b"mn\r\n");
        wire.send(&request);
        wire.read_until(b"MN\r\n");
    }
}

fn name_of(key: usize) -> String {
    let family = if key.is_multiple_of(4) { "few" } else { "many" };
    format!("{family}:{key}")
}

#[test]
fn a_hot_key_is_found_within_a_second() {
    let server = Server::holdall(&["-m", "64", "-t", "2"]);
    store_all(&mut server.connect(), 0..20_000, |_| 64);
    server.connect().expect(b"set hot/\x01key 0 0 1\r\nv\r\n", b"STORED\r\n");
    let cold = |rng: &mut Rng| name_of(rng.below(20_000));
    gets(&server, Duration::from_secs(2), cold);
    let before = group(&server, "hotkeys");
    assert!(
        before
            .get("hotkeys:1:share_ratio")
            .is_none_or(|share| share.parse::<f64>().unwrap() < 0.05),
        "{before:?}"
    );
    let hot = |rng: &mut Rng| if rng.one_in(5) { "hot/\x01key".into() } else { cold(rng) };
    gets(&server, Duration::from_secs(1), hot);
    let after = group(&server, "hotkeys");
    eprintln!("{after:?}");
    assert_eq!(after["hotkeys:1:key"], "hot%2F%01key");
    gets(&server, Duration::from_secs(2), hot);
    let later = group(&server, "hotkeys");
    assert_eq!(later["hotkeys:1:key"], "hot%2F%01key");
    let share = float(&later, "hotkeys:1:share_ratio");
    assert!((0.15..0.25).contains(&share), "{share}");

    let latency = group(&server, "latency");
    let (p50, p99) =
        (float(&latency, "latency:get:p50_seconds"), float(&latency, "latency:get:p99_seconds"));
    eprintln!("{latency:?}");
    assert!(p50 > 0.0 && p50 <= p99 && p99 < 10.0);
    assert!(float(&latency, "latency:set:requests") > 0.0);
}

#[test]
fn the_working_set_estimate_is_within_five_percent() {
    let server = Server::holdall(&["-m", "512", "-t", "3"]);
    let len = |key: usize| 50 + key % 700;
    thread::scope(|scope| {
        for from in [0, 20_000, 40_000] {
            let mut wire = server.connect();
            scope.spawn(move || store_all(&mut wire, from..from + 20_000, len));
        }
    });
    let exact = server.stat("bytes") as f64;
    let set = group(&server, "workingset");
    let got = float(&set, "workingset:hour:mean_bytes");
    eprintln!("{got} of {exact} bytes from {} keys", set["workingset:hour:sampled_items"]);
    assert!((got / exact - 1.0).abs() < 0.05, "{got} of {exact}");
    assert_near(&set, "workingset:week:items", "workingset:week", 60_000.0);
    assert_near(&set, "workingset:day:few:items", "workingset:day:few", 15_000.0);
    assert!(float(&set, "workingset:hour:sample_ratio") < 0.9, "too large a sample to show much");

    // Only a third is read after the reset: by three workers, some of it twice.
    server.connect().expect(b"stats reset\r\n", b"RESET\r\n");
    let all: usize = (0..60_000).map(|key| name_of(key).len() + len(key)).sum();
    let header = (exact - all as f64) / 60_000.0;
    let third: f64 = (0..20_000).map(|key| (name_of(key).len() + len(key)) as f64 + header).sum();
    let mut wires: Vec<Wire> = (0..3).map(|_| server.connect()).collect();
    for from in (0..20_000).step_by(40) {
        let names: Vec<String> = (from..(from + 50).min(20_000)).map(name_of).collect();
        let wire = &mut wires[from / 40 % 3];
        wire.send(format!("get {}\r\n", names.join(" ")).as_bytes());
        wire.read_until(b"END\r\n");
    }
    let set = group(&server, "workingset");
    assert_near(&set, "workingset:hour:mean_bytes", "workingset:hour", third);
    assert_eq!(set["workingset:hour:min_bytes"], set["workingset:hour:max_bytes"]);
}

/// Each server draws a new sample; n keys count within 1/sqrt(n), and weigh bytes within a tenth
/// more: chance never exceeds five of these.
fn assert_near(set: &BTreeMap<String, String>, name: &str, sample: &str, want: f64) {
    let keys = float(set, &format!("{sample}:sampled_items"));
    let (got, slack) = (float(set, name), 5.0 * 1.1 / keys.sqrt());
    eprintln!("{name}: {got} of {want} from {keys} keys");
    assert!(slack < 0.15, "{keys} keys are too few to show anything");
    assert!((got / want - 1.0).abs() < slack, "{name}: {got} of {want} from {keys} keys");
}

/// The number of clients that read and fill.
const CLIENTS: usize = 3;

/// Clients read `rounds` times fifty keys, and fill their misses. Returns the hit ratio.
fn read_and_fill(server: &Server, rounds: usize, key: impl Fn(&mut Rng) -> usize + Sync) -> f64 {
    let keys = [(); CLIENTS].map(|()| &key);
    read_and_fill_each(server, rounds, keys)
}

/// The same with another function for each client.
fn read_and_fill_each(
    server: &Server,
    rounds: usize,
    keys: [impl Fn(&mut Rng) -> usize + Send; CLIENTS],
) -> f64 {
    let value = "v".repeat(1000);
    thread::scope(|scope| {
        for (number, key) in (100..).zip(keys) {
            let value = &value;
            scope.spawn(move || {
                let (mut wire, mut rng) = (server.connect(), Rng::new(number));
                for _ in 0..rounds {
                    let keys: Vec<usize> = (0..50).map(|_| key(&mut rng)).collect();
                    let names: Vec<String> = keys.iter().map(|&key| name_of(key)).collect();
                    wire.send(format!("get {}\r\n", names.join(" ")).as_bytes());
                    let got = wire.read_until(b"END\r\n");
                    let got = String::from_utf8(got).unwrap();
                    let found: Vec<&str> = got
                        .lines()
                        .filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').next())
                        .collect();
                    let mut sets = String::new();
                    for name in names.iter().filter(|name| !found.contains(&name.as_str())) {
                        sets += &format!("set {name} 0 0 1000 noreply\r\n{value}\r\n");
                    }
                    wire.send(format!("{sets}mn\r\n").as_bytes());
                    wire.read_until(b"MN\r\n");
                }
            });
        }
    });
    let (hits, misses) = (server.stat("get_hits") as f64, server.stat("get_misses") as f64);
    hits / (hits + misses)
}

/// Small numbers are more likely, as in real loads.
fn popular(rng: &mut Rng) -> usize {
    rng.below(120_000).min(rng.below(120_000))
}

/// A cache for less than half of the keys, and one with half as much memory again.
#[test]
fn the_miss_ratio_curve_predicts_the_hit_ratio_of_more_memory() {
    let lru = |memory| Server::holdall(&["-m", memory, "-t", "2", "-o", "eviction=bag"]);
    let (present, larger) = (lru("64"), lru("96"));
    let real = [&present, &larger].map(|server| read_and_fill(server, 2000, popular));
    let curve = group(&present, "mrc");
    let ratios: Vec<f64> = ["0.25x", "0.5x", "1x", "1.5x", "2x", "4x"]
        .map(|size| float(&curve, &format!("mrc:{size}:hit_ratio")))
        .to_vec();
    eprintln!(
        "real hit ratios {real:.4?}; curve {ratios:.4?}, from {} keys",
        curve["mrc:sampled_items"]
    );
    assert!(present.stat("evictions") > 10_000 && larger.stat("evictions") > 1000);
    // All reads count, except those dropped while a worker's log was full of repetitions.
    assert!((ratios[2] - real[0]).abs() < 0.005, "{} at 1x, really {}", ratios[2], real[0]);
    // A busy machine samples fewer keys. The curve's deviation there is 0.6 divided by their root.
    let slack = 5.0 * 0.6 / float(&curve, "mrc:sampled_items").sqrt();
    assert!(slack < 0.11, "{} keys are too few to show anything", curve["mrc:sampled_items"]);
    assert!((ratios[3] - real[1]).abs() < slack, "{} at 1.5x, really {}", ratios[3], real[1]);
    assert!(ratios.is_sorted() && ratios[0] < ratios[4], "{ratios:?}");
}

#[test]
fn the_order_of_eviction_follows_the_load() {
    let server = Server::holdall(&["-m", "64", "-t", "2"]);
    follows_the_load(&server, 4000, 1);
    follows_another_load(&server, 4000, 10_000);
}

#[test]
fn the_order_of_eviction_follows_the_load_in_two_megabytes() {
    follows_the_load(&Server::holdall(&["-m", "2", "-I", "256k", "-t", "2"]), 12_000, 32);
}

/// Two fifths of the reads are of keys read only once, which an LRU keeps for long; the others are
/// of one in `part` of the popular keys.
fn follows_the_load(server: &Server, rounds: usize, part: usize) {
    let key = |rng: &mut Rng| match rng.below(5) {
        0 | 1 => 1_000_000 + rng.below(1 << 40),
        _ => popular(rng) / part,
    };
    let real = read_and_fill(server, rounds, key);
    let trials = group(server, "eviction");
    eprintln!("real hit ratio {real:.4}; {trials:?}");
    assert_eq!(trials["eviction:policy"], "auto");
    assert!(float(&trials, "eviction:newcomer_factor") >= 8.0);
    let of = |name: &str| float(&trials, &format!("eviction:{name}:hit_ratio"));
    let weighs_size = trials["eviction:weighs_size"] == "yes";
    let suffix = if weighs_size { "_size" } else { "" };
    let followed = format!("x{}{suffix}", trials["eviction:newcomer_factor"]);
    // A small server that is busy has few samples, by which the two are nearly equal.
    assert!(of(&followed) > of("x1") - 0.02, "what is read once goes early");
    // The order is the server's decision, which a reset of statistics does not undo.
    let mut wire = server.connect();
    wire.send(b"stats reset\r\n");
    wire.read_until(b"RESET\r\n");
    assert_eq!(group(server, "eviction")["eviction:changes"], trials["eviction:changes"]);
}

/// Each client reads its keys twice, the second time after `distance` other ones. Those of all
/// clients fit, so an LRU hits them, and an order that evicts newcomers early does not.
fn follows_another_load(server: &Server, rounds: usize, distance: usize) {
    let before = group(server, "eviction");
    let keys = [2_000_000, 3_000_000, 4_000_000].map(|first| {
        let count = AtomicUsize::new(0);
        move |_: &mut Rng| {
            // By turns a new key, and one that was new before.
            let turn = count.fetch_add(1, Ordering::Relaxed);
            let back = if turn.is_multiple_of(2) { 0 } else { distance };
            first + (turn / 2).saturating_sub(back)
        }
    });
    let real = read_and_fill_each(server, rounds, keys);
    let trials = group(server, "eviction");
    eprintln!("real hit ratio with another load {real:.4}; {trials:?}");
    assert!(float(&trials, "eviction:newcomer_factor") <= 2.0);
    assert!(float(&trials, "eviction:changes") > float(&before, "eviction:changes"));
}

#[test]
fn sampling_can_be_disabled() {
    let server = Server::holdall(&["-o", "no_sampling"]);
    store_all(&mut server.connect(), 0..1000, |_| 10);
    for name in ["hotkeys", "latency", "mrc", "workingset"] {
        assert_eq!(server.stats(name), [("sampling".to_owned(), "no".to_owned())]);
    }
    assert_eq!(server.stat("sampling_bytes"), 0);
}
