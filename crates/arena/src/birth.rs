//! The birth of an item as three bits of its shape: the number of invalidations before it was
//! stored, by a code. `expiry::invalidation` says what a code stands for.

/// Bits of a shape below the code.
pub const CODE_SHIFT: u32 = 29;

/// Codes that stand for a number of invalidations.
pub const CODES: u32 = 7;

/// The code of an item that has the number behind its value.
pub const STAMPED: u32 = CODES;

/// In place of the code of an item that is born now: no item has it, so each is judged.
pub const NONE: u32 = 1;
