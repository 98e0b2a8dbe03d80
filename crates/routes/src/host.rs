//! The identity of this host.

/// A number that tells this host from others: mcrouter takes the first address; this takes the
/// machine's name, which the kernel tells without a file: a confined process may not see `/proc`.
#[must_use]
pub fn host_id() -> u32 {
    hashing::spooky_hash32(rustix::system::uname().nodename().to_bytes(), 0)
}
