//! Runs simulations: `xebec-simulation --seconds 60` runs new seeds for a minute.
//!
//! Worker processes run seeds and print a line for each; a failing seed ends its worker. The parent process collects
//! the results, and starts a new worker after a failing seed.
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
#[command(about = "Runs the engine under thread schedules that a seed chooses, and checks the results")]
#[command(after_help = "Examples:\n  xebec-simulation --seconds 60            new seeds for a minute\n  \
    xebec-simulation --seed 17               one seed, with its scenario\n  \
    xebec-simulation --shrink 17             the smallest scenario of this seed that still fails")]
struct Args {
    /// Run only this seed, and print its scenario.
    #[arg(long)]
    seed: Option<u64>,
    /// Search for a smaller scenario of this seed that still fails.
    #[arg(long)]
    shrink: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Number of seeds.
    #[arg(long)]
    count: Option<u64>,
    /// Start no seed after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of worker processes.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Stop at the first failing seed.
    #[arg(long)]
    first: bool,
    /// Maximum number of steps per actor.
    #[arg(long)]
    steps: Option<usize>,
    /// Bit mask of the actors that take part.
    #[arg(long)]
    actors: Option<u32>,
    /// Maximum number of rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// Check one in this many seeds with `xfs_repair -n`; 0 for none.
    #[arg(long, default_value_t = 20)]
    repair_in: u64,
    /// Run seeds in this process, and print a line for each.
    #[arg(long, hide = true)]
    worker: bool,
    /// Distance between seeds.
    #[arg(long, hide = true, default_value_t = 1)]
    stride: u64,
}

/// A worker hangs if it uses this much CPU time without output, or no CPU time at all for this long. No seed takes as
/// long.
const TIMEOUT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.shrink, args.seed) {
        (Some(seed), _) => shrink(&args, seed),
        (None, Some(seed)) => run_one(&args, seed),
        (None, None) if args.worker => run_worker(&args),
        (None, None) => campaign(&args),
    }
}

/// The current seed, for messages.
static SEED: AtomicU64 = AtomicU64::new(0);

fn fail(reason: &str) -> ! {
    eprintln!("seed {}: {reason}", SEED.load(SeqCst));
    // Simulated threads cannot be unwound while others wait for them.
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
    run(&scenario, volumes, repair, fail).unwrap_or_else(|message| fail(&message))
}

/// Makes a panic abort the process: a simulated thread cannot be unwound while others wait for it.
fn abort_on_panic() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default_hook(info);
        fail("a thread panicked")
    }));
}

fn run_one(args: &Args, seed: u64) -> ExitCode {
    abort_on_panic();
    let scenario = Scenario::of(seed).limited(args.limit());
    println!("{scenario:#?}");
    println!("{:#?}", run_seed(args, &Volumes::default(), seed));
    ExitCode::SUCCESS
}

fn run_worker(args: &Args) -> ExitCode {
    abort_on_panic();
    let volumes = Volumes::default();
    let count = args.count.unwrap_or(u64::MAX - args.from);
    for seed in (args.from..args.from + count).step_by(args.stride.max(1) as usize) {
        let summary = run_seed(args, &volumes, seed);
        let Summary { steps, switches, stalls, cuts, transfers, faults, trace } = summary;
        println!("{seed} {steps} {switches} {stalls} {cuts} {transfers} {faults} {trace}");
    }
    ExitCode::SUCCESS
}

/// Totals of all seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    numbers: [u64; 6],
    failed: Vec<(u64, String)>,
}

fn campaign(args: &Args) -> ExitCode {
    let began = Instant::now();
    let is_over_time = || args.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds));
    let sum = Mutex::new(Totals::default());
    let failed = || !sum.lock().unwrap_or_else(PoisonError::into_inner).failed.is_empty();
    let ends = || is_over_time() || (args.first && failed());
    std::thread::scope(|scope| {
        for first in 0..args.jobs.max(1) as u64 {
            let (sum, ends) = (&sum, &ends);
            scope.spawn(move || run_job(args, args.from + first, sum, ends));
        }
    });
    let Totals { seeds, numbers: [steps, switches, stalls, cuts, transfers, faults], failed } =
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

/// Runs the seeds of one job, from `next` on, in a worker process, which keeps its aged volumes. After a failing seed
/// it starts another worker.
fn run_job(args: &Args, mut next: u64, sum: &Mutex<Totals>, ends: &dyn Fn() -> bool) {
    let (end, stride) = (args.count.map_or(u64::MAX, |count| args.from + count), args.jobs.max(1) as u64);
    while next < end && !ends() {
        let Some(mut command) = command(args) else { return };
        let numbers = [next, end - next, stride].map(|number| number.to_string());
        command.args(["--worker", "--from", &numbers[0], "--count", &numbers[1], "--stride", &numbers[2]]);
        let Ok(mut child) = command.spawn() else { return };
        let (done, failure) = monitor(&mut child, sum, ends);
        next += done * stride;
        if let Some(message) = failure {
            println!("seed {next} failed:\n{message}");
            sum.lock().unwrap_or_else(PoisonError::into_inner).failed.push((next, message));
            next += stride;
        } else if done == 0 {
            return;
        }
    }
}

/// CPU time of a process; zero if it has ended.
fn cpu_time(child: &Child) -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // After the name, which may contain spaces: the state and ten numbers, then user and system time.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS_PER_SECOND)
}

/// Reads the output of a worker. Returns how many seeds it finished, and the message of a failing one.
fn monitor(child: &mut Child, sum: &Mutex<Totals>, ends: &dyn Fn() -> bool) -> (u64, Option<String>) {
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else { return (0, None) };
    let (lines, read) = mpsc::channel();
    let stderr_reader = std::thread::spawn(move || {
        let mut text = String::new();
        // Messages that cannot be read are left out.
        let _ = err.read_to_string(&mut text);
        text
    });
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)));
    });
    let mut done = 0;
    let (mut since, mut before) = (cpu_time(child), cpu_time(child));
    let hangs = loop {
        match read.recv_timeout(TIMEOUT) {
            Ok(line) => {
                since = cpu_time(child);
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
                let now = cpu_time(child);
                // On a busy machine a worker may get little CPU time.
                if now <= before || now.saturating_sub(since) > TIMEOUT {
                    break true;
                }
                before = now;
            }
        }
    };
    if hangs {
        let _ = child.kill();
        let _ = child.wait();
        return (done, Some(format!("no progress for {} s", TIMEOUT.as_secs())));
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    let text = stderr_reader.join().unwrap_or_default();
    (done, (!succeeded).then_some(text))
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
    // Each number of steps gives another schedule, so several are tried.
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
