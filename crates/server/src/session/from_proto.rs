//! Conversions from protocol types to the engine's.

use engine::{Direction, Mode};
use proto::StoreMode;

pub(crate) const fn mode_of(mode: StoreMode) -> Mode {
    match mode {
        StoreMode::Add => Mode::Add,
        StoreMode::Append => Mode::Append,
        StoreMode::Prepend => Mode::Prepend,
        StoreMode::Replace => Mode::Replace,
        StoreMode::Set => Mode::Set,
    }
}

pub(crate) const fn direction_of(decrement: bool) -> Direction {
    if decrement { Direction::Decr } else { Direction::Incr }
}
