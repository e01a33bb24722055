//! Measures pairs on this machine, to compare with the [model](crate::model).
//!
//! Any number of threads run the operations of a pair at the same time, alternately those of its two sides. The volume
//! is in memory, and each thread has a file, directory or AG of its own where the pair says so.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use anyhow::Context as _;

use crate::actor::{Actor, Directories};
use crate::operations::Operation;
use crate::pairs::Pair;
use crate::target::new_volume;

/// Operations per second of all threads together. Each thread runs `rounds` changes, or many more reads; all end when
/// the first one has done its own.
///
/// # Errors
/// Those of the volume, such as a lack of space for many rounds.
pub fn measure(pair: &Pair, threads: usize, rounds: usize) -> anyhow::Result<f64> {
    let volume = new_volume(threads)?;
    let directories = Directories::create(&volume, threads)?;
    let ended = AtomicBool::new(false);
    let (volume, directories, ended) = (&volume, &directories, &ended);
    let (prepared, all_prepared) = mpsc::channel();
    // Several sides may use one file, which the first of them creates.
    let creating = &Mutex::new(());
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        let workers: Vec<_> = (0..threads)
            .map(|side| {
                let (start, start_of_side) = mpsc::channel::<()>();
                started.push(start);
                let prepared = prepared.clone();
                scope.spawn(move || {
                    let operation = pair.operation(side);
                    let rounds = rounds * operation.cost.measured();
                    let work = (operation, pair.place);
                    let one_creates = creating.lock().unwrap_or_else(PoisonError::into_inner);
                    let actor = Actor::new(volume, directories, work, ("measured", side, rounds))?;
                    drop(one_creates);
                    actor.prepare(operation)?;
                    drop(prepared);
                    // It ends with an error when all threads may start.
                    let _ = start_of_side.recv();
                    run(operation, &actor, rounds, ended)
                })
            })
            .collect();
        drop(prepared);
        let () = all_prepared.iter().collect();
        drop(started);
        let rates = workers.into_iter().map(|worker| worker.join().ok().context("a thread panicked")?);
        rates.sum::<anyhow::Result<f64>>().with_context(|| pair.name())
    })
}

/// Runs the rounds of a thread. Returns its operations per second.
fn run(operation: &Operation, actor: &Actor<'_>, rounds: usize, ended: &AtomicBool) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut done = 0;
    while done < rounds && !ended.load(Relaxed) {
        (operation.run)(actor, done)?;
        done += 1;
    }
    let taken = began.elapsed();
    ended.store(true, Relaxed);
    Ok(done as f64 / taken.as_secs_f64())
}
