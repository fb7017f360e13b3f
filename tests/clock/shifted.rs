//! Preloaded into a process, moves its wall clock by as many seconds as `SHIFTED_BY` says. Clocks that only count, by which
//! Leases are judged, are left alone: it is the time of day that is wrong on a machine.
//!
//! A library of its own, outside of the workspace, since taking the place of a function of the C library is unsafe by nature.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;
/// `CLOCK_REALTIME` and its coarse sibling.
const WALL: [c_int; 2] = [0, 5];

#[repr(C)]
pub struct Time {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Takes the place of the C library's function of that name.
///
/// # Safety
///
/// `time` points to a time that may be written, as for the function itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    static SHIFT: OnceLock<i64> = OnceLock::new();
    // SAFETY: the caller's pointer is handed on as it came.
    let result = unsafe { syscall(CLOCK_GETTIME, clock, time) };
    if result == 0 && WALL.contains(&clock) {
        let shift = *SHIFT.get_or_init(|| std::env::var("SHIFTED_BY").ok().and_then(|by| by.parse().ok()).unwrap_or(0));
        // SAFETY: the call above has just written to it.
        unsafe { (*time).seconds += shift };
    }
    c_int::try_from(result).unwrap_or(-1)
}
