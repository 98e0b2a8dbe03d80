//! Bytes that gets and fills put on the network, by memcached's text protocol over TCP and
//! Ethernet.

/// Preamble, header, checksum and gap of an Ethernet frame, and the headers of IP and TCP with time
/// stamps.
const FRAME: f64 = 90.0;
/// Bytes of a full TCP segment.
const SEGMENT: f64 = 1448.0;
/// `VALUE`, flags, length and line ends around a value.
const AROUND_A_HIT: f64 = 18.0;
/// `END` and its line end.
const END: f64 = 5.0;
/// `set`, flags, lifetime, length and line ends around a value.
const AROUND_A_SET: f64 = 20.0;

/// The requests of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    /// Keys per second.
    pub gets: f64,
    /// Keys of one request.
    pub keys: f64,
    /// Share of found keys; the others are stored.
    pub hit_ratio: f64,
    /// Mean bytes of a key.
    pub key_bytes: f64,
    /// Mean bytes of a value.
    pub value_bytes: f64,
}

impl Requests {
    /// Bits per second in the direction that has more, because links carry both at once.
    pub(crate) fn bits_per_second(&self) -> f64 {
        let requests = self.gets / self.keys;
        let hit = self.hit_ratio * (self.key_bytes + self.value_bytes + AROUND_A_HIT);
        let replies = requests * framed(self.keys * hit + END);
        let asked = requests * framed(self.keys * (self.key_bytes + 1.0) + END);
        let fills = self.gets * (1.0 - self.hit_ratio);
        let filled = fills * framed(self.key_bytes + self.value_bytes + AROUND_A_SET);
        replies.max(asked + filled) * 8.0
    }
}

fn framed(bytes: f64) -> f64 {
    bytes + FRAME * (bytes / SEGMENT).ceil().max(1.0)
}

/// Keys of one server's part of a request of `keys` keys over `servers`: a multiget is split by
/// servers.
pub(crate) fn keys_of_a_part(keys: f64, servers: f64) -> f64 {
    let asked = servers * (1.0 - (1.0 - 1.0 / servers).powf(keys));
    keys / asked.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multigets_are_split_across_servers() {
        assert!((keys_of_a_part(10.0, 1.0) - 10.0).abs() < 1e-9);
        assert!((keys_of_a_part(1.0, 100.0) - 1.0).abs() < 1e-9);
        let part = keys_of_a_part(100.0, 50.0);
        assert!((2.0..2.4).contains(&part), "{part}");
        assert!(keys_of_a_part(10.0, 1e6) < 1.001);
    }

    #[test]
    fn bandwidth_includes_values_and_packet_overhead() {
        let one =
            Requests { gets: 1.0, keys: 1.0, hit_ratio: 1.0, key_bytes: 20.0, value_bytes: 100.0 };
        let bytes = one.bits_per_second() / 8.0;
        assert!((bytes - (20.0 + 100.0 + 18.0 + 5.0 + 90.0)).abs() < 1e-9, "{bytes}");
        let missed = Requests { hit_ratio: 0.0, ..one };
        let bytes = missed.bits_per_second() / 8.0;
        assert!((bytes - (26.0 + 90.0 + 140.0 + 90.0)).abs() < 1e-9, "{bytes}");
    }
}
