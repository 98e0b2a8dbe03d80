//! The identity of this host.

/// A number that identifies this host. mcrouter uses the first address; this uses the machine's
/// name, which the kernel returns without a file, because a confined process may not see `/proc`.
#[must_use]
pub fn host_id() -> u32 {
    hashing::spooky_hash32(rustix::system::uname().nodename().to_bytes(), 0)
}
