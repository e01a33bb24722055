//! Crashes Xebec: runs of random operations, the power cut at every write of each.
//!
//! `xebec-crashsim --seed 7` runs one seed, `--runs 100` a hundred from it on; a wrong state is kept in a folder, and
//! `xebec-crashsim --judge FOLDER` judges it again.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use crashsim::engine::Engine;
use crashsim::shape::{SHAPES, Shape};
use crashsim::{Builder, Choice, Counts, Depth, Wrong, judge, judge_run, keep, one, run, standard, states};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Cuts the power at every write of a run, and judges what is left")]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs, each with the next seed.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Stop after so many states.
    #[arg(long)]
    states: Option<usize>,
    /// Begin no run after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Judge this state of the run alone.
    #[arg(long)]
    state: Option<usize>,
    /// The shape of the volume; each seed has its own without it.
    #[arg(long)]
    shape: Option<String>,
    /// Threads that work; each seed has its own number without it.
    #[arg(long)]
    threads: Option<usize>,
    /// Operations of each thread.
    #[arg(long)]
    operations: Option<usize>,
    /// Workers that judge.
    #[arg(long)]
    workers: Option<usize>,
    /// States of one run at most, spread over it; 0 for all.
    #[arg(long, default_value_t = 0)]
    most: usize,
    /// Where wrong states are kept.
    #[arg(long, default_value = "crash-states")]
    keep: PathBuf,
    /// Judge the state that was kept in this folder.
    #[arg(long)]
    judge: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.judge {
        Some(folder) => judge_kept(&args, folder),
        None => campaign(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn shape(args: &Args, seed: u64) -> Result<Shape, String> {
    match &args.shape {
        None => Ok(standard::shape(seed)),
        Some(name) => Shape::named(name).ok_or_else(|| {
            let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
            format!("no shape is called {name}: {}", names.join(", "))
        }),
    }
}

fn judge_kept(args: &Args, folder: &Path) -> Result<(), String> {
    let (image, run) = keep::load(folder)?;
    if args.shape.is_none() {
        return Err("the shape of a kept state is needed: --shape".into());
    }
    let engine = Engine { shape: shape(args, args.seed)? };
    let depth = Depth { through_engine: true, nested: 20 };
    let verdict = judge(&engine, &run, &image, &run.least(0), depth)?;
    println!(
        "right: {:?} steps survived, {} cuts of the recovery are right",
        verdict.lengths, verdict.nested
    );
    Ok(())
}

fn campaign(args: &Args) -> Result<(), String> {
    let started = Instant::now();
    let mut sum = Counts::default();
    for seed in args.seed..args.seed.saturating_add(args.runs) {
        sum += run_seed(args, seed)?;
        let enough = args.states.is_some_and(|states| sum.states + sum.nested >= states);
        let late = args.seconds.is_some_and(|seconds| started.elapsed() >= Duration::from_secs(seconds));
        if enough || late {
            break;
        }
    }
    let rate = (sum.states + sum.nested) as f64 / started.elapsed().as_secs_f64();
    println!(
        "{} runs of {} operations, {} syncs, {} writes and flushes: {} crash states and {} of their recoveries are \
         right, {rate:.0} a second; {} held more than was synced, {} less than was done",
        sum.runs, sum.operations, sum.syncs, sum.events, sum.states, sum.nested, sum.beyond, sum.short
    );
    Ok(())
}

fn run_seed(args: &Args, seed: u64) -> Result<Counts, String> {
    let engine = Engine { shape: shape(args, seed)? };
    let mut workload = standard::workload(seed);
    workload.threads = args.threads.unwrap_or(workload.threads);
    workload.operations = args.operations.unwrap_or(workload.operations);
    let workers = args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let choice = Choice { workers, states: args.most, ..standard::choice(seed) };
    let name = engine.shape.name;
    let run = run(&engine, &workload).map_err(|why| format!("seed {seed} ({name}): {why}"))?;
    let result = match args.state {
        None => judge_run(&engine, &run, &choice),
        Some(index) => {
            let all = states(&run.recording, choice.random, choice.seed);
            let state = all.get(index).ok_or_else(|| format!("the run has {} states", all.len()))?;
            let image = Builder::new(&run.before, &run.recording).build(state);
            one(&engine, &run, &choice, state, image)
        }
    };
    match result {
        Ok(counts) => {
            println!(
                "seed {seed} ({name}, {} threads): {} writes and flushes, {} syncs, {} states, {} of recoveries",
                workload.threads, counts.events, counts.syncs, counts.states, counts.nested
            );
            Ok(counts)
        }
        Err(wrong) => Err(wrong_state(args, seed, name, &run, &wrong)),
    }
}

fn wrong_state(args: &Args, seed: u64, shape: &str, run: &crashsim::Run, wrong: &Wrong) -> String {
    let folder = args.keep.join(format!("seed-{seed}-state-{}", wrong.state.index));
    let kept = match keep::save(&folder, run, wrong) {
        Ok(()) => format!("judge it again: xebec-crashsim --shape {shape} --judge {}", folder.display()),
        Err(why) => format!("not kept: {why}"),
    };
    format!("seed {seed} ({shape}), {:?}:\n{}\n{kept}", wrong.state, wrong.why)
}
