//! Parser of a meta request's flags.

use crate::HOLD_OFF_SECS_MAX;
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::words::Words;
use crate::{Error, exptime, meta::OPAQUE_BYTES_MAX};

/// The flags of a meta request that change its effect. Any command accepts any of them, and uses
/// its own.
///
/// The flags that only request facts (`f h k l s t`) are not here: [`super::reply`] finds them in
/// their order among the request's words. Expiry times follow the rules of [`crate::exptime`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options<'b> {
    /// `b`: the key came as base64, and is stored with this mark.
    pub base64: bool,
    /// `I`: invalidate; `ms`: a lower cas stores as stale; `md`: mark stale instead of deleting.
    pub invalidate: bool,
    /// `q`: the usual answer is not sent; see [`super::reply::is_silent`].
    pub quiet: bool,
    /// `c`: the cas unique is requested.
    pub wants_cas: bool,
    /// `u`: no recency bump, no hit mark.
    pub no_update: bool,
    /// `v`: the value is requested.
    pub value: bool,
    /// `x`: `md` keeps the item and drops its value.
    pub drop_value: bool,
    /// `C`: the cas unique that the present item must have.
    pub compare_cas: Option<u64>,
    /// `E`: the cas unique to give the item; `E0` is like no `E`.
    pub new_cas: Option<u64>,
    /// `D`: the amount to count by.
    pub delta: Option<u64>,
    /// `F`: client flags.
    pub client_flags: Option<u32>,
    /// `J`: the number with which `ma` creates an item (needs `N`).
    pub initial: Option<u64>,
    /// `N`: create a missing item with this expiry time.
    pub autoviv_exptime: Option<i64>,
    /// `O`: returned unchanged; at most 32 bytes.
    pub opaque: Option<&'b [u8]>,
    /// `Pexecuted`, a hint to proxies: `md` is an error if it is kept for later and not executed.
    pub tells_kept: bool,
    /// `Pnow`, a hint to proxies: `md` is not kept when it fails.
    pub unkept: bool,
    /// `R`: with less than this many seconds left, the reader wins the right to recache.
    pub recache_secs: Option<i64>,
    /// `A`: `mg` also accepts a value that was deleted a short time ago. Not memcached's.
    pub accept_stale: bool,
    /// `G`: `mg` requests a lease on a miss (no argument: 0); `ms` stores with this token. Not
    /// memcached's.
    pub lease: Option<u64>,
    /// `H`: seconds after `md` in which `add` of the key is refused. Not memcached's.
    pub hold_off_secs: Option<u32>,
    /// `U`: `md` deletes all keys with this prefix. Not memcached's.
    pub under: bool,
    /// `T`: the new expiry time.
    pub exptime: Option<i64>,
}

/// Flags by which a delete does more, or less, than to remove the key. A flush of a prefix cannot.
const NOT_UNDER: &[u8] = b"CEHITx";

impl<'b> Options<'b> {
    /// Reads the flag words. The argument of `M` is returned separately: its meaning is in
    /// [`super::Command`].
    ///
    /// # Errors
    ///
    /// Fails at the first word that is no flag, is repeated, or has an invalid argument.
    pub fn parse(flags: Words<'b>) -> Result<(Self, Option<&'b [u8]>), Error> {
        let (mut options, mut mode) = (Self::default(), None);
        let mut seen = 0u128;
        for word in flags {
            let Some((letter, argument)) = word.split_first() else { continue };
            if !letter.is_ascii_alphanumeric() {
                return Err(Error::Format);
            }
            let bit = 1u128 << letter;
            if seen & bit != 0 {
                return Err(Error::DuplicateFlag);
            }
            seen |= bit;
            match letter {
                b'M' => mode = Some(argument),
                _ => options.apply(*letter, argument)?,
            }
        }
        // By the letters: `E0` sets nothing.
        if options.under && NOT_UNDER.iter().any(|letter| seen & (1 << letter) != 0) {
            return Err(Error::InvalidFlag);
        }
        Ok((options, mode))
    }

    fn apply(&mut self, letter: u8, argument: &'b [u8]) -> Result<(), Error> {
        let unsigned = || parse_u64(argument).map(Some).ok_or(Error::Token);
        let time = || exptime::parse(argument).map(Some).ok_or(Error::Token);
        match letter {
            b'b' => self.base64 = true,
            b'q' => self.quiet = true,
            b'u' => self.no_update = true,
            b'v' => self.value = true,
            b'x' => self.drop_value = true,
            b'I' => self.invalidate = true,
            b'C' => self.compare_cas = unsigned()?,
            b'D' => self.delta = unsigned()?,
            // No item has cas unique 0, so the server chooses one.
            b'E' => self.new_cas = unsigned()?.filter(|cas| *cas != 0),
            b'J' => self.initial = unsigned()?,
            b'F' => self.client_flags = Some(parse_u32(argument).ok_or(Error::Format)?),
            b'N' => self.autoviv_exptime = time()?,
            b'R' => self.recache_secs = parse_i64(argument).map(Some).ok_or(Error::Token)?,
            b'T' => self.exptime = time()?,
            b'O' if argument.len() > OPAQUE_BYTES_MAX => return Err(Error::OpaqueTooLong),
            b'O' => self.opaque = Some(argument),
            b'A' => self.accept_stale = true,
            b'G' if argument.is_empty() => self.lease = Some(0),
            b'G' => self.lease = unsigned()?,
            b'H' => {
                let secs = parse_u32(argument).filter(|secs| *secs <= HOLD_OFF_SECS_MAX);
                self.hold_off_secs = Some(secs.ok_or(Error::Token)?);
            }
            b'U' => self.under = true,
            b'P' => {
                self.tells_kept = argument == b"executed";
                self.unkept = argument == b"now";
            }
            // Only requests for facts, or hints to proxies.
            b'c' => self.wants_cas = true,
            b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'L' => {}
            _ => return Err(Error::InvalidFlag),
        }
        Ok(())
    }
}
