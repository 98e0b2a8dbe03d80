//! What memcached commands mean, over the store.
#![forbid(unsafe_code)]
