//! A memory barrier in two halves: a light one for threads that pass it constantly, and a heavy one
//! for the thread that rarely needs to know the others' state.
//!
//! A light half and a heavy half order like two SeqCst fences. Two light halves order nothing. The
//! heavy half is the system call `membarrier`: each thread of the process that runs executes a
//! barrier before it returns, and one that does not run executes one before it runs again. So the
//! light half only needs to hold back the compiler.
//!
//! Loom, Miri and ThreadSanitizer know no such call. There, both halves are fences.

#[cfg(not(any(loom, miri, holdall_tsan)))]
mod system {
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::sync::atomic::{Ordering, compiler_fence};

    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    #[inline]
    pub(super) fn light() {
        // SeqCst: partner of the heavy half.
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(any(loom, miri, holdall_tsan))]
mod system {
    use crate::sync::{Ordering, fence};

    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn light() {
        // SeqCst: partner of the heavy half.
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() -> bool {
        // SeqCst: partner of the light half.
        fence(Ordering::SeqCst);
        true
    }
}

/// Requests heavy halves from the system. `false`: it has none, and [`heavy`] must not be called.
pub(crate) fn register() -> bool {
    system::register()
}

/// The light half.
#[inline]
pub(crate) fn light() {
    system::light();
}

/// The heavy half. `false`, and nothing is ordered, if the system refuses.
#[must_use]
pub(crate) fn heavy() -> bool {
    system::heavy()
}
