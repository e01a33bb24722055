//! Xebec beside its peers, in one run, on the same image, by ratio.
//!
//! | part | subject |
//! |---|---|
//! | [`benches`] | what is compared with what, and the ratio to reach |
//! | [`engine`] | the engine's rates of changes, beside the kernel's |
//! | [`contents`] | rates of reading and writing contents and attributes, beside the kernel's |
//! | [`create`] | images of whole trees, beside what people use today |
//! | [`mounted`] | mounts, beside each other |
//! | [`side`] | a volume on either side, and what both can do |
//! | [`measure`] | one run of a command: time, processor time, peak memory |
//! | [`images`] | the images: ready ones, or made through the kernel |
//! | [`mount`] | the kernel's mount of an image, in a namespace of our own |
//! | [`machine`] | what a report must say of where it was made |
//! | [`table`] | a row for each rate |
//! | [`report`] | the tables and the JSON |
//!
//! # How it is measured
//! Xebec and its peer take turns, so that a change in the machine's mood hits both. The image is read once before, so
//! that it lies in the page cache for both; one turn each goes unmeasured. The report gives medians with the lowest and
//! the highest run, and a ratio of medians: absolute numbers belong to one machine, ratios travel better.
#![forbid(unsafe_code)]

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
mod side;
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
    /// What to compare.
    #[arg(value_enum, default_value = "all")]
    bench: Choice,
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measured turns of each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Small images and one turn: whether the harness works, not how fast anything is.
    #[arg(long)]
    smoke: bool,
    /// Most inodes of the engine's experiments: ten million take some minutes and 7 GB of disk.
    #[arg(long, default_value_t = 10_000_000)]
    inodes: u32,
    /// Of the engine, of contents, of create and of mount, only parts with this in their names: namespace, collisions,
    /// commits, recovery, instructions, finobt; stream, cached, small, attributes; directory, empty; calls, stream,
    /// programs.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    only: String,
    /// Leave the peers out, and so the need for root: rates of Xebec alone, of `engine` and `contents`.
    #[arg(long)]
    alone: bool,
    /// Where the images are, and are made if they are not there [default: $XEBEC_BENCH_IMAGES, target/bench-images].
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// The xebec to measure [default: built from this checkout].
    #[arg(long, value_name = "PROGRAM")]
    xebec: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// `xebec check` and `xfs_repair -n`, a million inodes.
    Check,
    /// `xebec ls -lR` and `find -ls` on the kernel's mount, a million inodes.
    Ls,
    /// `xebec extract --to -` and `tar` reading the kernel's mount, 65,000 files.
    Extract,
    /// The engine's creates, unlinks and commits, and the kernel's XFS on a loop mount.
    Engine,
    /// Contents and attributes of files, and the kernel's XFS on a loop mount.
    Contents,
    /// `xebec create`, `mke2fs -d`, and the kernel's way.
    Create,
    /// `xebec mount`, fuse2fs, a server that does nothing, and the kernel's XFS on a loop mount.
    Mount,
    /// All of them.
    All,
}

/// As in the front end: the engine is measured as it is shipped.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    if measure::serve()? || engine::serve()? || mounted::nothing::serve()? {
        return Ok(());
    }
    let options = Options::parse();
    start_again(options.alone)?;
    if options.alone && !matches!(options.bench, Choice::Engine | Choice::Contents | Choice::All) {
        bail!("this compares programs and means nothing alone: --alone goes with `engine` and `contents`");
    }
    let setup = benches::Setup {
        xebec: match &options.xebec {
            Some(program) => program.clone(),
            None if options.alone => beside_this("xebec")?,
            None => build_xebec()?,
        },
        images: images::Images::new(options.images.clone().or_else(ready_images), options.smoke)?,
        rounds: if options.smoke { 1 } else { options.rounds },
    };
    let mut report = report::Report::new(machine::describe(&setup.xebec)?, options.smoke);
    report.print_head();
    let chosen = |choice| match options.bench {
        Choice::All => !options.alone || matches!(choice, Choice::Engine | Choice::Contents),
        bench => bench == choice,
    };
    if chosen(Choice::Check) {
        report.add(benches::check(&setup)?);
    }
    if chosen(Choice::Ls) {
        report.add(benches::ls(&setup)?);
    }
    if chosen(Choice::Extract) {
        report.add(benches::extract(&setup)?);
    }
    let folder = || setup.images.folder().join("engine");
    if chosen(Choice::Engine) {
        let scale = engine::Scale::new(folder(), setup.rounds, options.inodes, options.alone, options.smoke);
        engine::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Choice::Contents) {
        let scale = contents::Scale::new(folder(), setup.rounds, options.alone, options.smoke);
        contents::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Choice::Create) {
        let scale = create::Scale::new(folder(), setup.xebec.clone(), setup.rounds, options.smoke);
        create::run(&scale, &options.only, report.rates())?;
    }
    if chosen(Choice::Mount) {
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

/// Starts this program again, with memory that it keeps; where peers are mounted as root, in a mount namespace of its
/// own: whatever happens, no mount outlives it.
fn start_again(alone: bool) -> anyhow::Result<()> {
    const MARK: &str = "XEBEC_BENCH_AGAIN";
    if std::env::var_os(MARK).is_some() {
        return Ok(());
    }
    if !alone && !rustix::process::geteuid().is_root() {
        bail!(
            "the benchmarks need root: the kernel makes the images and mounts them for the peers \
             (run them as root, or as `sudo -E cargo run --release -p xebec-bench`)"
        );
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let mut again = if alone { Command::new(program) } else { in_namespace(&program) };
    again.args(std::env::args_os().skip(1)).env(MARK, "1").env(measure::MEMORY_KEPT, "-1");
    Err(again.exec()).with_context(|| format!("cannot run {}", again.get_program().display()))
}

fn in_namespace(program: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]).arg(program);
    unshare
}

/// Builds `xebec` in this program's own profile and returns where it lies: beside this program.
fn build_xebec() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", "xebec-cli", "--bin", "xebec"]);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("xebec does not build");
    }
    let beside = beside_this("xebec")?;
    if !beside.exists() {
        bail!("{} is not there after building it (say where with --xebec)", beside.display());
    }
    Ok(beside)
}

fn beside_this(name: &str) -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe().context("the path of this program")?.with_file_name(name))
}
