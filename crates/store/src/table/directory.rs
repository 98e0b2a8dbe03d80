//! The directory of linear hashing: two numbers in one word, so that a lookup reads them together.

/// `2^level + split` buckets, of which those below `split` have been split since the level started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    level: u32,
    split: u32,
}

impl Directory {
    /// The directory of `buckets`, a power of two up to 2^31, none of them split.
    pub(super) fn new(buckets: usize) -> Self {
        debug_assert!(buckets.is_power_of_two());
        Self { level: buckets.trailing_zeros(), split: 0 }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self { level: (bits >> 32) as u32, split: bits as u32 }
    }

    /// The directory of these bits, if there is one.
    pub(super) fn checked(bits: u64) -> Option<Self> {
        let directory = Self::from_bits(bits);
        let is_sound = directory.level < 32 && u64::from(directory.split) < 1 << directory.level;
        is_sound.then_some(directory)
    }

    #[inline]
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.level) << 32 | u64::from(self.split)
    }

    /// The bucket of a hash.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked to at most 32 bits")]
    pub(super) fn bucket_of(self, hash: u64) -> usize {
        let whole = 1_u64 << self.level;
        let bucket = hash & (whole - 1);
        let is_split = bucket < u64::from(self.split);
        (bucket | if is_split { hash & whole } else { 0 }) as usize
    }

    /// Number of buckets.
    #[inline]
    pub(super) fn buckets(self) -> usize {
        (1 << self.level) + self.split as usize
    }

    /// The power of two at which the level started.
    pub(super) fn level(self) -> u32 {
        self.level
    }

    /// The bucket to split next.
    pub(super) fn next(self) -> usize {
        self.split as usize
    }

    /// `true` if a hash whose bucket is [`next`](Self::next) belongs into the new bucket when that
    /// one is split.
    pub(super) fn moves(self, hash: u64) -> bool {
        hash & (1 << self.level) != 0
    }

    /// The directory after the split of [`next`](Self::next).
    pub(super) fn after_split(self) -> Self {
        let split = self.split + 1;
        if u64::from(split) == 1 << self.level {
            Self { level: self.level + 1, split: 0 }
        } else {
            Self { level: self.level, split }
        }
    }

    /// The directory with one bucket less, whose split gives this one. There are two or more.
    pub(super) fn before_split(self) -> Self {
        match self.split.checked_sub(1) {
            Some(split) => Self { level: self.level, split },
            None => Self { level: self.level - 1, split: (1 << (self.level - 1)) - 1 },
        }
    }
}
