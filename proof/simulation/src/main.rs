//! Explores schedules: `xebec-simulation --seconds 60` runs new seeds for a minute.
//!
//! Each worker process runs seed after seed and prints a line for each; a seed that fails ends it. The parent process
//! gives out seeds, collects what was found, and starts a new worker behind a seed that failed.
#![forbid(unsafe_code)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::aged::Volumes;
use simulation::{Limit, Scenario, Summary, run};

#[derive(Clone, Parser)]
#[command(
    about = "Runs the engine in orders of its threads' steps that a seed decides, and judges what comes of it"
)]
#[command(after_help = "Examples:\n  xebec-simulation --seconds 60            new seeds for a minute\n  \
    xebec-simulation --seed 17               one seed, with what it is\n  \
    xebec-simulation --shrink 17             the smallest scenario of this seed that still fails")]
struct Args {
    /// Run this seed alone, and print what it is.
    #[arg(long)]
    seed: Option<u64>,
    /// Look for a smaller scenario of this seed that fails as well.
    #[arg(long)]
    shrink: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many seeds.
    #[arg(long)]
    count: Option<u64>,
    /// Begin no seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Processes at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// End at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// Steps of each actor at most.
    #[arg(long)]
    steps: Option<usize>,
    /// A bit for each actor that takes part.
    #[arg(long)]
    actors: Option<u32>,
    /// Rounds at most.
    #[arg(long)]
    rounds: Option<usize>,
    /// Have one seed in so many judged by `xfs_repair -n`, too; 0 for none.
    #[arg(long, default_value_t = 20)]
    repair_in: u64,
    /// Run seeds in this process, a line for each.
    #[arg(long, hide = true)]
    worker: bool,
    /// From one seed to the next.
    #[arg(long, hide = true, default_value_t = 1)]
    stride: u64,
}

/// More processor time than any seed takes: a process that has worked for so long and says nothing, or has not worked
/// at all in so long, hangs.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.shrink, args.seed) {
        (Some(seed), _) => shrink(&args, seed),
        (None, Some(seed)) => one(&args, seed),
        (None, None) if args.worker => work(&args),
        (None, None) => campaign(&args),
    }
}

/// The seed that runs, for messages.
static SEED: AtomicU64 = AtomicU64::new(0);

fn fail(why: &str) -> ! {
    eprintln!("seed {}: {why}", SEED.load(SeqCst));
    // The other threads stand where they are: nothing can be unwound.
    std::process::abort()
}

impl Args {
    fn limit(&self) -> Limit {
        let all = Limit::default();
        Limit {
            steps: self.steps.unwrap_or(all.steps),
            actors: self.actors.unwrap_or(all.actors),
            rounds: self.rounds.unwrap_or(all.rounds),
        }
    }
}

fn run_seed(args: &Args, volumes: &Volumes, seed: u64) -> Summary {
    SEED.store(seed, SeqCst);
    let scenario = Scenario::of(seed).limited(args.limit());
    let repair = args.repair_in > 0 && seed.is_multiple_of(args.repair_in);
    run(&scenario, volumes, repair, fail).unwrap_or_else(|what| fail(&what))
}

/// A panic anywhere ends the process: a simulated thread cannot be unwound while others wait for it.
fn end_at_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        fail("a thread panicked")
    }));
}

fn one(args: &Args, seed: u64) -> ExitCode {
    end_at_panics();
    let scenario = Scenario::of(seed).limited(args.limit());
    println!("{scenario:#?}");
    println!("{:#?}", run_seed(args, &Volumes::default(), seed));
    ExitCode::SUCCESS
}

fn work(args: &Args) -> ExitCode {
    end_at_panics();
    let volumes = Volumes::default();
    let count = args.count.unwrap_or(u64::MAX - args.from);
    for seed in (args.from..args.from + count).step_by(args.stride.max(1) as usize) {
        let sum = run_seed(args, &volumes, seed);
        let Summary { steps, switches, stalls, cuts, transfers, faults, trace } = sum;
        println!("{seed} {steps} {switches} {stalls} {cuts} {transfers} {faults} {trace}");
    }
    ExitCode::SUCCESS
}

/// What all seeds came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    numbers: [u64; 6],
    failed: Vec<(u64, String)>,
}

fn campaign(args: &Args) -> ExitCode {
    let began = Instant::now();
    let late = || args.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds));
    let sum = Mutex::new(Sum::default());
    let failed = || !sum.lock().unwrap_or_else(PoisonError::into_inner).failed.is_empty();
    let ends = || late() || (args.first && failed());
    std::thread::scope(|scope| {
        for first in 0..args.jobs.max(1) as u64 {
            let (sum, ends) = (&sum, &ends);
            scope.spawn(move || share(args, args.from + first, sum, ends));
        }
    });
    let Sum { seeds, numbers: [steps, switches, stalls, cuts, transfers, faults], failed } =
        sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{seeds} seeds in {} s: {steps} steps, {switches} switches of threads, {stalls} threads stopped for a second, \
         {transfers} transfers, {faults} of them failed, {cuts} power cuts judged; {} seeds failed",
        began.elapsed().as_secs(),
        failed.len()
    );
    for (seed, _) in &failed {
        println!("failed: xebec-simulation --seed {seed}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn command(args: &Args) -> Option<Command> {
    let mut command = needs::own(std::env::current_exe().ok()?);
    let options = [
        ("--steps", args.steps.map(|steps| steps.to_string())),
        ("--actors", args.actors.map(|actors| actors.to_string())),
        ("--rounds", args.rounds.map(|rounds| rounds.to_string())),
    ];
    for (name, value) in options {
        command.args(value.iter().flat_map(|value| [name, value]));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// Runs one job's share of the seeds, from `next` on, in a process that keeps the volumes that it aged; another one
/// goes on behind a seed that fails.
fn share(args: &Args, mut next: u64, sum: &Mutex<Sum>, ends: &dyn Fn() -> bool) {
    let (end, stride) = (args.count.map_or(u64::MAX, |count| args.from + count), args.jobs.max(1) as u64);
    while next < end && !ends() {
        let Some(mut command) = command(args) else { return };
        let numbers = [next, end - next, stride].map(|number| number.to_string());
        command.args(["--worker", "--from", &numbers[0], "--count", &numbers[1], "--stride", &numbers[2]]);
        let Ok(mut child) = command.spawn() else { return };
        let (done, why) = watch(&mut child, sum, ends);
        next += done * stride;
        if let Some(why) = why {
            println!("seed {next} failed:\n{why}");
            sum.lock().unwrap_or_else(PoisonError::into_inner).failed.push((next, why));
            next += stride;
        } else if done == 0 {
            return;
        }
    }
}

/// How long a process has been running on a processor; nothing if it has ended.
fn worked(child: &Child) -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // Behind the name, which may hold spaces: the state, and ten numbers before the times of user and system.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS_PER_SECOND)
}

/// Reads what a process prints: how many seeds were done, and why the next one failed.
fn watch(child: &mut Child, sum: &Mutex<Sum>, ends: &dyn Fn() -> bool) -> (u64, Option<String>) {
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else { return (0, None) };
    let (lines, read) = mpsc::channel();
    let told = std::thread::spawn(move || {
        let mut text = String::new();
        // What cannot be read is not shown.
        let _ = err.read_to_string(&mut text);
        text
    });
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)));
    });
    let mut done = 0;
    let (mut since, mut before) = (worked(child), worked(child));
    let hangs = loop {
        match read.recv_timeout(PATIENCE) {
            Ok(line) => {
                since = worked(child);
                before = since;
                let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
                let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                sum.seeds += 1;
                sum.numbers.iter_mut().zip(numbers.iter().skip(1)).for_each(|(sum, number)| *sum += number);
                done += 1;
                drop(sum);
                if ends() {
                    let _ = child.kill();
                    let _ = child.wait();
                    return (done, None);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let now = worked(child);
                // On a busy machine it may get hardly any time.
                if now <= before || now.saturating_sub(since) > PATIENCE {
                    break true;
                }
                before = now;
            }
        }
    };
    if hangs {
        let _ = child.kill();
        let _ = child.wait();
        return (done, Some(format!("nothing happened for {} s", PATIENCE.as_secs())));
    }
    let good = child.wait().is_ok_and(|status| status.success());
    let text = told.join().unwrap_or_default();
    (done, (!good).then_some(text))
}

/// Whether a scenario fails.
fn fails(args: &Args, seed: u64) -> bool {
    let Some(mut command) = command(args) else { return false };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.args(["--seed", &seed.to_string()]).status().is_ok_and(|status| !status.success())
}

fn shrink(args: &Args, seed: u64) -> ExitCode {
    let scenario = Scenario::of(seed);
    let all = (1u32 << scenario.roles.len()) - 1;
    let mut best = Args {
        steps: Some(scenario.steps),
        actors: Some(all),
        rounds: Some(scenario.rounds),
        ..args.clone()
    };
    if !fails(&best, seed) {
        println!("seed {seed} does not fail");
        return ExitCode::SUCCESS;
    }
    let try_smaller = |smaller: Args, best: &mut Args| {
        let smaller_fails = fails(&smaller, seed);
        if smaller_fails {
            *best = smaller;
        }
        print!(".");
        let _ = std::io::stdout().flush();
        smaller_fails
    };
    if scenario.rounds > 1 {
        try_smaller(Args { rounds: Some(1), ..best.clone() }, &mut best);
    }
    for actor in 0..scenario.roles.len() {
        let without = best.actors.unwrap_or(all) & !(1 << actor);
        if without != 0 && without != best.actors.unwrap_or(all) {
            try_smaller(Args { actors: Some(without), ..best.clone() }, &mut best);
        }
    }
    // Another number of steps is another schedule: so several are tried of each size.
    let mut steps = best.steps.unwrap_or(scenario.steps);
    while steps > 4 {
        let smaller = [steps / 2, steps * 3 / 4, steps - 1];
        let found = smaller
            .into_iter()
            .find(|steps| try_smaller(Args { steps: Some(*steps), ..best.clone() }, &mut best));
        match found {
            Some(fewer) => steps = fewer,
            None => break,
        }
    }
    println!(
        "\nxebec-simulation --seed {seed} --steps {} --actors {} --rounds {}",
        best.steps.unwrap_or_default(),
        best.actors.unwrap_or_default(),
        best.rounds.unwrap_or_default()
    );
    ExitCode::SUCCESS
}
