//! Work on several threads, and rows that compare the rates of numbers of threads.

use report::record::Target;

use super::Scale;
use crate::measure::alternate;
use crate::recorder::{Recorder, Row};

/// Part of a thread's rate that each additional thread must add.
const SCALING: f64 = 0.95;

/// Runs the work on threads, each with its number, and returns the results in their order.
pub fn on_threads<T: Send>(
    threads: u32,
    work: &(dyn Fn(u32) -> anyhow::Result<T> + Sync),
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .collect()
    })
}

/// Adds a row for each requested number of threads: their rate together, compared with the rate of one thread.
pub fn add_scaling(
    scale: &Scale,
    table: &mut Recorder<'_>,
    (task, unit): (&str, &'static str),
    rate: &dyn Fn(u32) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    for threads in scale.threads.iter().copied().filter(|threads| *threads > 1) {
        let (ours, other) = alternate(table, scale.rounds, || rate(threads), || rate(1))?;
        let has_cpus = usize::try_from(threads)? <= cpus;
        table.add(Row {
            task: format!("{task}, {threads} threads; one"),
            unit,
            ours_is: "several threads, together",
            other_is: "one thread",
            ours,
            other,
            target: has_cpus.then(|| Target::RatioAtLeast(SCALING * f64::from(threads))),
        });
    }
    Ok(())
}
