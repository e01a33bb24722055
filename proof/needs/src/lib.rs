//! External programs and privileges of tests. A test starts programs only through this crate (`cargo xtask tidy` checks
//! this), and first checks that everything it needs is available. If something is missing, the test is skipped, and
//! prints what is missing and how to install it:
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
//! | this file | skipping a test |
//! | [`tools`] | checking for programs, and starting them |
//! | [`judges`] | both versions of xfsprogs |
//! | [`Ceph`] | a Ceph cluster, started by the script `proof/needs/ceph` |
//! | [`s3`] | a server of S3, started by the script `proof/needs/s3` |
//! | [`mounting`], [`fuse`], [`root`] | privileges of this process |
//!
//! `proof/needs/matrix` runs all tests with one part of the machine hidden at a time.
#![forbid(unsafe_code)]

mod ceph;
mod programs;
mod rights;

use std::io::Write;

pub use ceph::Ceph;
pub use programs::{command, judges, newer, newer_xfsprogs, newest, own, path, s3, script, tools};
pub use rights::{fuse, mounting, root};

/// Returns the result of a check. If something is missing, skips the test and returns `None`.
///
/// # Panics
/// Panics if something is missing and `CI` is `true` or `XEBEC_SKIP_NOTHING` is set.
pub fn met<T>(ready: Result<T, String>) -> Option<T> {
    ready.map_err(|why| skip(&why)).ok()
}

/// Prints that this test, or a part of it, is skipped; fails if no test may be skipped.
///
/// # Panics
/// Panics if `CI` is `true` or `XEBEC_SKIP_NOTHING` is set.
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
    // The test harness captures the output of `eprintln!`, and drops it if the test passes.
    let _ = writeln!(std::io::stderr().lock(), "\nSKIPPED {test}: {why}");
}
