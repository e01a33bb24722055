//! `xebec-sharing`: traces the pairs of the table, judges what they share, and predicts what it costs many CPUs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sharing::model::{CPUS, Machine};
use sharing::pairs::PAIRS;

/// The allocator of the command line `xebec`, for measurements.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Shows which cache lines operations share that commute, and what that costs")]
#[command(after_help = "Build with --profile traced. Examples:\n  \
    xebec-sharing                                   all pairs, traced under valgrind\n  \
    xebec-sharing --pair \"open / open\" --chains     some pairs, with the code that shares lines\n  \
    xebec-sharing measure --threads 64              the same operations for real")]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    selection: Selection,
    /// Number of processes.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Print a report in JSON.
    #[arg(long)]
    json: bool,
    /// Print the chains of calls that no reason explains.
    #[arg(long)]
    chains: bool,
    /// Nanoseconds that the transfer of a line between two CPUs takes.
    #[arg(long, default_value_t = Machine::default().transfer_ns)]
    transfer_ns: f64,
    /// Instructions that a CPU executes in a nanosecond if it shares nothing.
    #[arg(long, default_value_t = Machine::default().instructions_per_ns)]
    instructions_per_ns: f64,
}

#[derive(Args)]
struct Selection {
    /// Only pairs whose names contain TEXT.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pair: String,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the pairs on this machine: thousand operations per second of all threads together.
    Measure {
        #[command(flatten)]
        selection: Selection,
        /// Largest number of threads. 1, 2, 4, ... threads are measured up to it.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Changes of each thread. Reads are repeated more often.
        #[arg(long, default_value_t = 2000)]
        rounds: usize,
    },
}

impl Selection {
    fn pairs(&self) -> Vec<usize> {
        (0..PAIRS.len()).filter(|number| PAIRS[*number].name().contains(&self.pair)).collect()
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    match &options.command {
        Some(Command::Measure { selection, threads, rounds }) => {
            measure(&selection.pairs(), *threads, *rounds)?;
            Ok(ExitCode::SUCCESS)
        }
        None => trace(&options),
    }
}

fn trace(options: &Options) -> anyhow::Result<ExitCode> {
    let target = std::env::current_exe()?.with_file_name("xebec-sharing-target");
    let machine =
        Machine { transfer_ns: options.transfer_ns, instructions_per_ns: options.instructions_per_ns };
    let verdicts = sharing::judge(&target, &options.selection.pairs(), options.jobs)?;
    let report = sharing::report::report(&verdicts, &machine);
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", sharing::report::text(&report)),
    }
    let complaints: Vec<String> = verdicts.iter().flat_map(|verdict| verdict.complaints()).collect();
    for complaint in &complaints {
        // The chains of calls are in its other lines.
        eprintln!(
            "{}",
            if options.chains { complaint } else { complaint.lines().next().unwrap_or_default() }
        );
    }
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(pairs: &[usize], threads: usize, rounds: usize) -> anyhow::Result<()> {
    let threads: Vec<usize> =
        CPUS.iter().map(|cpus| *cpus as usize).filter(|cpus| *cpus <= threads).collect();
    let head: String = threads.iter().map(|threads| format!("{threads:>9}")).collect();
    println!("{:64}{head}", "pair");
    for pair in pairs.iter().map(|number| &PAIRS[*number]) {
        print!("{:64}", pair.name());
        for threads in &threads {
            print!("{:>9.0}", sharing::measure::measure(pair, *threads, rounds)? / 1e3);
        }
        println!();
    }
    Ok(())
}
