//! External programs and privileges of tests. A test starts a program by a function of this crate and by no other
//! (`cargo xtask tidy` checks this), and first asks for everything that it needs. Where something is missing, the test
//! is skipped with a line that names it and tells how to get it:
//!
//! ```no_run
//! let Some(()) = needs::met(needs::mounting().and_then(|()| needs::tools(&["setfattr"]))) else { return };
//! let script = r#"mount -o loop "$1" mnt; setfattr -n user.name -v value mnt"#;
//! needs::script("-eu", script, "example").arg("disk.xfs").status();
//! ```
//!
//! With `XEBEC_SKIP_NOTHING` in the environment, or `CI=true`, the test fails instead.
//!
//! | part | subject |
//! |---|---|
//! | this file | how a test is skipped |
//! | [`tools`] | programs: whether they are installed, and starting them |
//! | [`judges`] | both versions of xfsprogs |
//! | [`mounting`], [`fuse`], [`root`] | what this process may do |
//!
//! `proof/needs/matrix` runs all tests with one part after the other hidden.
#![forbid(unsafe_code)]

mod programs;
mod rights;

use std::io::Write;

pub use programs::{command, judges, newer, newer_xfsprogs, newest, own, path, script, tools};
pub use rights::{fuse, mounting, root};

/// What was asked for, if nothing is missing; else skips the test.
///
/// # Panics
/// Panics where something is missing and no test may be skipped: `CI` is `true`, or `XEBEC_SKIP_NOTHING` is set.
pub fn met<T>(ready: Result<T, String>) -> Option<T> {
    ready.map_err(|why| skip(&why)).ok()
}

/// Prints that this test, or a part of it, is skipped. Where nothing may be skipped the test fails.
///
/// # Panics
/// Panics when `CI` is `true`, or `XEBEC_SKIP_NOTHING` is set.
#[expect(clippy::panic, reason = "a test that may not be skipped fails")]
pub fn skip(why: &str) {
    let strict =
        std::env::var_os("XEBEC_SKIP_NOTHING").is_some() || std::env::var("CI").is_ok_and(|ci| ci == "true");
    // The test harness runs each test in a thread of the test's name.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    if strict {
        panic!("{test} cannot run: {why}");
    }
    // Not by a macro: the test harness captures that output and drops it when the test passes.
    let _ = writeln!(std::io::stderr().lock(), "\nSKIPPED {test}: {why}");
}
