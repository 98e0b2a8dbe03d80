//! Names of pools and routes: their places in the lists of a configuration.

/// A pool by its place in `Config::pools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub(crate) u32);

impl PoolId {
    /// Its place in the list.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A route by its place in `Config::handles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId(pub(crate) u32);

impl RouteId {
    /// Its place in the list.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
