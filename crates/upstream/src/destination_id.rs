//! The name of a server as one worker uses it.

/// Names a server of one [`crate::Upstream`], and the pool that uses it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DestinationId {
    pub(crate) place: u32,
    pub(crate) pool: u16,
}

impl DestinationId {
    /// The server's number, whatever the pool.
    #[inline]
    pub fn place(self) -> u32 {
        self.place
    }
}
