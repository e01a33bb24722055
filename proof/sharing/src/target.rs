//! The traced program: two threads that run the rounds of pairs.
//!
//! The threads take turns: the first side's operation, then the second side's. A trace of threads that run at the same
//! time shows the same accesses, as valgrind runs one thread at a time, but in another order each time. The turns are
//! taken outside of the marks, and what is between the marks of a thread is the operation and nothing else. Both
//! threads are used for all pairs, so that what the engine keeps for each thread exists.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use base::time::{FixedClock, Time};
use block::MemoryDevice;
use volume::{Options, Volume};

use crate::actor::{Actor, Directories};
use crate::marks::{self, Mark};
use crate::pairs::{PAIRS, Pair};

/// Measured rounds of each pair. The first one brings lines to their thread and is not counted.
pub const ROUNDS: usize = 1 + COUNTED;
/// Counted rounds.
pub const COUNTED: usize = 4;

/// Size of an AG. There are two for each side.
const AG_BYTES: u64 = 1 << 30;
const LOG_BYTES: u64 = 16 << 20;

/// Runs the pairs of these numbers. Prints the addresses that a reader of the trace needs, and waits for a byte on the
/// standard input before the first mark.
///
/// # Errors
/// An operation fails; the standard input or output is closed.
pub fn run(pairs: &[usize]) -> anyhow::Result<()> {
    let volume = new_volume(2)?;
    let directories = Directories::create(&volume, 2)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} {}", marks::address(), load_address()?)?;
    out.flush()?;
    std::io::stdin().read_exact(&mut [0])?;
    let pairs = pairs.iter().map(|number| Ok((*number, PAIRS.get(*number).context("no such pair")?)));
    let pairs = pairs.collect::<anyhow::Result<Vec<_>>>()?;
    let turns = Turns::default();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| run_side(&volume, &directories, &pairs, (1, &turns)));
        let first = run_side(&volume, &directories, &pairs, (0, &turns));
        let second = second.join().unwrap_or_else(|_| bail!("the second thread panicked"));
        match (first, second) {
            // One is the cause of the other.
            (Err(first), Err(second)) => bail!("{first:#}; {second:#}"),
            (first, second) => first.and(second),
        }
    })
}

/// A volume in memory, for a number of sides. The engine starts threads only when it needs them: their accesses are
/// nobody's.
///
/// # Errors
/// Those of `mkfs` and of the volume.
pub fn new_volume(sides: usize) -> anyhow::Result<Volume> {
    let ags = (2 * sides as u64).next_power_of_two();
    let device = Arc::new(MemoryDevice::new(ags * AG_BYTES));
    let log = mkfs::LogOptions { size: Some(LOG_BYTES), ..mkfs::LogOptions::default() };
    mkfs::format(&*device, &mkfs::Options { ag_count: Some(ags), log, ..mkfs::Options::default() })?;
    // Writes set a file's times once in a tick of the clock. Whether one falls into the traced rounds must not depend
    // on how long they take.
    let clock = Arc::new(FixedClock(Time { seconds: 1_000_000_000, nanos: 0 }));
    Ok(Volume::open(device, Options { seed: Some(1), background: false, clock, ..Options::default() })?)
}

/// Where this program is loaded: the difference between the addresses of its instructions and those in its file.
fn load_address() -> anyhow::Result<u64> {
    let program = std::env::current_exe()?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let starts_file = |line: &&str| {
        let mut fields = line.split_whitespace();
        fields.nth(2).is_some_and(|offset| offset.bytes().all(|digit| digit == b'0'))
            && fields.nth(2).is_some_and(|path| program.as_os_str() == path)
    };
    let line = maps.lines().find(starts_file).context("the program is not in /proc/self/maps")?;
    let (start, _) = line.split_once('-').context("/proc/self/maps has no address")?;
    Ok(u64::from_str_radix(start, 16)?)
}

/// Runs one side of all pairs. An error ends the other side, too.
fn run_side(
    volume: &Volume,
    directories: &Directories,
    pairs: &[(usize, &Pair)],
    (side, turns): (usize, &Turns),
) -> anyhow::Result<()> {
    base::percpu::override_current(Some(side));
    let _ended = EndsTurns(turns);
    pairs.iter().try_for_each(|(number, pair)| {
        let tag = format!("p{number}");
        run_pair(volume, directories, pair, (&tag, side, turns)).with_context(|| pair.name())
    })
}

/// Warm rounds in turns: as many as it takes until what CPUs use in turns becomes per-CPU.
const TURNS: usize = 12;

fn run_pair(
    volume: &Volume,
    directories: &Directories,
    pair: &Pair,
    (tag, side, turns): (&str, usize, &Turns),
) -> anyhow::Result<()> {
    let operation = pair.operation(side);
    let warm = pair.warm();
    let rounds = warm + ROUNDS;
    let actor = turns.take(side, || {
        let work = (operation, pair.place);
        let actor = Actor::new(volume, directories, work, (tag, side, rounds))?;
        actor.prepare(operation)?;
        anyhow::Ok(actor)
    })?;
    // First many uses of one side, then of both in turns.
    let before_turns = warm.saturating_sub(TURNS);
    let in_turns = (before_turns..warm).map(|round| round..round + 1);
    for warm_rounds in std::iter::once(0..before_turns).chain(in_turns) {
        turns.take(side, || warm_rounds.into_iter().try_for_each(|round| (operation.run)(&actor, round)))?;
    }
    for round in 0..ROUNDS {
        turns.take(side, || {
            if (round, side) == (0, 0) {
                Mark::Pair.store();
            }
            Mark::begin(side).store();
            let result = (operation.run)(&actor, warm + round);
            Mark::End.store();
            if (round + 1, side) == (ROUNDS, 1) {
                Mark::Done.store();
            }
            result
        })?;
    }
    turns.take(side, || {
        drop(actor);
        anyhow::Ok(())
    })
}

/// Whose turn it is.
#[derive(Debug, Default)]
struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    /// Number of turns taken.
    taken: usize,
    /// A side takes no more turns.
    ended: bool,
}

impl Turns {
    /// Waits for the side's turn, and runs `work` in it.
    fn take<T, E: Into<anyhow::Error>>(
        &self,
        side: usize,
        work: impl FnOnce() -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let is_other = |state: &TurnState| state.taken % 2 != side;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |state| is_other(state) && !state.ended);
        let failed = is_other(&waited.unwrap_or_else(PoisonError::into_inner));
        ensure!(!failed, "the other side has failed");
        let result = work();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken += 1;
        self.changed.notify_all();
        result.map_err(Into::into)
    }
}

/// Ends the turns of a side when it is dropped, also after a panic: the other one must not wait for ever.
struct EndsTurns<'t>(&'t Turns);

impl Drop for EndsTurns<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.changed.notify_all();
    }
}
