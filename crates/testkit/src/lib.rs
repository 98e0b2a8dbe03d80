//! For tests only: real servers, scripted sockets, history checkers.
#![forbid(unsafe_code)]
