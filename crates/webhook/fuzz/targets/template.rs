//! Templates, of each kind that is known.

#![no_main]

#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entries::template(input));
