//! Benchmarks: Xebec and its peers in one run, on the same image. Results are ratios.
//!
//! | module | subject |
//! |---|---|
//! | [`benches`] | check, ls, extract: Xebec's command and its peer |
//! | [`engine`] | rates of metadata changes, compared with the kernel's |
//! | [`contents`] | reading and writing file contents and attributes, compared with the kernel's |
//! | [`create`] | images of whole trees, compared with other tools |
//! | [`mounted`] | mounts of different file systems |
//! | [`bench_volume`] | a volume of Xebec or of the kernel, with the same operations |
//! | [`measure`] | one run of a command: time, CPU time, peak memory |
//! | [`images`] | images of the benchmarks |
//! | [`mount`] | read-only mount of an image by the kernel |
//! | [`machine`] | description of the machine |
//! | [`table`] | rows of results |
//! | [`report`] | output as text and JSON |
//!
//! # Method
//! Xebec and its peer run alternately, so that other load on the machine affects both. The image is in the page cache
//! for both, and the first run of each is not counted. The report gives medians with the lowest and the highest run,
//! and the ratio of the medians, which depends less on the machine than absolute numbers do.
#![forbid(unsafe_code)]

mod bench_volume;
mod benches;
mod contents;
mod create;
mod engine;
mod images;
mod machine;
mod measure;
mod mount;
mod mounted;
mod report;
mod table;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};

/// Runs Xebec and its peers side by side. Needs root: the kernel mounts the images for the peers.
#[derive(Parser)]
#[command(name = "xebec-bench")]
struct Options {
    /// Benchmark to run.
    #[arg(value_enum, default_value = "all")]
    bench: Benchmark,
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measured runs of each side.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Test the harness: small images and one run. The results mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Maximum number of inodes in `engine` and `contents`: ten million take some minutes and 7 GB of disk.
    #[arg(long, default_value_t = 10_000_000)]
    inodes: u32,
    /// Numbers of threads that `engine` compares with one thread.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    threads: Vec<u32>,
    /// Measure only parts whose names contain NAME. `engine`: namespace, stat, open, list, walks, tmpfiles, collisions,
    /// commits, recovery, instructions, finobt; `contents`: stream, cached, small, attributes, reclaim, sync; `create`:
    /// directory, sync, empty; `mount`: calls, stream, programs.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    only: String,
    /// Measure Xebec without peers, which needs no root (`engine` and `contents` only).
    #[arg(long)]
    alone: bool,
    /// Directory of the images, which are created if they do not exist [default: $XEBEC_BENCH_IMAGES,
    /// target/bench-images].
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Program to measure [default: xebec, built from this checkout].
    #[arg(long, value_name = "PROGRAM")]
    xebec: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// `xebec check`, one million inodes; peer: `xfs_repair -n`.
    Check,
    /// `xebec ls -lR`, one million inodes; peer: `find -ls` on the kernel's mount.
    Ls,
    /// `xebec extract --to -`, 65,000 files; peer: `tar` on the kernel's mount.
    Extract,
    /// Creates, unlinks and commits; peer: the kernel's XFS on a loop mount.
    Engine,
    /// File contents and attributes; peer: the kernel's XFS on a loop mount.
    Contents,
    /// `xebec create`; peers: `mke2fs -d`, and mkfs.xfs with a loop mount and tar.
    Create,
    /// `xebec mount`; peers: fuse2fs, a FUSE server that does nothing, the kernel's XFS on a loop mount.
    Mount,
    /// All benchmarks.
    All,
}

/// The allocator of the command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    if measure::serve()? || engine::serve()? || mounted::nothing::serve()? {
        return Ok(());
    }
    let options = Options::parse();
    restart(options.alone)?;
    if options.alone && !matches!(options.bench, Benchmark::Engine | Benchmark::Contents | Benchmark::All) {
        bail!("--alone is supported by `engine` and `contents` only");
    }
    let setup = benches::Setup {
        xebec: match &options.xebec {
            Some(program) => program.clone(),
            None if options.alone => sibling("xebec")?,
            None => build_xebec()?,
        },
        images: images::Images::new(options.images.clone().or_else(ready_images), options.smoke)?,
        rounds: if options.smoke { 1 } else { options.rounds },
    };
    let mut report = report::Report::new(machine::describe(&setup.xebec)?, options.smoke);
    report.print_head();
    let chosen = |benchmark| match options.bench {
        Benchmark::All => !options.alone || matches!(benchmark, Benchmark::Engine | Benchmark::Contents),
        bench => bench == benchmark,
    };
    if chosen(Benchmark::Check) {
        report.add(benches::check(&setup)?);
    }
    if chosen(Benchmark::Ls) {
        report.add(benches::ls(&setup)?);
    }
    if chosen(Benchmark::Extract) {
        report.add(benches::extract(&setup)?);
    }
    let folder = || setup.images.folder().join("engine");
    if chosen(Benchmark::Engine) {
        let sizes = (setup.rounds, options.inodes);
        let scale = engine::Scale::new(folder(), sizes, &options.threads, options.alone, options.smoke);
        engine::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Benchmark::Contents) {
        let scale =
            contents::Scale::new(folder(), (setup.rounds, options.inodes), options.alone, options.smoke);
        contents::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Benchmark::Create) {
        let scale = create::Scale::new(folder(), setup.xebec.clone(), setup.rounds, options.smoke);
        create::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Benchmark::Mount) {
        let scale = mounted::Scale::new(folder(), setup.xebec.clone(), setup.rounds, options.smoke);
        mounted::run(&scale, &options.only, report.rates())?;
    }
    report.print_foot();
    if let Some(file) = &options.json {
        report.write_json(file)?;
    }
    Ok(())
}

fn ready_images() -> Option<PathBuf> {
    std::env::var_os("XEBEC_BENCH_IMAGES").map(PathBuf::from)
}

/// Executes this program again, with an allocator that keeps freed memory. With peers it gets a mount namespace of its
/// own, so that no mount outlives it.
fn restart(alone: bool) -> anyhow::Result<()> {
    const RESTARTED: &str = "XEBEC_BENCH_AGAIN";
    if std::env::var_os(RESTARTED).is_some() {
        return Ok(());
    }
    if !alone && !rustix::process::geteuid().is_root() {
        bail!(
            "the benchmarks need root: the kernel makes the images and mounts them for the peers \
             (run them as root, or as `sudo -E cargo run --release -p xebec-bench`)"
        );
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = if alone { Command::new(program) } else { in_namespace(&program) };
    command.args(std::env::args_os().skip(1)).env(RESTARTED, "1").env(measure::PURGE_DELAY_VARIABLE, "-1");
    Err(command.exec()).with_context(|| format!("cannot run {}", command.get_program().display()))
}

fn in_namespace(program: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]).arg(program);
    unshare
}

/// Builds `xebec` in the profile of this program, and returns its path.
fn build_xebec() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", "xebec-cli", "--bin", "xebec"]);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("building xebec failed");
    }
    let xebec = sibling("xebec")?;
    if !xebec.exists() {
        bail!("{} does not exist after the build (use --xebec)", xebec.display());
    }
    Ok(xebec)
}

/// Path of a program in the directory of this one.
fn sibling(name: &str) -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe().context("the path of this program")?.with_file_name(name))
}
