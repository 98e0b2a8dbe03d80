//! The birth of an item as three bits of its shape: the number of invalidations before it was
//! stored, as a code. `expiry::invalidation` explains the codes.

/// Bits of a shape below the code.
pub const CODE_SHIFT: u32 = 29;

/// Codes that stand for a number of invalidations.
pub const CODES: u32 = 7;

/// The code of an item that has the number behind its value.
pub const STAMPED: u32 = CODES;

/// Replaces the code of an item born now: no item has it, so each is judged.
pub const NONE: u32 = 1;
