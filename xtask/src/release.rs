//! Builds `xebec` with profile-guided optimization.
//!
//! A change of a volume executes more code than the instruction cache holds. With a profile, the compiler places the
//! code that runs together, and error paths and rare formats elsewhere. The same sources and training give nearly the
//! same profile. Programs behave the same with any profile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::packages::packages;
use crate::target;

/// Benchmarks of the training, without peers and so without root.
const BENCHMARKS: [&str; 8] = [
    "file-ops/namespace",
    "cil/commits --smoke",
    "engine/recovery --smoke",
    "finobt/after-frees --inodes 100000",
    "fs-mark/small",
    "contents/attributes",
    "contents/cached",
    "contents/stream --smoke",
];

/// Commands of the training; `SOURCE` is a tree of many thousand files.
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

/// `release`: builds instrumented programs, runs the training, and builds again with its profile.
pub fn run(root: &Path) -> Result<()> {
    let toolchain = Toolchain::of(root)?;
    let folder = target(root).join("trained");
    let (training, counts) = (folder.join("training"), folder.join("counts"));
    for folder in [&training, &counts] {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    eprintln!("building instrumented programs (1 of 3)");
    let built = toolchain.build(root, &folder.join("instrumented"), &flag("-Cprofile-generate=", &counts))?;
    eprintln!("training (2 of 3)");
    train(root, &built, &training)?;
    let profile = folder.join("profile.profdata");
    run_quietly(Command::new(&toolchain.profdata).args(["merge", "-o"]).args([&profile, &counts]))?;
    eprintln!("building with the profile (3 of 3)");
    let built = toolchain.build(root, &folder.join("build"), &flag("-Cprofile-use=", &profile))?;
    let (from, to) = (built.join("xebec"), folder.join("xebec"));
    std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    println!("{}", to.display());
    std::fs::remove_dir_all(&training).with_context(|| format!("cannot remove {}", training.display()))
}

fn train(root: &Path, built: &Path, folder: &Path) -> Result<()> {
    for benchmark in BENCHMARKS {
        let mut bench = Command::new(built.join("xebec"));
        bench
            .arg("bench")
            .args(benchmark.split(' '))
            .args(["--alone", "--rounds", "1", "--images"])
            .arg(folder);
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

/// The directory with the sources of all dependencies, which every machine has that built this program.
fn dependencies(root: &Path) -> Result<PathBuf> {
    let packages = packages(root)?;
    let dependency = packages.iter().find(|package| package["source"].is_string());
    let manifest = dependency.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent()?.parent());
    folder.map(PathBuf::from).context("cargo metadata lists no dependency")
}

/// The compiler's host triple, and the `llvm-profdata` of its version.
struct Toolchain {
    host: String,
    profdata: PathBuf,
}

impl Toolchain {
    fn of(root: &Path) -> Result<Self> {
        let rustc = |arguments: &[&str]| {
            let output = Command::new("rustc").args(arguments).current_dir(root).output().context("rustc")?;
            String::from_utf8(output.stdout).context("the output of rustc")
        };
        let version = rustc(&["-vV"])?;
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("rustc -vV prints no host")?;
        let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?.trim());
        let profdata = sysroot.join("lib/rustlib").join(host).join("bin/llvm-profdata");
        ensure!(profdata.exists(), "{} does not exist (rustup component add llvm-tools)", profdata.display());
        Ok(Self { host: host.into(), profdata })
    }

    /// Builds the program with one more compiler flag, and returns its directory.
    fn build(&self, root: &Path, folder: &Path, flag: &OsString) -> Result<PathBuf> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--release", "--locked", "-p", "xebec-cli"]);
        // With an explicit target, Cargo does not pass the flag to build scripts and procedural macros.
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
