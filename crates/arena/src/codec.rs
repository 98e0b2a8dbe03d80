//! The record of a clean end as a row of numbers. A reader trusts nothing: any number may be
//! missing.

/// Numbers, written one after the other.
#[derive(Debug, Default)]
pub struct Writer {
    /// The bytes written.
    pub bytes: Vec<u8>,
}

/// Numbers, read in the same order.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    rest: &'b [u8],
}

impl Writer {
    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a count.
    pub fn count(&mut self, number: usize) {
        self.number(number as u64);
    }

    /// Writes a row of numbers, its length first.
    pub fn numbers(&mut self, numbers: impl ExactSizeIterator<Item = u64>) {
        self.count(numbers.len());
        numbers.for_each(|number| self.number(number));
    }
}

impl<'b> Reader<'b> {
    /// A reader of a [`Writer`]'s output, or of any other bytes.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next number; `None` at the end.
    pub fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// The next number if it fits the target type.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    /// The next number if it is below `end`.
    pub fn index(&mut self, end: usize) -> Option<usize> {
        self.small().filter(|&index| index < end)
    }

    /// The next row of numbers. A count beyond the bytes is refused before memory is taken for it.
    pub fn numbers<T: TryFrom<u64>>(&mut self) -> Option<Vec<T>> {
        let count: usize = self.small()?;
        if count > self.rest.len() / size_of::<u64>() {
            return None;
        }
        (0..count).map(|_| self.small()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_list_of_numbers_is_refused() {
        let mut writer = Writer::default();
        writer.numbers([1, 2, 3].into_iter());
        assert_eq!(Reader::new(&writer.bytes).numbers::<u8>(), Some(vec![1, 2, 3]));
        for cut in 0..writer.bytes.len() {
            assert_eq!(Reader::new(&writer.bytes[..cut]).numbers::<u8>(), None, "cut at {cut}");
        }
        assert_eq!(Reader::new(&u64::MAX.to_le_bytes()).numbers::<u64>(), None);
    }
}
