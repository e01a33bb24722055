//! Simulates power cuts at every write of random workloads on Xebec.
//!
//! `xebec-crashsim --seed 7` runs one seed, `--seed 7 --runs 100` seeds 7 to 106. A failed state is kept in a folder,
//! and `xebec-crashsim --judge FOLDER` judges it again. With `--log FILE` each finished seed is recorded in a file,
//! even if it failed, and the next call continues where this one was stopped.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use crashsim::engine::Engine;
use crashsim::shape::{SHAPES, Shape};
use crashsim::short::{ShortRun, Volumes, short_run};
use crashsim::{Counts, Depth, FailedState, Image, JudgeOptions, StateBuilder, Workload};
use crashsim::{judge, judge_run, judge_state, keep, run, run_on, standard};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Simulate a power cut at every write of a run, and judge each resulting state")]
struct Args {
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs, with consecutive seeds.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Stop after this number of states.
    #[arg(long)]
    states: Option<usize>,
    /// Start no run after this number of seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Judge only this state of the run.
    #[arg(long)]
    state: Option<usize>,
    /// Do short runs on volumes with used logs: far more states in the same time.
    #[arg(long)]
    short: bool,
    /// Shape of the volume [default: by the seed].
    #[arg(long, conflicts_with = "short")]
    shape: Option<String>,
    /// Number of threads of the workload [default: by the seed].
    #[arg(long)]
    threads: Option<usize>,
    /// Operations of each thread [default: by the seed].
    #[arg(long)]
    operations: Option<usize>,
    /// Number of threads that judge states [default: one per CPU].
    #[arg(long)]
    workers: Option<usize>,
    /// Maximum number of states of one run, spread over it; 0 for all.
    #[arg(long, default_value_t = 0)]
    most: usize,
    /// Record finished seeds in this file, and skip those that are in it. A failed state does not end the campaign.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Folder for failed states.
    #[arg(long, default_value = "crash-states")]
    keep: PathBuf,
    /// Judge the state that was kept in this folder; needs --shape.
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
            format!("unknown shape `{name}`; known shapes: {}", names.join(", "))
        }),
    }
}

fn judge_kept(args: &Args, folder: &Path) -> Result<(), String> {
    let (image, run) = keep::load(folder)?;
    if args.shape.is_none() {
        return Err("--judge needs the shape of the volume: add --shape NAME".into());
    }
    let engine = Engine { shape: shape(args, args.seed)? };
    let depth = Depth { through_engine: true, nested: 20 };
    let verdict = judge(&engine, &run, &image, &run.required(0), depth)?;
    println!("ok: {:?} operations survived; {} cuts of the recovery are ok", verdict.lengths, verdict.nested);
    Ok(())
}

fn campaign(args: &Args) -> Result<(), String> {
    let started = Instant::now();
    let (mut log, mut sum) = (args.log.as_deref().map(SeedLog::open).transpose()?, Counts::default());
    let volumes = Volumes::default();
    let before = log.as_ref().map_or(0, |log| log.states);
    let mut failed = Vec::new();
    for seed in args.seed..args.seed.saturating_add(args.runs) {
        let enough = args.states.is_some_and(|states| before + sum.states + sum.nested >= states);
        let late = args.seconds.is_some_and(|seconds| started.elapsed() >= Duration::from_secs(seconds));
        if enough || late {
            break;
        }
        let Some(log) = &mut log else {
            sum += run_seed(args, &volumes, seed)?;
            continue;
        };
        if log.seeds.contains(&seed) {
            continue;
        }
        let result = run_seed(args, &volumes, seed);
        log.note(seed, &result)?;
        match result {
            Ok(counts) => sum += counts,
            Err(why) => failed.push(why),
        }
    }
    let rate = (sum.states + sum.nested) as f64 / started.elapsed().as_secs_f64();
    println!(
        "{} runs, {} operations, {} syncs, {} writes and flushes: {} crash states and {} of their recoveries are ok, \
         {rate:.0} per second; {} had more than was synced, {} less than was done; {} were duplicates",
        sum.runs,
        sum.operations,
        sum.syncs,
        sum.events,
        sum.states,
        sum.nested,
        sum.more_than_synced,
        sum.less_than_done,
        sum.duplicates
    );
    if before > 0 {
        println!("including those recorded before: {}", before + sum.states + sum.nested);
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n\n")) }
}

/// The file of finished seeds.
struct SeedLog {
    file: File,
    seeds: HashSet<u64>,
    /// Their states, including those of recoveries.
    states: usize,
}

impl SeedLog {
    fn open(path: &Path) -> Result<Self, String> {
        let message = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(message)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(message)?;
        let (mut seeds, mut states) = (HashSet::new(), 0);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |name: &str| {
                let at = words.iter().position(|word| *word == name)?;
                words.get(at + 1)?.parse::<u64>().ok()
            };
            seeds.extend(number("seed"));
            states += [number("states"), number("recoveries")].iter().flatten().sum::<u64>() as usize;
        }
        Ok(Self { file, seeds, states })
    }

    fn note(&mut self, seed: u64, result: &Result<Counts, String>) -> Result<(), String> {
        let line = match result {
            Ok(counts) => format!(
                "seed {seed} operations {} syncs {} events {} states {} recoveries {} again {}\n",
                counts.operations,
                counts.syncs,
                counts.events,
                counts.states,
                counts.nested,
                counts.duplicates
            ),
            Err(why) => format!("seed {seed} failed: {}\n", why.replace('\n', " | ")),
        };
        self.file.write_all(line.as_bytes()).map_err(|error| format!("the log: {error}"))
    }
}

/// Returns the workload of a seed with the options applied, and the initial volume if it is not a fresh one.
fn configuration(
    args: &Args,
    volumes: &Volumes,
    seed: u64,
) -> Result<(Engine, Workload, JudgeOptions, Option<Image>), String> {
    let (shape, mut workload, options, before) = match args.short {
        false => (shape(args, seed)?, standard::workload(seed), standard::options(seed), None),
        true => {
            let ShortRun { shape, log_use, workload, options } = short_run(seed);
            let before = volumes.get(&shape, log_use).map_err(|why| format!("seed {seed}: {why}"))?;
            (shape, workload, options, Some(before))
        }
    };
    workload.threads = args.threads.unwrap_or(workload.threads);
    workload.operations = args.operations.unwrap_or(workload.operations);
    let workers = args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Ok((Engine { shape }, workload, JudgeOptions { workers, states: args.most, ..options }, before))
}

fn run_seed(args: &Args, volumes: &Volumes, seed: u64) -> Result<Counts, String> {
    let (engine, workload, options, before) = configuration(args, volumes, seed)?;
    let name = engine.shape.name;
    let run = match before {
        None => run(&engine, &workload),
        Some(before) => run_on(&engine, &workload, before),
    };
    let run = run.map_err(|why| format!("seed {seed} ({name}): {why}"))?;
    let result = match args.state {
        None => judge_run(&engine, &run, &options),
        Some(index) => {
            let all = options.states_of(&run.recording);
            let state = all.get(index).ok_or_else(|| format!("the run has {} states", all.len()))?;
            let image = StateBuilder::new(&run.before, &run.recording).build(state);
            judge_state(&engine, &run, &options, state, image).map(|(counts, _)| counts)
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
        Err(failed) => Err(wrong_state(args, seed, name, &run, &failed)),
    }
}

fn wrong_state(
    args: &Args,
    seed: u64,
    shape: &str,
    run: &crashsim::RecordedRun,
    failed: &FailedState,
) -> String {
    let folder = args.keep.join(format!("seed-{seed}-state-{}", failed.state.index));
    let kept = match keep::save(&folder, run, failed) {
        Ok(()) => format!("to judge it again: xebec-crashsim --shape {shape} --judge {}", folder.display()),
        Err(why) => format!("cannot keep it: {why}"),
    };
    format!("seed {seed} ({shape}), {:?}:\n{}\n{kept}", failed.state, failed.why)
}
