//! The identity of this host.

/// A number that tells this host from others: mcrouter takes the first address; this takes the
/// machine's name.
#[must_use]
pub fn host_id() -> u32 {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    hashing::spooky_hash32(name.trim_ascii(), 0)
}
