//! The first page of a memory file: its format, its settings, and the state in which it was left.
//!
//! ```text
//!     words of 64 bits, little end first
//!     0 magic   1 version   2.. settings   layout   seed   starts   state   note   record   ticket
//!     digest
//!     ...                                                                 last: magic once more
//! ```
//!
//! The state is *in use* from before the first change of a mapped byte until after the last. The
//! record that *clean* promises is written before that state. The magic stands at both ends, so
//! that our file is recognised when one of them is damaged: a foreign file is never overwritten.

use crate::config::regions::Offsets;
use crate::config::{Config, Layout};
use arena::codec::{Reader, Writer};
use arena::names::ALIGNMENT;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 4096;

/// First and last bytes of the header of our files.
pub(super) const MAGIC: [u8; 8] = *b"holdall\x01";

/// Rises with every change of the meaning of bytes in a memory file.
const VERSION: u64 = 7;

/// The owner's notes about time. The store keeps them and does not use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeNote {
    /// Identifies the boot of the operating system.
    pub boot_id: u128,
    /// Milliseconds since that boot, suspended time included.
    pub boot_ms: u64,
    /// Seconds since 1970.
    pub unix_secs: u64,
    /// Seconds of the store's clock at that moment.
    pub secs: u32,
}

/// State in which a file was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A process has it mapped, or has died with it mapped.
    InUse,
    /// The record is complete.
    Clean,
}

/// Settings that define the meaning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The limit that the file was made with. The layout follows from it at any later limit.
    pub(super) memory_bytes: u64,
    item_bytes_max: u64,
    growth_factor: u64,
    chunk_bytes_min: u64,
    /// Length of the regions, and sizes of pages and references, which follow from the others.
    layout: u64,
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) settings: Settings,
    pub(super) seed: u64,
    /// Number of times that a store was opened over this file.
    pub(super) starts: u64,
    pub(super) state: State,
    pub(super) note: TimeNote,
    /// Length and digest of the record of a clean end, behind the regions.
    pub(super) record: (u64, u64),
    /// Not zero: the pages have no digests, and only a successor that knows this number trusts
    /// them.
    pub(super) ticket: u64,
}

/// The first page of a file, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A header.
    Header(Header),
    /// Our file, but not trusted, for this reason.
    Damaged(String),
    /// Not our file.
    Foreign,
    /// Only zeros, or fewer bytes.
    Empty,
}

impl Settings {
    pub(super) fn of(config: &Config, layout: &Layout) -> Self {
        let sizes = [
            Offsets::of(layout).end,
            layout.page_bytes as u64,
            layout.place_bits.map_or(ALIGNMENT as u64, u64::from),
            arena::chunks::HEADER as u64,
            arena::chunks::CHUNK_BYTES_MAX as u64,
            u64::from(arena::blocks::SLOTS),
            // The key hash, in case another version of its library computes it differently.
            rapidhash_v3_seeded(b"holdall", &RapidSecrets::seed(1)),
        ];
        let bytes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        Self {
            memory_bytes: config.memory_bytes,
            item_bytes_max: config.item_bytes_max,
            growth_factor: config.growth_factor.to_bits(),
            chunk_bytes_min: u64::from(config.chunk_bytes_min),
            layout: digest(&bytes),
        }
    }

    /// A number shared by files of one format.
    pub(super) fn format(&self) -> u64 {
        let Self { memory_bytes, item_bytes_max, growth_factor, chunk_bytes_min, layout } = self;
        let numbers =
            [memory_bytes, item_bytes_max, growth_factor, chunk_bytes_min, layout, &VERSION];
        digest(&numbers.map(|number| number.to_le_bytes()).concat())
    }

    /// The layout of a file of these settings, for a store of our configuration, whose limit may
    /// differ within the layout's reach; or the reason why there is none.
    pub(super) fn layout(&self, config: &Config) -> Result<Layout, String> {
        let (theirs, ours) = (self.memory_bytes, config.memory_bytes);
        let made_with = Config { memory_bytes: theirs, ..config.clone() };
        let other = format!("it was made with another -m: {theirs}, now {ours}");
        let Ok(layout) = Layout::new(&made_with) else { return Err(other) };
        if let Some(reason) = self.difference(&Self::of(&made_with, &layout)) {
            return Err(reason);
        }
        let most = layout.bytes_max();
        if ours > most {
            return Err(format!("{other}, and it can be raised to {most} at the most"));
        }
        Ok(layout)
    }

    /// The first difference between a file's settings and ours for the same limit, as text.
    fn difference(&self, ours: &Self) -> Option<String> {
        let named = [
            ("-I", self.item_bytes_max, ours.item_bytes_max),
            ("-n", self.chunk_bytes_min, ours.chunk_bytes_min),
        ];
        if let Some((name, theirs, ours)) = named.into_iter().find(|(_, one, other)| one != other) {
            return Some(format!("it was made with another {name}: {theirs}, now {ours}"));
        }
        if self.growth_factor != ours.growth_factor {
            let (theirs, ours) = (self.growth_factor, ours.growth_factor);
            let (theirs, ours) = (f64::from_bits(theirs), f64::from_bits(ours));
            return Some(format!("it was made with another -f: {theirs}, now {ours}"));
        }
        (self.layout != ours.layout).then(|| "it was made by a version with another layout".into())
    }
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes.extend_from_slice(&MAGIC);
        let settings = &self.settings;
        for number in [
            VERSION,
            settings.memory_bytes,
            settings.item_bytes_max,
            settings.growth_factor,
            settings.chunk_bytes_min,
            settings.layout,
            self.seed,
            self.starts,
            match self.state {
                State::InUse => 1,
                State::Clean => 2,
            },
        ] {
            writer.number(number);
        }
        let note = &self.note;
        writer.bytes.extend_from_slice(&note.boot_id.to_le_bytes());
        for number in [note.boot_ms, note.unix_secs, u64::from(note.secs)] {
            writer.number(number);
        }
        for number in [self.record.0, self.record.1, self.ticket] {
            writer.number(number);
        }
        writer.bytes.resize(HEADER_BYTES - MAGIC.len() - size_of::<u64>(), 0);
        writer.number(digest(&writer.bytes));
        writer.bytes.extend_from_slice(&MAGIC);
        writer.bytes
    }

    /// Reads the first `HEADER_BYTES` of a file, or all of a shorter one.
    pub(super) fn decode(page: &[u8]) -> Decoded {
        if page.iter().all(|&byte| byte == 0) {
            return Decoded::Empty;
        }
        let start = &page[..page.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) && !page.ends_with(&MAGIC) {
            return Decoded::Foreign;
        }
        let Some((fields, sum)) = Self::split(page) else {
            return Decoded::Damaged("its header is cut off".to_owned());
        };
        let version = Reader::new(&page[MAGIC.len()..]).number();
        if sum != digest(fields) {
            return Decoded::Damaged("its header is damaged".to_owned());
        }
        if version != Some(VERSION) {
            // The page has its full length, so there is a version.
            let version = version.unwrap_or_default();
            return Decoded::Damaged(format!("its format is {version}, this server's {VERSION}"));
        }
        match Self::fields(&fields[MAGIC.len() + size_of::<u64>()..]) {
            Some(header) => Decoded::Header(header),
            None => Decoded::Damaged("its header makes no sense".to_owned()),
        }
    }

    fn split(page: &[u8]) -> Option<(&[u8], u64)> {
        let page = page.strip_suffix(&MAGIC).filter(|_| page.len() == HEADER_BYTES)?;
        let (fields, sum) = page.split_last_chunk()?;
        Some((fields, u64::from_le_bytes(*sum)))
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        Some(Self {
            settings: Settings {
                memory_bytes: reader.number()?,
                item_bytes_max: reader.number()?,
                growth_factor: reader.number()?,
                chunk_bytes_min: reader.number()?,
                layout: reader.number()?,
            },
            seed: reader.number()?,
            starts: reader.number()?,
            state: match reader.number()? {
                1 => State::InUse,
                2 => State::Clean,
                _ => return None,
            },
            note: TimeNote {
                boot_id: u128::from(reader.number()?) | u128::from(reader.number()?) << 64,
                boot_ms: reader.number()?,
                unix_secs: reader.number()?,
                secs: reader.small()?,
            },
            record: (reader.number()?, reader.number()?),
            ticket: reader.number()?,
        })
    }
}

/// The digest used for all parts of a memory file. It detects damage, not malice: the file's mode
/// keeps other users out.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    const SECRETS: RapidSecrets = RapidSecrets::seed_cpp(0x686f_6c64_616c_6c31);
    rapidhash_v3_seeded(bytes, &SECRETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let config = Config::default();
        let layout = Layout::new(&config).unwrap();
        Header {
            settings: Settings::of(&config, &layout),
            seed: 7,
            starts: 3,
            state: State::Clean,
            note: TimeNote { boot_id: 9 << 70, boot_ms: 1, unix_secs: 2, secs: 3 },
            record: (4, 5),
            ticket: 6,
        }
    }

    #[test]
    fn a_header_round_trips() {
        assert_eq!(Header::decode(&header().encode()), Decoded::Header(header()));
    }

    #[test]
    fn any_flipped_bit_is_detected_as_damage() {
        let whole = header().encode();
        for bit in 0..whole.len() * 8 {
            let mut page = whole.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            let decoded = Header::decode(&page);
            assert!(matches!(decoded, Decoded::Damaged(_)), "bit {bit}: {decoded:?}");
        }
    }

    #[test]
    fn a_file_of_the_previous_format_is_refused_with_a_reason() {
        let mut page = header().encode();
        let version = MAGIC.len()..MAGIC.len() + size_of::<u64>();
        page[version].copy_from_slice(&(VERSION - 1).to_le_bytes());
        let sum_at = HEADER_BYTES - MAGIC.len() - size_of::<u64>();
        let sum = digest(&page[..sum_at]).to_le_bytes();
        page[sum_at..sum_at + size_of::<u64>()].copy_from_slice(&sum);
        let reason = "its format is 6, this server's 7".to_owned();
        assert_eq!(Header::decode(&page), Decoded::Damaged(reason));
    }

    #[test]
    fn truncated_empty_and_foreign_headers_are_distinguished() {
        let whole = header().encode();
        for len in 1..whole.len() {
            assert!(matches!(Header::decode(&whole[..len]), Decoded::Damaged(_)), "{len} bytes");
        }
        assert_eq!(Header::decode(&[]), Decoded::Empty);
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Decoded::Empty);
        assert_eq!(Header::decode(b"root:x:0:0:root"), Decoded::Foreign);
        assert_eq!(Header::decode(&[7; HEADER_BYTES]), Decoded::Foreign);
    }

    #[test]
    fn differing_settings_are_named() {
        let made_with = Config::default();
        let theirs = Settings::of(&made_with, &Layout::new(&made_with).unwrap());
        let difference = |config| theirs.layout(&config).err().unwrap_or_default();
        assert_eq!(difference(made_with.clone()), "");
        let growth = Config { growth_factor: 1.25, memory_bytes: 1 << 30, ..made_with };
        assert!(difference(growth).contains("another -f: 1.07"));
    }

    #[test]
    fn a_limit_within_reach_keeps_the_layout() {
        let with = |megabytes: u64| Config { memory_bytes: megabytes << 20, ..Config::default() };
        let layout = Layout::new(&with(64)).unwrap();
        let theirs = Settings::of(&with(64), &layout);
        for megabytes in [2, 64, 128, 256] {
            let kept = theirs.layout(&with(megabytes)).unwrap();
            assert_eq!(Settings::of(&with(64), &kept), theirs);
            assert_eq!(Offsets::of(&kept).end, Offsets::of(&layout).end);
        }
        let reason = theirs.layout(&with(257)).unwrap_err();
        assert!(reason.contains("another -m: 67108864, now 269484032"), "{reason}");
        assert!(reason.contains("raised to 268435456"), "{reason}");
    }
}
