//! A plugin of kubectl for AppWrappers: what they are made of, why they do not run, and another try for those that failed.
//!
//! [`gather`] reads the API server and makes a [`report::Report`]; [`explain`] turns that into findings; [`tree`] and
//! [`list`] print. What is read may be refused: a report then says what it does not know, and never fails for it.
//! Deadlines and limits come from the reconciler's own functions.

pub mod args;
pub mod explain;
pub mod gather;
pub mod holder;
pub mod kueue;
pub mod list;
pub mod owners;
pub mod pods;
pub mod report;
pub mod retry;
pub mod run;
pub mod session;
pub mod style;
pub mod tree;
pub mod wait;
