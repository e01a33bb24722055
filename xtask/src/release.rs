//! `xebec` and its benchmarks, optimized by a profile of what they do.
//!
//! A change of a volume runs through more code than a processor keeps at hand. A compiler that knows which of it runs
//! lays that out together, and leaves errors and rare forms aside: as much as all other optimization after the first.
//! The same sources and the same training give nearly the same profile; what a program does is not touched by it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::packages::packages;
use crate::target;

/// What the benchmarks do, without peers and so without root.
const WORK: [&str; 8] = [
    "engine --only namespace",
    "engine --only commits --smoke",
    "engine --only recovery --smoke",
    "engine --only finobt --inodes 100000",
    "contents --only small",
    "contents --only attributes",
    "contents --only cached",
    "contents --only stream --smoke",
];

/// What the program does, in the training's folder; `SOURCE` is a tree of many thousand files.
const COMMANDS: [&str; 9] = [
    "create tree.xfs --from SOURCE",
    "sync SOURCE tree.xfs",
    "info tree.xfs",
    "check tree.xfs",
    "ls -lR tree.xfs",
    "find tree.xfs / -type f",
    "extract tree.xfs --to tree.tar",
    "create --force tree.xfs --from tree.tar",
    "tar-out tree.xfs",
];

/// `release`: builds, watches a training, builds again by what was seen.
pub fn run(root: &Path) -> Result<()> {
    let toolchain = Toolchain::of(root)?;
    let folder = target(root).join("trained");
    let (training, seen) = (folder.join("training"), folder.join("seen"));
    for folder in [&training, &seen] {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    eprintln!("building programs that count what they do (1 of 3)");
    let built = toolchain.build(root, &folder.join("counting"), &flag("-Cprofile-generate=", &seen))?;
    eprintln!("training (2 of 3)");
    train(root, &built, &training)?;
    let profile = folder.join("profile.profdata");
    run_quietly(Command::new(&toolchain.profdata).args(["merge", "-o"]).args([&profile, &seen]))?;
    eprintln!("building by the profile (3 of 3)");
    let built = toolchain.build(root, &folder.join("build"), &flag("-Cprofile-use=", &profile))?;
    for program in ["xebec", "xebec-bench"] {
        let (from, to) = (built.join(program), folder.join(program));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        println!("{}", to.display());
    }
    std::fs::remove_dir_all(&training).with_context(|| format!("cannot remove {}", training.display()))
}

fn train(root: &Path, built: &Path, folder: &Path) -> Result<()> {
    for work in WORK {
        let mut bench = Command::new(built.join("xebec-bench"));
        bench.args(work.split(' ')).args(["--alone", "--rounds", "1", "--images"]).arg(folder);
        run_quietly(&mut bench)?;
    }
    let source = dependencies(root)?;
    for command in COMMANDS {
        let words = command.split(' ').map(|word| match word {
            "SOURCE" => source.clone().into_os_string(),
            word => word.into(),
        });
        run_quietly(Command::new(built.join("xebec")).args(words).current_dir(folder))?;
    }
    Ok(())
}

/// Where the sources of all dependencies lie: a tree that every machine has on which this was built.
fn dependencies(root: &Path) -> Result<PathBuf> {
    let packages = packages(root)?;
    let fetched = packages.iter().find(|package| package["source"].is_string());
    let manifest = fetched.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent()?.parent());
    folder.map(PathBuf::from).context("cargo metadata lists no dependency")
}

/// The compiler, and the tool of its own version that reads its profiles.
struct Toolchain {
    host: String,
    profdata: PathBuf,
}

impl Toolchain {
    fn of(root: &Path) -> Result<Self> {
        let ask = |question: &[&str]| {
            let output = Command::new("rustc").args(question).current_dir(root).output().context("rustc")?;
            String::from_utf8(output.stdout).context("rustc's answer")
        };
        let about = ask(&["-vV"])?;
        let host =
            about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let profdata = sysroot.join("lib/rustlib").join(host).join("bin/llvm-profdata");
        ensure!(
            profdata.exists(),
            "{} is not there: `rustup component add llvm-tools` installs it",
            profdata.display()
        );
        Ok(Self { host: host.into(), profdata })
    }

    /// Builds both programs with one more flag for what runs on the host, and gives the folder where they lie.
    fn build(&self, root: &Path, folder: &Path, flag: &OsString) -> Result<PathBuf> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--release", "--locked", "-p", "xebec-cli", "-p", "xebec-bench"]);
        // With a target named, Cargo spares the programs that run while it builds the flag.
        cargo.args(["--target", &self.host, "--target-dir"]).arg(folder);
        let status =
            cargo.env("CARGO_ENCODED_RUSTFLAGS", flag).current_dir(root).status().context("cargo")?;
        ensure!(status.success(), "the build failed");
        Ok(folder.join(&self.host).join("release"))
    }
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

fn run_quietly(command: &mut Command) -> Result<()> {
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, messages.trim());
    Ok(())
}
