//! Memory held back for when the system gives none.
//!
//! The standard library ends the process when an allocation fails, and a client can cause one at
//! any time: its connection, its session, the buffer of its reply. So the program's allocator asks
//! the system, and where that refuses, a megabyte that was put aside when the program was built:
//!
//! ```text
//!     allocation -> system -- refused --> reserve -- used up --> the error, which ends the process
//!                                            \ is_low: the caller closes connections
//! ```
//!
//! Large blocks, those that a single value can make large, are not asked for in this way but by
//! fallible calls, whose refusal is reported to the client. As long as the system gives memory, the
//! reserve costs a comparison when something is freed, and no resident page.
#![deny(unsafe_code)]

mod allocator;
mod failing;
mod mapped;

pub use allocator::{Allocator, grants, is_low, used};
pub use failing::{Failing, Outcome, exempt_thread, failing_from};
pub use mapped::{KEPT_BYTES, LARGE_BYTES, Mapped};
