//! Memory of this process: the budget of its caches, what the allocator keeps, and a record of its peak.
//!
//! # Invariants
//! The environment is read here, not by the libraries: a program that uses them chooses the budget itself.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use fuse::session::MAX_TRANSFER;
use xebec::MemoryBudget;

use crate::output::{Coded, exit_code};
use crate::sizes;

/// Environment variable with the memory of the caches, as in `-o memory=BYTES`.
const VARIABLE: &str = "XEBEC_MEMORY";
/// Environment variable with the file to which [`record_peak`] appends.
const PEAK_VARIABLE: &str = "XEBEC_PEAK_MEMORY_LOG";
/// Environment variable of the allocator: after how many milliseconds it returns freed memory to the system.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
/// A process with a smaller budget returns freed memory at once: what the allocator keeps would be more than the
/// budget.
const SMALL_BUDGET: u64 = 256 << 20;
/// Most memory that the caches of a command take by default: it shares the machine with others, and ends soon.
const COMMAND_MEMORY: u64 = 512 << 20;

/// A mount with a small budget reads and writes so much of it at once at most.
const TRANSFER_PART: u64 = 128;

/// The budget that the environment sets.
static BYTES: OnceLock<Option<u64>> = OnceLock::new();

/// Reads the environment, once, before the command runs. Restarts the program if its default budget, that of the
/// environment or of the control group, is [small](restart_if_small).
pub fn read_environment() -> anyhow::Result<()> {
    if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let bytes = sizes::parse(&text.to_string_lossy())
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("environment variable {VARIABLE}"))
            .map_err(|error| Coded { code: exit_code::USAGE, error })?;
        let _ = BYTES.set(Some(bytes));
    }
    restart_if_small(of_mount(None).bytes());
    Ok(())
}

fn from_environment() -> Option<u64> {
    BYTES.get().copied().flatten()
}

/// Budget of a command.
pub fn of_command() -> Arc<MemoryBudget> {
    let bytes = from_environment();
    MemoryBudget::new(bytes.unwrap_or_else(|| MemoryBudget::of_process().bytes().min(COMMAND_MEMORY)))
}

/// Budget of a mount with this option. It stays, and may take what the machine has for it.
pub fn of_mount(option: Option<u64>) -> Arc<MemoryBudget> {
    option.or_else(from_environment).map_or_else(MemoryBudget::of_process, MemoryBudget::new)
}

/// Largest size of reads and writes of a mount with this option. Each of its threads has two buffers for them.
pub fn max_transfer(option: Option<u64>) -> u32 {
    let bytes = of_mount(option).bytes() / TRANSFER_PART;
    u32::try_from(bytes).unwrap_or(u32::MAX).min(MAX_TRANSFER)
}

/// Restarts this program if the budget is small, so that the allocator returns freed memory at once: that is an
/// environment variable, which the allocator reads before `main`. If the variable is set, by the user or by an earlier
/// restart, nothing happens. To be called before the command reads or writes anything.
pub fn restart_if_small(bytes: u64) {
    if bytes >= SMALL_BUDGET || std::env::var_os(PURGE_DELAY).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(&program);
    // With the same name: it selects between `xebec` and the mount helper.
    command.arg0(arguments.next().unwrap_or_else(|| program.into())).args(arguments).env(PURGE_DELAY, "0");
    // Returns only if it fails: then this process goes on, with more memory.
    let _ = command.exec();
}

/// Ends the process from another thread than that of the command, after [recording its peak](record_peak), as `main`
/// does.
pub fn exit(code: i32) -> ! {
    record_peak();
    std::process::exit(code)
}

/// Appends the peak of this process's memory, in KiB, and its command to the file that the environment names, for
/// tests. Tests of unprivileged users may not be able to write it.
pub fn record_peak() {
    let Some(path) = std::env::var_os(PEAK_VARIABLE) else { return };
    // Not from getrusage(2): that includes the process which executed this program.
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let words = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let (peak, anonymous, file) = (words("VmHWM:"), words("RssAnon:"), words("RssFile:"));
    let command: Vec<_> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let line = format!("{peak} {anonymous} {file} {}\n", command.join(" ").replace('\n', " "));
    if let Ok(mut log) = OpenOptions::new().append(true).open(path) {
        let _ = log.write_all(line.as_bytes());
    }
}
