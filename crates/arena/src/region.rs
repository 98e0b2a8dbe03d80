//! Reserved memory: a large zero-filled mapping of which only the touched part is resident.
//!
//! The arena, the hash table and the bag blocks each live in one region. The whole region is
//! reserved at start, so it never moves, and an index into it stays valid for the life of the
//! store. The kernel gives it memory page by page as it is first touched. Memory that is returned
//! (`release`) reads as zero afterwards.
//!
//! A region is anonymous memory, or a part of a file that outlives the process (`in_file`). Room in
//! the file is requested before it is touched (`commit`), since a store into a mapping whose file
//! system is full would end the process. The opener of the file holds its lock, and no other user
//! may write it, so its bytes are memory like any other.
//!
//! Under loom a region is an ordinary vector, because loom's atomics are not plain memory. Under
//! Miri, which knows no system calls, it is zeroed memory of the heap.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use std::io;
use std::ops::Index;

/// Types for which any bytes are a valid value, all-zero ones too, and which may be shared between
/// threads by reference.
///
/// # Safety
///
/// The implementor is made only of atomics (or arrays of them), so that any bytes are valid, any
/// shared access is through atomic operations, and dropping it does nothing. Its alignment is at
/// most 4096.
pub unsafe trait AnyBytes: Sync {}

// SAFETY: an atomic integer; every bit pattern is a value.
unsafe impl AnyBytes for crate::sync::AtomicU32 {}
// SAFETY: an atomic integer; every bit pattern is a value.
unsafe impl AnyBytes for crate::sync::AtomicU64 {}
// SAFETY: made of atomic integers and padding alone.
unsafe impl AnyBytes for crate::control::Control {}

/// The system's part: address space, and the memory under it.
#[cfg(not(any(loom, miri)))]
mod system {
    use libc::{MPOL_INTERLEAVE, SYS_get_mempolicy, SYS_mbind, c_int, c_long, syscall};
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
    use std::fs::File;
    use std::io;
    use std::ptr::null_mut;

    /// Maximum number of memory nodes of any kernel.
    const NODES_MAX: usize = 1024;
    /// Flag of `get_mempolicy`: the nodes that the process may use (linux/mempolicy.h).
    const MEMS_ALLOWED: c_long = 1 << 2;

    /// Reserves `bytes` of zeros at an address of the system's choice.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub(super) fn reserve(bytes: usize) -> io::Result<*mut u8> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags)? };
        Ok(base.cast())
    }

    /// Maps `bytes` of the file from `offset` on, a multiple of the system's page.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub(super) fn map(file: &File, offset: u64, bytes: usize) -> io::Result<*mut u8> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file's bytes are ours
        // alone (see the header).
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, offset)? };
        Ok(base.cast())
    }

    /// Makes sure that the file system has room for the range; `false` if it is full.
    pub(super) fn commit(file: &File, offset: u64, bytes: u64) -> bool {
        // A file system without this call is believed to have room.
        // tmpfs ends it at a signal.
        match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), offset, bytes)) {
            Err(error) => error == Errno::OPNOTSUPP,
            Ok(()) => true,
        }
    }

    /// Makes the range read as zero and hold no memory.
    ///
    /// # Safety
    ///
    /// The range lies within what `reserve` or `map` gave, and it holds no value in use.
    pub(super) unsafe fn release(from: *mut u8, bytes: usize, is_file: bool) {
        let advice = if is_file { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
        // SAFETY: by the caller, inside our own mapping; a refusal leaves the values there.
        let _ = unsafe { madvise(from.cast(), bytes, advice) };
    }

    /// Asks for huge pages under the range.
    ///
    /// # Safety
    ///
    /// The range lies within what `reserve` gave.
    pub(super) unsafe fn prefer_huge_pages(from: *mut u8, bytes: usize) {
        // SAFETY: by the caller, inside our own mapping, whose contents do not change.
        let _ = unsafe { madvise(from.cast(), bytes, Advice::LinuxHugepage) };
    }

    /// Spreads the pages of the range over the memory nodes that the process may use, in turn.
    ///
    /// # Errors
    ///
    /// The system's refusal: a kernel without memory policies, or a container that forbids them.
    ///
    /// # Safety
    ///
    /// The range lies within what `reserve` or `map` gave.
    pub(super) unsafe fn interleave(from: *mut u8, bytes: usize) -> io::Result<()> {
        let mut nodes = [0_u64; NODES_MAX / 64];
        let of_call = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the kernel writes `NODES_MAX` bits to `nodes`, and reads nothing.
        of_call(unsafe {
            let (no_mode, no_address) = (null_mut::<c_int>(), null_mut::<u8>());
            let to = nodes.as_mut_ptr();
            syscall(SYS_get_mempolicy, no_mode, to, NODES_MAX, no_address, MEMS_ALLOWED)
        })?;
        // The kernel leaves out the last one of this number of bits.
        let (mode, bits, no_flags) = (c_long::from(MPOL_INTERLEAVE), NODES_MAX + 1, 0_usize);
        // SAFETY: by the caller, inside our own mapping, whose contents do not change. The kernel
        // reads `NODES_MAX` bits of `nodes`.
        of_call(unsafe { syscall(SYS_mbind, from, bytes, mode, nodes.as_ptr(), bits, no_flags) })
    }

    /// Returns the memory of `reserve`.
    ///
    /// # Safety
    ///
    /// The whole of it, once, and no reference into it is left.
    pub(super) unsafe fn unmap(base: *mut u8, bytes: usize) {
        // SAFETY: by the caller, exactly our own mapping.
        let _ = unsafe { munmap(base.cast(), bytes) };
    }
}

/// The heap instead of the system, for Miri.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::fs::File;
    use std::io;

    const ALIGNMENT: usize = 4096;

    fn layout(bytes: usize) -> io::Result<Layout> {
        Layout::from_size_align(bytes, ALIGNMENT)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    }

    pub(super) fn reserve(bytes: usize) -> io::Result<*mut u8> {
        // SAFETY: `Region::reserve` asks for no empty region.
        Ok(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    pub(super) fn map(_file: &File, _offset: u64, _bytes: usize) -> io::Result<*mut u8> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(super) fn commit(_file: &File, _offset: u64, _bytes: u64) -> bool {
        true
    }

    /// # Safety
    ///
    /// The range lies within what `reserve` gave, and it holds no value in use.
    pub(super) unsafe fn release(from: *mut u8, bytes: usize, _is_file: bool) {
        // SAFETY: by the caller. These are plain writes, so Miri reports a racing read, even of a
        // header.
        unsafe { std::ptr::write_bytes(from, 0, bytes) };
    }

    /// # Safety
    ///
    /// None is needed: it does nothing.
    pub(super) unsafe fn prefer_huge_pages(_from: *mut u8, _bytes: usize) {}

    /// # Safety
    ///
    /// None is needed: it does nothing.
    pub(super) unsafe fn interleave(_from: *mut u8, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    ///
    /// All of what `reserve` gave, once, and no reference into it is left.
    pub(super) unsafe fn unmap(base: *mut u8, bytes: usize) {
        if let Ok(layout) = layout(bytes) {
            // SAFETY: by the caller, exactly what `reserve` allocated with this layout.
            unsafe { dealloc(base, layout) };
        }
    }
}

#[cfg(not(loom))]
mod mapped {
    use super::{AnyBytes, io, system};
    use std::fs::File;
    use std::marker::PhantomData;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// `len` values of `T` in one mapping.
    #[derive(Debug)]
    pub struct Region<T: AnyBytes> {
        base: NonNull<T>,
        len: usize,
        /// The file behind it, and the region's start in it.
        file: Option<(Arc<File>, u64)>,
        owns: PhantomData<T>,
    }

    // SAFETY: the region owns its mapping; `T: AnyBytes` is `Sync` and has no drop glue or thread
    // affinity.
    unsafe impl<T: AnyBytes> Send for Region<T> {}
    // SAFETY: shared access yields only `&T`, and `T: Sync`.
    unsafe impl<T: AnyBytes> Sync for Region<T> {}

    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    impl<T: AnyBytes> Region<T> {
        /// Reserves room for `len` values, all zero, none resident.
        ///
        /// # Errors
        ///
        /// The system's refusal to map that much address space.
        pub fn reserve(len: usize) -> io::Result<Self> {
            Self::at(system::reserve(Self::bytes_of(len)?)?, len, None)
        }

        /// Maps `len` values from `offset` of the file on, a multiple of the system's page. Their
        /// content is the file's.
        ///
        /// # Errors
        ///
        /// The system's refusal to map the file.
        pub fn in_file(file: &Arc<File>, offset: u64, len: usize) -> io::Result<Self> {
            let base = system::map(file, offset, Self::bytes_of(len)?)?;
            Self::at(base, len, Some((Arc::clone(file), offset)))
        }

        fn bytes_of(len: usize) -> io::Result<usize> {
            len.checked_mul(size_of::<T>())
                .filter(|&bytes| bytes > 0)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
        }

        fn at(base: *mut u8, len: usize, file: Option<(Arc<File>, u64)>) -> io::Result<Self> {
            let base = NonNull::new(base.cast::<T>())
                .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            #[cfg(feature = "schedule")]
            {
                let first = base.addr().get();
                let end = first + len * size_of::<T>();
                crate::lines::note_region(first..end, std::any::type_name::<Self>());
            }
            Ok(Self { base, len, file, owns: PhantomData })
        }

        /// Prepares `len` values from `start` on for their first use, or for their use after
        /// `release`. `false`: the file system is full.
        ///
        /// # Panics
        ///
        /// If the range is not in the region.
        #[must_use]
        pub fn commit(&self, start: usize, len: usize) -> bool {
            assert!(self.has(start, len), "range outside of the region");
            let Some((file, offset)) = &self.file else { return true };
            let bytes = |values: usize| (values * size_of::<T>()) as u64;
            system::commit(file, offset + bytes(start), bytes(len))
        }

        /// `true` if it is a part of a file.
        pub fn is_in_file(&self) -> bool {
            self.file.is_some()
        }

        /// Returns the memory of `len` values from `start` to the system; they read as zero
        /// afterwards.
        ///
        /// No thread should be using these values: it could find them zero at any moment.
        ///
        /// # Panics
        ///
        /// If the range is not in the region.
        pub fn release(&self, start: usize, len: usize) {
            assert!(self.has(start, len), "range outside of the region");
            // SAFETY: `start <= self.len`, so the pointer stays inside the mapping or at its end.
            let from = unsafe { self.base.as_ptr().add(start) };
            // SAFETY: the range is inside the mapping, and zero bytes are valid for `T: AnyBytes`.
            unsafe { system::release(from.cast(), len * size_of::<T>(), self.file.is_some()) };
        }

        /// Asks for huge pages under the whole region (`-L`). A refusal changes nothing but speed.
        pub fn prefer_huge_pages(&self) {
            // SAFETY: exactly the mapping.
            unsafe { system::prefer_huge_pages(self.base.as_ptr().cast(), self.bytes()) };
        }

        /// Spreads the pages of the whole region over the memory nodes that the process may use
        /// (`-o numa_interleave`). Pages that were touched before stay where they are.
        ///
        /// # Errors
        ///
        /// The system's refusal: a kernel without memory policies, or a container that forbids
        /// them.
        pub fn interleave(&self) -> io::Result<()> {
            // SAFETY: exactly the mapping.
            unsafe { system::interleave(self.base.as_ptr().cast(), self.bytes()) }
        }

        fn has(&self, start: usize, len: usize) -> bool {
            start.checked_add(len).is_some_and(|end| end <= self.len)
        }

        fn bytes(&self) -> usize {
            self.len * size_of::<T>()
        }

        /// Number of values in the region.
        #[inline]
        pub fn len(&self) -> usize {
            self.len
        }

        /// The value at `index`; `None` past the end. Never a slice of all values: Miri would look
        /// at each of them.
        #[inline]
        pub fn get(&self, index: usize) -> Option<&T> {
            if index >= self.len {
                return None;
            }
            // SAFETY: below the length, so inside the mapping.
            let value = unsafe { self.base.as_ptr().add(index) };
            // SAFETY: any bytes are valid for `T: AnyBytes`, and only `&T` is ever handed out.
            Some(unsafe { &*value })
        }

        /// Prefetches the line `at` bytes behind the first value. Nothing is read, so any number is
        /// allowed.
        #[inline(always)]
        pub fn prefetch_byte(&self, at: usize) {
            super::prefetch(self.base.as_ptr().cast::<u8>().wrapping_add(at));
        }

        /// First byte of the region.
        pub(crate) fn base(&self) -> NonNull<u8> {
            self.base.cast()
        }
    }

    impl<T: AnyBytes> Drop for Region<T> {
        fn drop(&mut self) {
            // SAFETY: the mapping was made by `reserve` or `in_file` with this length and no
            // reference outlives `self`.
            unsafe { system::unmap(self.base.as_ptr().cast(), self.bytes()) };
        }
    }
}

#[cfg(loom)]
mod mapped {
    use super::{AnyBytes, io};

    /// `len` values of `T` in a vector, made by `Default`.
    #[derive(Debug)]
    pub struct Region<T: AnyBytes> {
        values: Vec<T>,
    }

    impl<T: AnyBytes + Default> Region<T> {
        /// Room for `len` values.
        ///
        /// # Errors
        ///
        /// None.
        pub fn reserve(len: usize) -> io::Result<Self> {
            Ok(Self { values: (0..len).map(|_| T::default()).collect() })
        }
    }

    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    impl<T: AnyBytes> Region<T> {
        /// The value at `index`; `None` past the end.
        pub fn get(&self, index: usize) -> Option<&T> {
            self.values.get(index)
        }

        /// Number of values in the region.
        pub fn len(&self) -> usize {
            self.values.len()
        }

        /// Does nothing.
        pub fn prefetch_byte(&self, _at: usize) {}

        /// Does nothing: the memory exists.
        ///
        /// # Panics
        ///
        /// If the range is not in the region.
        #[must_use]
        pub fn commit(&self, start: usize, len: usize) -> bool {
            assert!(start + len <= self.len(), "range outside of the region");
            true
        }
    }
}

pub use mapped::Region;

impl<T: AnyBytes> Index<usize> for Region<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        let Some(value) = self.get(index) else {
            panic!("index {index} outside of a region of {}", self.len());
        };
        value
    }
}

/// Prefetches the cache line at any address; has no other effect.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching any address is allowed and reads nothing into the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = address;
}
