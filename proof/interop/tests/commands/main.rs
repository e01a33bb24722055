//! Compares commands of Xebec with those of Linux of the same name: the same arguments must give the same files.
//!
//! | part | subject |
//! |---|---|
//! | this file | runs commands of Linux on one volume and of Xebec on another |
//! | [`acl`] | `setfacl`, `getfacl`, and the effect of `chmod` on ACLs |
//! | [`copy`] | `cp` in all directions |
//! | [`everyday`] | other commands that change files |
//! | [`find`] | expressions of `find` |
//! | [`flags`] | `chattr`, `lsattr`, `project`, `extsize`, and the effect of flags and projects on other calls |
//! | [`usage`] | `du` and `df` |
// Clippy permits panics in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod acl;
mod copy;
mod everyday;
mod find;
mod flags;
mod usage;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use interop::built;
use tempfile::TempDir;

/// Creates two volumes `$1/linux` and `$1/xebec`, each with folders `0` to `$2` in which it runs the script `$3`. Then
/// it runs the lines of the file `$4` on the first, with the shell functions in `$5`.
const BEGIN: &str = r#"
cd "$1"
mkdir mnt
for volume in linux xebec; do
    truncate -s 512M $volume
    mkfs.xfs -q $volume
    mount -t xfs -o loop,nouuid $volume mnt
    for n in $(seq 0 "$2"); do mkdir mnt/$n; (cd mnt/$n; eval "$3"); done
    umount mnt
done
mount -t xfs -o loop,nouuid linux mnt
cd mnt
eval "$5"
while read -r n line; do
    if (cd $n; eval "$line") > ../shown 2> ../error; then echo "$n done"; else echo "$n failed"; fi
done < "$4"
cd ..
umount mnt
"#;

/// Runs the command `$2` on both volumes.
const SHOW: &str = r#"
cd "$1"
for volume in linux xebec; do
    mount -t xfs -o loop,nouuid $volume mnt
    (cd mnt; eval "$2") > $volume.shown
    umount mnt
done
"#;

/// The two volumes.
pub struct Twins {
    folder: TempDir,
    xebec: PathBuf,
}

/// Runs a script in a new mount namespace and returns its output.
fn script(text: &str, arguments: &[&Path]) -> String {
    let mut command = needs::script("-eu", text, "commands");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Twins {
    /// Creates the volumes, and runs the lines of each case on both. Case `n` runs in the folder `/n`, prepared by the
    /// script `make`. In a line, `@` precedes each path. Both must succeed or fail alike.
    pub fn run(make: &str, cases: &[&[&str]], tools: &[&str]) -> Result<Self, String> {
        Self::run_with("", make, cases, tools)
    }

    /// Runs the cases, with shell functions for commands that Linux does not have by this name; see [`Twins::run`].
    pub fn run_with(functions: &str, make: &str, cases: &[&[&str]], tools: &[&str]) -> Result<Self, String> {
        needs::mounting().and_then(|()| needs::tools(tools))?;
        let (folder, xebec) = (tempfile::tempdir().unwrap(), built::xebec()?);
        let lines = |path: &dyn Fn(usize) -> String, number: bool| {
            let mut text = String::new();
            for (n, case) in cases.iter().enumerate() {
                for line in *case {
                    let line = line.replace('@', &path(n));
                    text += &if number { format!("{n} {line}\n") } else { format!("{line}\n") };
                }
            }
            text
        };
        let file = folder.path().join("lines");
        std::fs::write(&file, lines(&|_| "./".into(), true)).unwrap();
        let last = (cases.len() - 1).to_string();
        let arguments = [folder.path(), Path::new(&last), Path::new(make), &file, Path::new(functions)];
        let answers = script(BEGIN, &arguments);
        let twins = Self { folder, xebec };
        let own = twins.session(&lines(&|n| format!("/{n}/"), false));
        let all = cases.iter().enumerate().flat_map(|(n, case)| case.iter().map(move |line| (n, line)));
        let mut differ = String::new();
        for ((at, (n, line)), answer) in all.enumerate().zip(answers.lines()) {
            let error = own.iter().find(|(number, _)| *number == at + 1);
            if answer.ends_with("failed") != error.is_some() {
                differ += &format!("case {n}, {line:?}: Linux: {answer:?}, Xebec: {error:?}\n");
            }
        }
        assert!(differ.is_empty(), "{differ}");
        Ok(twins)
    }

    /// Runs lines on the volume of Xebec. Returns the numbers and messages of those that failed.
    fn session(&self, lines: &str) -> Vec<(usize, String)> {
        let mut sh = needs::own(&self.xebec);
        sh.arg("sh").arg(self.folder.path().join("xebec")).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut sh = sh.spawn().unwrap();
        sh.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let stderr = String::from_utf8(sh.wait_with_output().unwrap().stderr).unwrap();
        let failures = stderr.lines().filter_map(|line| {
            let (_, rest) = line.split_once("line ")?;
            Some((rest.split_once(':')?.0.parse().ok()?, rest.to_owned()))
        });
        failures.collect()
    }

    /// Returns the output of a command of Linux on its own volume, and on Xebec's.
    pub fn show(&self, command: &str) -> (String, String) {
        script(SHOW, &[self.folder.path(), Path::new(command)]);
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap();
        (read("linux.shown"), read("xebec.shown"))
    }

    /// Returns the output of a command of Xebec on the volume that Linux changed.
    pub fn ours(&self, command: &str, arguments: &[&str]) -> String {
        let mut ours = needs::own(&self.xebec);
        let output =
            ours.arg(command).arg(self.folder.path().join("linux")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `xfs_repair -n`.
    pub fn judge(&self) {
        let image = self.folder.path().join("xebec");
        let output = needs::command("xfs_repair").args(["-n", "-f"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Compares two texts by paragraphs, in any order.
pub fn expect_same(left: &str, right: &str) {
    let parts = |text: &str| {
        let mut parts: Vec<String> = text.split("\n\n").map(|part| part.trim().to_owned()).collect();
        parts.sort();
        parts
    };
    let (left, right) = (parts(left), parts(right));
    for (left, right) in left.iter().zip(&right) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
}
