//! Memory held back for times when the system gives none.
//!
//! The standard library ends the process when an allocation fails, and a client can cause one at
//! any time: its connection, its session, the buffer of its reply. So the program's allocator asks
//! the system. If that refuses, it takes the memory from a megabyte that is reserved at build time:
//!
//! ```text
//!     allocation -> system -- refused --> reserve -- used up --> the error, which ends the process
//!                                            \ is_low: the caller closes connections
//! ```
//!
//! Large blocks, which a single value can make large, are allocated by fallible calls instead,
//! whose refusal is reported to the client. While the system gives memory, the reserve costs a
//! comparison per free, and no resident page.
#![deny(unsafe_code)]

mod allocator;
mod failing;
mod mapped;

pub use allocator::{Allocator, grants, is_low, used};
pub use failing::{Failing, Outcome, exempt_thread, failing_from};
pub use mapped::{KEPT_BYTES, LARGE_BYTES, Mapped};
