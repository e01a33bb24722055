//! Processes that a measurement starts.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command of a measurement, without input.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    apart(command)
}

/// The command `git` in a directory, apart from the user's repositories and configuration.
pub fn git(folder: &Path, words: &[&str]) -> Command {
    apart(report::git::command(folder, words))
}

/// A process group of its own: Ctrl-C at a terminal signals the whole group of this process, and the first one must
/// not end the current measurement.
fn apart(mut command: Command) -> Command {
    command.process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, getpgid};

    #[test]
    fn a_child_is_in_a_group_of_its_own() {
        let mut child = command("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = Pid::from_child(&child);
        assert_eq!(getpgid(Some(pid)), Ok(pid));
        drop(child.stdin.take());
        assert!(child.wait().expect("cat").success());
    }
}
