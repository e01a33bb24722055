//! Crashes Xebec: runs of random operations, the power cut at every write of each.
//!
//! `xebec-crashsim --seed 7` runs one seed, `--runs 100` a hundred from it on; a wrong state is kept in a folder, and
//! `xebec-crashsim --judge FOLDER` judges it again. With `--log FILE` each seed is noted there when it is done, a wrong
//! one too, and the next call goes on where this one was stopped.
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
use crashsim::short::{Short, Volumes, short};
use crashsim::{Builder, Choice, Counts, Depth, Image, Workload, Wrong};
use crashsim::{judge, judge_run, keep, one, run, run_on, standard};

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
    /// Short runs, on volumes whose logs were used before: far more states in the same time.
    #[arg(long)]
    short: bool,
    /// The shape of the volume; each seed has its own without it.
    #[arg(long, conflicts_with = "short")]
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
    /// Note each seed in this file, and leave out those that are in it. A wrong state does not end the campaign.
    #[arg(long)]
    log: Option<PathBuf>,
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
    let (mut log, mut sum) = (args.log.as_deref().map(Noted::open).transpose()?, Counts::default());
    let volumes = Volumes::default();
    let before = log.as_ref().map_or(0, |log| log.states);
    let mut wrong = Vec::new();
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
            Err(why) => wrong.push(why),
        }
    }
    let rate = (sum.states + sum.nested) as f64 / started.elapsed().as_secs_f64();
    println!(
        "{} runs of {} operations, {} syncs, {} writes and flushes: {} crash states and {} of their recoveries are \
         right, {rate:.0} a second; {} held more than was synced, {} less than was done; {} were like others",
        sum.runs,
        sum.operations,
        sum.syncs,
        sum.events,
        sum.states,
        sum.nested,
        sum.beyond,
        sum.short,
        sum.again
    );
    if before > 0 {
        println!("with those noted before: {}", before + sum.states + sum.nested);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n\n")) }
}

/// Seeds that are done.
struct Noted {
    file: File,
    seeds: HashSet<u64>,
    /// States of them, with those of recoveries.
    states: usize,
}

impl Noted {
    fn open(path: &Path) -> Result<Self, String> {
        let words = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(words)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(words)?;
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
                counts.operations, counts.syncs, counts.events, counts.states, counts.nested, counts.again
            ),
            Err(why) => format!("seed {seed} is wrong: {}\n", why.replace('\n', " | ")),
        };
        self.file.write_all(line.as_bytes()).map_err(|error| format!("the log: {error}"))
    }
}

/// What a seed does, as the arguments change it, and the volume before, where it is not a fresh one.
fn what(
    args: &Args,
    volumes: &Volumes,
    seed: u64,
) -> Result<(Engine, Workload, Choice, Option<Image>), String> {
    let (shape, mut workload, choice, before) = match args.short {
        false => (shape(args, seed)?, standard::workload(seed), standard::choice(seed), None),
        true => {
            let Short { shape, used, workload, choice } = short(seed);
            let before = volumes.get(&shape, used).map_err(|why| format!("seed {seed}: {why}"))?;
            (shape, workload, choice, Some(before))
        }
    };
    workload.threads = args.threads.unwrap_or(workload.threads);
    workload.operations = args.operations.unwrap_or(workload.operations);
    let workers = args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Ok((Engine { shape }, workload, Choice { workers, states: args.most, ..choice }, before))
}

fn run_seed(args: &Args, volumes: &Volumes, seed: u64) -> Result<Counts, String> {
    let (engine, workload, choice, before) = what(args, volumes, seed)?;
    let name = engine.shape.name;
    let run = match before {
        None => run(&engine, &workload),
        Some(before) => run_on(&engine, &workload, before),
    };
    let run = run.map_err(|why| format!("seed {seed} ({name}): {why}"))?;
    let result = match args.state {
        None => judge_run(&engine, &run, &choice),
        Some(index) => {
            let all = choice.states_of(&run.recording);
            let state = all.get(index).ok_or_else(|| format!("the run has {} states", all.len()))?;
            let image = Builder::new(&run.before, &run.recording).build(state);
            one(&engine, &run, &choice, state, image).map(|(counts, _)| counts)
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
