//! The memory budget of tests, and the memory that programs take.
//!
//! `XEBEC_MEMORY` is the budget of the program `xebec`. Tests that use the library get theirs from here. If it is set,
//! each program that a test of a mount runs must take at most [`BESIDE`] more.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use base::memory::Budget;

/// Memory of a process beside its budget: the program, stacks, requests, and what the allocator keeps.
pub const BESIDE: u64 = 32 << 20;
/// The variable with the budget.
const BUDGET: &str = "XEBEC_MEMORY";
/// The variable with the file to which each process appends its peak when it ends.
const LOG: &str = "XEBEC_PEAK_MEMORY_LOG";

/// The budget that `XEBEC_MEMORY` sets, in bytes.
///
/// # Errors
/// It is not a size.
pub fn budget_bytes() -> Result<Option<u64>> {
    let Ok(text) = std::env::var(BUDGET) else { return Ok(None) };
    base::sizes::parse(&text).map(Some).map_err(anyhow::Error::msg).context(BUDGET)
}

/// A new budget as `XEBEC_MEMORY` sets it, for `Options::memory` of a volume; `None` for that of the process.
///
/// # Panics
/// `XEBEC_MEMORY` is not a size.
#[expect(clippy::expect_used, reason = "a test cannot run with such a variable")]
pub fn budget() -> Option<Arc<Budget>> {
    budget_bytes().expect("XEBEC_MEMORY is a size").map(Budget::new)
}

/// The peaks of all programs of a test.
pub struct Peaks {
    log: PathBuf,
}

impl Peaks {
    /// Records the peaks of programs that a command starts, in a file in this folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn of(command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join("peaks.log");
        // Programs of other users write it, too.
        File::create(&log)?.set_permissions(Permissions::from_mode(0o666))?;
        command.env(LOG, &log);
        Ok(Self { log })
    }

    /// Prints the largest peak. Fails if a process took more than the budget and [`BESIDE`], except `create`, which has
    /// a budget of its own. Servers that were killed have no peak.
    ///
    /// # Errors
    /// What took too much.
    pub fn judge(&self, test: &str) -> Result<()> {
        let log = std::fs::read_to_string(&self.log)?;
        if let Some(path) = std::env::var_os(LOG) {
            OpenOptions::new().append(true).create(true).open(path)?.write_all(log.as_bytes())?;
        }
        let kib = |line: &str| line.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let is_limited = |line: &&str| line.split(' ').nth(3) != Some("create");
        let Some(largest) = log.lines().filter(is_limited).max_by_key(|line| kib(line)) else {
            // A test may kill all servers, and need no other command.
            return Ok(());
        };
        println!("{test}: the largest of {} processes, in KiB: {largest}", log.lines().count());
        match budget_bytes()? {
            Some(budget) if kib(largest) << 10 > budget + BESIDE => {
                bail!("{test}: a process took more memory than {budget} + {BESIDE} bytes, in KiB: {largest}")
            }
            _ => Ok(()),
        }
    }
}
