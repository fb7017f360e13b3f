//! The admission webhook.

pub mod immutable;
pub mod labels;
pub mod mutate;
pub mod review;
