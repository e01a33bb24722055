//! Commands of Xebec beside those of Linux that have their names: the same words, the same files afterwards.
//!
//! | part | subject |
//! |---|---|
//! | this file | a volume on which Linux did it, and one on which Xebec did |
//! | [`acl`] | `setfacl`, `getfacl`, and what `chmod` does to lists |
//! | [`copy`] | `cp`, in all directions, beside that of GNU |
//! | [`everyday`] | what the other commands change, beside those of GNU |
//! | [`find`] | expressions of `find` beside those of GNU |
//! | [`flags`] | `chattr`, `lsattr`, `project`, `extsize`, and what all calls make of flags and projects |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod acl;
mod copy;
mod everyday;
mod find;
mod flags;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use interop::built;
use tempfile::TempDir;

/// Makes two volumes `$1/linux` and `$1/xebec`, and in each a folder `0`, `1`, ... `$2` with what `$3` makes there.
/// Then it runs the lines of `$4` on the first, by the words of `$5`.
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

/// Shows both volumes by the command `$2`.
const SHOW: &str = r#"
cd "$1"
for volume in linux xebec; do
    mount -t xfs -o loop,nouuid $volume mnt
    (cd mnt; eval "$2") > $volume.shown
    umount mnt
done
"#;

/// Two volumes.
pub struct Twins {
    folder: TempDir,
    xebec: PathBuf,
}

/// Runs a script in a mount namespace of its own; gives what it prints.
fn script(text: &str, arguments: &[&Path]) -> String {
    let mut command = needs::script("-eu", text, "commands");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Twins {
    /// Makes the volumes, and runs each case's lines on both: those of case `n` in the folder `/n`, in which `make`
    /// made what they work on. In a line, `@` stands before each path. Both must fail, or not, alike.
    pub fn run(make: &str, cases: &[&[&str]], tools: &[&str]) -> Result<Self, String> {
        Self::run_with("", make, cases, tools)
    }

    /// The same, where `words` tells Linux what to do for commands that it has by other names.
    pub fn run_with(words: &str, make: &str, cases: &[&[&str]], tools: &[&str]) -> Result<Self, String> {
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
        let arguments = [folder.path(), Path::new(&last), Path::new(make), &file, Path::new(words)];
        let answers = script(BEGIN, &arguments);
        let twins = Self { folder, xebec };
        let own = twins.session(&lines(&|n| format!("/{n}/"), false));
        let all = cases.iter().enumerate().flat_map(|(n, case)| case.iter().map(move |line| (n, line)));
        let mut differ = String::new();
        for ((at, (n, line)), answer) in all.enumerate().zip(answers.lines()) {
            let told = own.iter().find(|(number, _)| *number == at + 1);
            if answer.ends_with("failed") != told.is_some() {
                differ += &format!("case {n}, {line:?}: Linux says {answer:?}, Xebec {told:?}\n");
            }
        }
        assert!(differ.is_empty(), "{differ}");
        Ok(twins)
    }

    /// Runs lines on the volume of Xebec; gives the numbers of those that failed, with what was said.
    fn session(&self, lines: &str) -> Vec<(usize, String)> {
        let mut sh = needs::own(&self.xebec);
        sh.arg("sh").arg(self.folder.path().join("xebec")).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut sh = sh.spawn().unwrap();
        sh.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let said = String::from_utf8(sh.wait_with_output().unwrap().stderr).unwrap();
        let failures = said.lines().filter_map(|line| {
            let (_, rest) = line.split_once("line ")?;
            Some((rest.split_once(':')?.0.parse().ok()?, rest.to_owned()))
        });
        failures.collect()
    }

    /// What Linux shows of its own volume, and of Xebec's, by a command.
    pub fn show(&self, command: &str) -> (String, String) {
        script(SHOW, &[self.folder.path(), Path::new(command)]);
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap();
        (read("linux.shown"), read("xebec.shown"))
    }

    /// What Xebec shows of the volume that Linux changed.
    pub fn ours(&self, command: &str, arguments: &[&str]) -> String {
        let mut ours = needs::own(&self.xebec);
        let output =
            ours.arg(command).arg(self.folder.path().join("linux")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// `xfs_repair -n` has no complaint.
    pub fn judge(&self) {
        let image = self.folder.path().join("xebec");
        let output = needs::command("xfs_repair").args(["-n", "-f"]).arg(image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Both are the same, part by part: parts end with an empty line, and come in any order.
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
