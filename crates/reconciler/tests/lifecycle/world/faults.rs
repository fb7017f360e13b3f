//! What goes wrong with a request: told by the beginning of its line in the log of calls.

use super::Deed;

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server says no, with these words (429, 5xx, a webhook, a quota).
    Refuse(&'static str),
    /// A read is refused for lack of rights (403).
    Forbid,
    /// The server says that it never will (422, unknown kind).
    Never(&'static str),
    /// It is done, but the answer is lost.
    DropAnswer,
    /// It is lost on its way.
    Lose,
    /// The kind is not served.
    NotServed,
    /// It is done, and then the controller is no more.
    Crash,
    /// Just before it is served, somebody else acts.
    Meanwhile(Deed),
}

/// Faults that wait for their request.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    waiting: Vec<(String, Fault, bool)>,
    /// The controller dies after this many more writes.
    pub crash_in: Option<usize>,
}

impl Faults {
    pub fn add(&mut self, call: &str, fault: Fault, always: bool) {
        self.waiting.push((call.to_owned(), fault, always));
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault that meets this request, if one does.
    pub fn meet(&mut self, call: &str, is_write: bool) -> Option<Fault> {
        if let Some(position) = self.waiting.iter().position(|(start, _, _)| call.starts_with(start)) {
            let (_, fault, always) = self.waiting[position].clone();
            if !always {
                self.waiting.remove(position);
            }
            return Some(fault);
        }
        if is_write && let Some(left) = &mut self.crash_in {
            if *left == 0 {
                self.crash_in = None;
                return Some(Fault::Crash);
            }
            *left -= 1;
        }
        None
    }
}
