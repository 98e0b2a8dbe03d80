//! Listeners, event loop, buffers: moves bytes, knows no command.
#![forbid(unsafe_code)]
