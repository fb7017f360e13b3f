//! AdmissionReview bodies, to both webhooks.

#![no_main]

#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entries::review(input));
