//! Switches of the engine that can be changed while it runs: `slabs`, `lru`.
//!
//! docs/protocol.md describes their meaning here and in memcached. A switch without a counterpart
//! in this engine is checked and answered as in memcached, and changes nothing.

use proto::text::Words;
use proto::{number, reply};

use store::{Automove, ReassignError};

use super::{Answer, BAD_FORMAT, Context, ERROR};

/// `slabs reassign FROM TO`, `slabs automove ...`.
pub(crate) fn slabs(context: &Context<'_>, mut words: Words<'_>) -> Answer {
    match (words.next(), words.next(), words.next()) {
        (Some(b"reassign"), Some(from), Some(to)) => reassign(context, from, to),
        (Some(b"automove"), Some(what), value) => automove(context, what, value).unwrap_or(ERROR),
        _ => ERROR,
    }
}

fn reassign(context: &Context<'_>, from: &[u8], to: &[u8]) -> Answer {
    if !context.shared.slab_reassign {
        return b"CLIENT_ERROR slab reassignment disabled\r\n";
    }
    let class = |word| number::parse_i64(word).and_then(|id| i32::try_from(id).ok());
    let (Some(from), Some(to)) = (class(from), class(to)) else { return BAD_FORMAT };
    match context.shared.engine.store().reassign(from, to) {
        Ok(()) => reply::OK,
        Err(ReassignError::Busy) => b"BUSY currently processing reassign request\r\n",
        Err(ReassignError::BadClass) => b"BADCLASS invalid src or dst class id\r\n",
        Err(ReassignError::NoSpare) => b"NOSPARE source class has no spare pages\r\n",
        Err(ReassignError::Same) => b"SAME src and dst class are identical\r\n",
    }
}

fn automove(context: &Context<'_>, what: &[u8], value: Option<&[u8]>) -> Option<Answer> {
    let store = context.shared.engine.store();
    match what {
        b"ratio" => {
            let ratio = fraction(value?).filter(|ratio| *ratio > 0.0 && *ratio <= 1.0)?;
            store.set_automove_ratio_per_mille(per_mille(ratio));
        }
        // There is no external storage, and ages are not averaged over time.
        b"freeratio" => _ = fraction(value?)?,
        b"window" => match value.and_then(number::parse_u32) {
            Some(3..=0x3ff_ffff) => {}
            Some(_) => return Some(b"CLIENT_ERROR automove window too low or too high\r\n"),
            None => return Some(BAD_FORMAT),
        },
        level => match number::parse_u32(level) {
            Some(0) => store.set_automove(Automove::Off),
            Some(1) => store.set_automove(Automove::Age),
            Some(2) => store.set_automove(Automove::Eager),
            Some(_) => return None,
            None => return Some(BAD_FORMAT),
        },
    }
    Some(reply::OK)
}

/// `lru tune|mode|temp_ttl`. holdall has one kind of list, so only the last sets anything.
pub(crate) fn lru(context: &Context<'_>, mut words: Words<'_>) -> Answer {
    match (words.next(), words.next()) {
        (Some(b"tune"), Some(hot)) => lru_tune(hot, words).unwrap_or(ERROR),
        (Some(b"mode"), Some(b"flat" | b"segmented")) => reply::OK,
        (Some(b"temp_ttl"), Some(secs)) => match number::parse_i64(secs) {
            Some(secs) if i32::try_from(secs).is_ok() => {
                let secs = u32::try_from(secs).unwrap_or(0);
                context.shared.engine.store().set_transient_secs(secs);
                reply::OK
            }
            _ => ERROR,
        },
        _ => ERROR,
    }
}

/// Shares of the hot and the warm list, in percent, and their ages as parts of the cold list's.
fn lru_tune(hot: &[u8], mut words: Words<'_>) -> Option<Answer> {
    let hot = number::parse_u32(hot)?;
    let warm = number::parse_u32(words.next()?)?;
    let (hot_age, warm_age) = (fraction(words.next()?)?, fraction(words.next()?)?);
    if u64::from(hot) + u64::from(warm) > 80 {
        return Some(b"ERROR hot and warm pcts must not exceed 80\r\n");
    }
    if !(hot_age > 0.0 && warm_age > 0.0) {
        return Some(b"ERROR hot/warm age factors must be greater than 0\r\n");
    }
    Some(reply::OK)
}

/// A finite decimal number.
fn fraction(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// A ratio of at most 1 in thousandths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
pub(crate) fn per_mille(ratio: f64) -> u32 {
    (ratio.clamp(0.0, 1.0) * 1000.0).round() as u32
}
