//! Router configurations in both languages: a tree or findings, and never long work. The first byte
//! chooses the language. The bytes after a zero byte are a file that can be imported as `x`.
#![no_main]

use routeconf::{MemorySources, Params, load};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(text) = str::from_utf8(rest) else { return };
    let (main, import) = text.split_once('\0').unwrap_or((text, ""));
    let files = [("x".to_owned(), import.to_owned())];
    let name = if first % 4 == 0 { "x.yml" } else { "x.json" };
    match load(name, main, &Params::default(), &mut MemorySources(files.into())) {
        Ok(loaded) => {
            for warning in loaded.warnings {
                assert!(!warning.render(&loaded.config.files).is_empty());
            }
        }
        Err(rejected) => assert!(rejected.render().contains("error")),
    }
});
