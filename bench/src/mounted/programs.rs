//! Programs on a mount: tar, git and a C compiler, on generated sources.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Results, Scale};
use crate::child;
use crate::measure::MeasuredCommand;

/// Names of the tasks in the report.
pub const UNTAR: &str = "tar x of a repository with its sources";
pub const STATUS: &str = "git status of it";
pub const BUILD: &str = "make of its C program, -j2";

/// Number of source files of the C program.
const SOURCES: u32 = 60;

/// Path of the archive.
fn archive(scale: &Scale) -> PathBuf {
    scale.folder.join("repository.tar")
}

/// Creates the archive: text files and a C program in a git repository.
pub fn prepare(scale: &Scale) -> anyhow::Result<()> {
    let tree = scale.folder.join("repository");
    // Left by an earlier run.
    let _ = std::fs::remove_dir_all(&tree);
    for number in 0..scale.texts {
        let folder = tree.join(format!("texts/{}/{}", number / 400, number / 40 % 10));
        std::fs::create_dir_all(&folder)?;
        let line = format!("This is line {number} of a text that says little.\n");
        std::fs::write(folder.join(format!("text{number}")), line.repeat(1 + number as usize % 100))?;
    }
    program(&tree.join("program"))?;
    git(&tree, &["init", "-q", "--template="])?;
    git(&tree, &["add", "."])?;
    git(&tree, &["commit", "-q", "-m", "All of it"])?;
    MeasuredCommand::new(["tar", "-C"]).with(&tree).with("-cf").with(archive(scale)).with(".").measure()?;
    Ok(std::fs::remove_dir_all(&tree)?)
}

fn program(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    let mut objects = String::new();
    for number in 0..SOURCES {
        let mut source = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for function in 0..20 {
            writeln!(
                source,
                "int f{number}_{function}(int n) {{ int s = 0; for (int i = 0; i < n; i++) s += i ^ {function}; \
                 return s; }}"
            )?;
        }
        std::fs::write(folder.join(format!("part{number}.c")), source)?;
        writeln!(main, "int f{number}_0(int);")?;
        writeln!(calls, "s += f{number}_0({number});")?;
        write!(objects, " part{number}.o")?;
    }
    writeln!(main, "int main(void) {{ int s = 0;\n{calls}printf(\"%d\\n\", s); return 0; }}")?;
    std::fs::write(folder.join("main.c"), main)?;
    let make = format!("program: main.o{objects}\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -O0 -c -o $@ $<\n");
    Ok(std::fs::write(folder.join("Makefile"), make)?)
}

fn git(tree: &Path, words: &[&str]) -> anyhow::Result<()> {
    let status = child::git(tree, words).status().context("git (apt install git)")?;
    anyhow::ensure!(status.success(), "git {words:?}: {status}");
    Ok(())
}

/// Runs the programs.
pub fn all(scale: &Scale, root: &Path, results: &mut Results) -> anyhow::Result<()> {
    let tree = root.join("repository");
    std::fs::create_dir(&tree)?;
    let untar = MeasuredCommand::new(["tar", "-xf"]).with(archive(scale)).with("-C").with(&tree);
    results.add(UNTAR, untar.measure()?.wall_s);
    let status = MeasuredCommand::from(&child::git(&tree, &["status", "--porcelain"]));
    // The first run reads contents, because timestamps differ from the repository's index.
    status.measure()?;
    results.add(STATUS, status.measure()?.wall_s);
    let make = MeasuredCommand::new(["make", "-s", "-j2"]).within(&tree.join("program"));
    results.add(BUILD, make.measure()?.wall_s);
    Ok(())
}

/// Removes the archive.
pub fn clear(scale: &Scale) {
    // A file that cannot be removed does no harm.
    let _ = std::fs::remove_file(archive(scale));
}
