//! Runs the traced program under valgrind and reads its trace.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};

use crate::observe::{Observation, Observer};
use crate::pairs::PAIRS;
use crate::symbols::Symbols;
use crate::verdict::Verdict;

/// What valgrind is asked for.
const VALGRIND: [&str; 3] = ["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes"];
/// Bytes that are read from the trace at once.
const BUFFER: usize = 1 << 20;

/// Addresses in the traced program.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The first mark.
    marks: u64,
    /// Where the program is loaded.
    pub load: u64,
}

/// The observations of a run.
#[derive(Debug)]
pub struct Traced {
    /// Where the program was loaded.
    pub addresses: Addresses,
    /// What was seen of each pair.
    pub observations: Vec<Observation>,
    /// Lines of the trace.
    pub lines: u64,
}

/// Traces the pairs of these numbers with one process.
///
/// # Errors
/// Valgrind or the program fails; the trace is torn.
pub fn trace(target: &Path, pairs: &[usize]) -> anyhow::Result<Traced> {
    let mut command = needs::command("valgrind");
    command.args(VALGRIND).arg(target).args(pairs.iter().map(usize::to_string));
    // To print the stack of an error takes minutes under valgrind.
    command.env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("valgrind")?;
    let result = observe(&mut child, pairs.len());
    if result.is_err() {
        // It may wait for a reader of its trace.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (traced, said) = result?;
    ensure!(status.success(), "the traced program failed, {status}{said}");
    Ok(traced)
}

fn observe(child: &mut Child, pairs: usize) -> anyhow::Result<(Traced, String)> {
    let (Some(trace), Some(out), Some(input)) =
        (child.stderr.take(), child.stdout.take(), child.stdin.take())
    else {
        bail!("valgrind has no standard output")
    };
    let addresses = OnceLock::new();
    let (mut observer, mut observations) = (Observer::default(), Vec::new());
    let read = std::thread::scope(|scope| {
        // Another thread, as the trace must be read meanwhile.
        let greeted = scope.spawn(|| greet(out, input, &addresses));
        let marks = || addresses.get().map(|addresses: &Addresses| addresses.marks);
        let read = observer.read(BufReader::with_capacity(BUFFER, trace), marks, |observation| {
            observations.push(observation);
            Ok(())
        });
        let greeted = greeted.join().unwrap_or_else(|_| bail!("the reader of addresses panicked"));
        read.and(greeted)
    });
    let said = observer.said();
    read.with_context(|| format!("the traced program failed{said}"))?;
    ensure!(observations.len() == pairs, "a trace of {} pairs instead of {pairs}{said}", observations.len());
    let addresses = *addresses.get().context("no addresses")?;
    Ok((Traced { addresses, observations, lines: observer.lines_read() }, said))
}

/// Reads the addresses that the program prints, and lets it go on.
fn greet(out: ChildStdout, mut input: ChildStdin, addresses: &OnceLock<Addresses>) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("the program's output")?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let [marks, load] = numbers[..] else { bail!("the program prints no addresses: {line:?}") };
    // Set once.
    let _ = addresses.set(Addresses { marks, load });
    input.write_all(b"\n").context("the program's input")
}

/// Traces the pairs of these numbers with several processes at the same time, and judges them in the same order.
///
/// # Errors
/// As [`trace`]; the program has no symbols.
pub fn judge(target: &Path, pairs: &[usize], jobs: usize) -> anyhow::Result<Vec<Verdict>> {
    let jobs = jobs.clamp(1, pairs.len().max(1));
    // Alternately, as pairs of expensive operations are next to each other in the table.
    let of_job = |job: usize| pairs.iter().copied().skip(job).step_by(jobs).collect::<Vec<usize>>();
    let verdicts = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..jobs).map(|job| scope.spawn(move || judge_in_one_process(target, &of_job(job)))).collect();
        let verdicts = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a panic")));
        verdicts.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut verdicts: Vec<_> = verdicts.into_iter().map(Vec::into_iter).collect();
    Ok((0..pairs.len()).filter_map(|number| verdicts.get_mut(number % jobs)?.next()).collect())
}

fn judge_in_one_process(target: &Path, pairs: &[usize]) -> anyhow::Result<Vec<Verdict>> {
    let traced = trace(target, pairs)?;
    let symbols = Symbols::new(target, traced.addresses.load)?;
    let pairs = pairs.iter().filter_map(|number| PAIRS.get(*number));
    let judged = pairs.zip(&traced.observations).map(|(pair, seen)| Verdict::of(pair, seen, &symbols));
    Ok(judged.collect())
}
