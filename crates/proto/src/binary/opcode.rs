//! The commands' numbers.
//!
//! Those that end with `Q` are quiet forms: a miss of gets, and the success of others, have no
//! answer.

/// get
pub const GET: u8 = 0x00;
/// set
pub const SET: u8 = 0x01;
/// add
pub const ADD: u8 = 0x02;
/// replace
pub const REPLACE: u8 = 0x03;
/// delete
pub const DELETE: u8 = 0x04;
/// increment
pub const INCREMENT: u8 = 0x05;
/// decrement
pub const DECREMENT: u8 = 0x06;
/// quit
pub const QUIT: u8 = 0x07;
/// flush
pub const FLUSH: u8 = 0x08;
/// get, quiet
pub const GETQ: u8 = 0x09;
/// noop
pub const NOOP: u8 = 0x0a;
/// version
pub const VERSION: u8 = 0x0b;
/// get, with the key in the answer
pub const GETK: u8 = 0x0c;
/// getk, quiet
pub const GETKQ: u8 = 0x0d;
/// append
pub const APPEND: u8 = 0x0e;
/// prepend
pub const PREPEND: u8 = 0x0f;
/// stat
pub const STAT: u8 = 0x10;
/// set, quiet: the first of 0x11..=0x1a
pub const SETQ: u8 = 0x11;
/// prepend, quiet: the last of 0x11..=0x1a
pub const PREPENDQ: u8 = 0x1a;
/// touch
pub const TOUCH: u8 = 0x1c;
/// get and touch
pub const GAT: u8 = 0x1d;
/// gat, quiet
pub const GATQ: u8 = 0x1e;
/// SASL: list the mechanisms
pub const SASL_LIST: u8 = 0x20;
/// SASL: start
pub const SASL_AUTH: u8 = 0x21;
/// SASL: continue
pub const SASL_STEP: u8 = 0x22;
/// gat, with the key in the answer
pub const GATK: u8 = 0x23;
/// gatk, quiet
pub const GATKQ: u8 = 0x24;
