//! Scenarios: what a seed determines.

use std::time::Duration;

use base::simulation::{SchedulingStrategy, SimulationOptions};
use crashsim::shape::{BASE, SHAPES, Shape};
use model::Rng;

/// State of a volume before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Age {
    /// A new volume.
    Fresh,
    /// Every other block of most of its space is free.
    Fragmented,
    /// Also so few free blocks that writes fail.
    Full,
}

/// Duration of a transfer, in virtual microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Minimum.
    pub min: u64,
    /// Maximum of an ordinary transfer.
    pub max: u64,
    /// One in this many takes seconds; 0 for none.
    pub slow_in: u64,
}

/// Behaviour of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Duration of reads.
    pub read: Delay,
    /// Duration of writes.
    pub write: Delay,
    /// Duration of flushes.
    pub flush: Delay,
    /// One in this many reads fails; 0 for none.
    pub read_fails_in: u64,
    /// One in this many writes fails, after writing any of its sectors; 0 for none.
    pub write_fails_in: u64,
    /// One in this many flushes fails; 0 for none.
    pub flush_fails_in: u64,
    /// The power is cut after one in this many writes and flushes.
    pub cut_in: u64,
    /// Maximum number of cuts per round.
    pub cuts_max: usize,
}

impl DiskPlan {
    /// Whether most transfers of some kind are slow.
    fn is_slow(&self) -> bool {
        [self.read, self.write, self.flush].iter().any(|delay| delay.min > 100_000 || delay.slow_in == 8)
    }

    /// Whether transfers may fail.
    pub fn fails(&self) -> bool {
        self.read_fails_in + self.write_fails_in + self.flush_fails_in > 0
    }
}

/// Limits of a scenario, for shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Maximum number of steps per actor.
    pub steps: usize,
    /// Bit mask of the actors that take part.
    pub actors: u32,
    /// Maximum number of rounds.
    pub rounds: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { steps: usize::MAX, actors: u32::MAX, rounds: usize::MAX }
    }
}

/// Kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Works on a tree of its own and compares it with the model.
    Names,
    /// Writes files of its own, with a number in each sector.
    Contents,
    /// Writes single blocks into a file with many holes.
    Scatter,
    /// Fills a file until the volume is full.
    Filler,
    /// Changes attributes of files of its own.
    Attributes,
    /// Creates and removes a large directory, and files that reuse its blocks.
    Churn,
    /// Uses names and files that several actors share.
    Together,
    /// Sync, trim, metadata writeback, growing, statistics.
    Operator,
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Layout of the volume.
    pub shape: Shape,
    /// State of the volume before the run.
    pub age: Age,
    /// Behaviour of the device.
    pub disk: DiskPlan,
    /// Actors.
    pub roles: Vec<Role>,
    /// Steps per actor and round.
    pub steps: usize,
    /// Number of rounds. Each but the first starts with the image of the last power cut.
    pub rounds: usize,
    /// Limits.
    pub limit: Limit,
}

/// Shapes that the crash simulator does not have: large blocks, and AGs of the minimum size.
const SHAPES_BEYOND: [Shape; 4] = [
    Shape { name: "tiny-ags", size: 64 << 20, ag_count: Some(4), ..BASE },
    Shape { name: "bs1k-tiny-ags", size: 64 << 20, block_size: 1024, ag_count: Some(4), ..BASE },
    Shape { name: "bs16k", size: 96 << 20, block_size: 16 << 10, ag_count: Some(2), ..BASE },
    Shape { name: "bs64k", size: 256 << 20, block_size: 64 << 10, ag_count: Some(1), ..BASE },
];

fn delay(rng: &mut Rng, slow_in: u64) -> Delay {
    match rng.below(5) {
        0 => Delay { min: 0, max: 20, slow_in },
        1 | 2 => Delay { min: 20, max: 500, slow_in },
        3 => Delay { min: 500, max: 10_000, slow_in },
        _ => Delay { min: 150_000, max: 250_000, slow_in },
    }
}

fn disk(rng: &mut Rng) -> DiskPlan {
    let slow_in = |rng: &mut Rng| [0, 8, 40, 200][rng.index(4)];
    let (slow_read, slow_write, slow_flush) = (slow_in(rng), slow_in(rng), slow_in(rng));
    let fails = rng.one_in(6);
    let fails_in = |rng: &mut Rng| if fails && rng.one_in(2) { 50 + rng.below(500) } else { 0 };
    DiskPlan {
        read: delay(rng, slow_read),
        write: delay(rng, slow_write),
        flush: delay(rng, slow_flush),
        read_fails_in: fails_in(rng),
        write_fails_in: fails_in(rng),
        flush_fails_in: fails_in(rng),
        cut_in: 20 + rng.below(200),
        cuts_max: 3,
    }
}

fn roles(age: Age, rng: &mut Rng) -> Vec<Role> {
    use Role::{Attributes, Churn, Contents, Filler, Names, Scatter, Together};
    let choices: &[Role] = match age {
        Age::Fresh => &[Names, Contents, Attributes, Churn, Together],
        Age::Fragmented => &[Names, Contents, Attributes, Churn, Together, Scatter, Scatter],
        Age::Full => &[Names, Contents, Attributes, Churn, Together, Scatter, Filler, Filler],
    };
    let mut roles: Vec<Role> = (0..1 + rng.index(4)).map(|_| choices[rng.index(choices.len())]).collect();
    // Shared names need at least two actors.
    if roles.contains(&Role::Together) {
        roles.push(Role::Together);
    }
    // The actor that splits btrees most runs on a full volume, where only its reservation is left.
    if age == Age::Full && roles.contains(&Scatter) && !roles.contains(&Filler) {
        roles.push(Filler);
    }
    if rng.one_in(2) {
        roles.push(Role::Operator);
    }
    roles
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, 41);
        let shapes: Vec<Shape> = SHAPES.into_iter().chain(SHAPES_BEYOND).collect();
        let mut shape = &shapes[rng.index(shapes.len())];
        let small: Vec<&Shape> = shapes.iter().filter(|shape| shape.block_size == 1024).collect();
        // Btrees with small blocks split early.
        if rng.one_in(3) {
            shape = small[rng.index(small.len())];
        }
        let shape = shape.clone();
        let age = [Age::Fresh, Age::Fragmented, Age::Full, Age::Full][rng.index(4)];
        let (disk, steps) = (disk(&mut rng), [20, 20, 60, 60, 150, 400][rng.index(6)]);
        Self {
            seed,
            shape: Shape { background: rng.below(8) > 0, ..shape },
            age,
            disk,
            roles: roles(age, &mut rng),
            // On a slow device hours pass, in which background threads run again and again.
            steps: if disk.is_slow() { steps.min(60) } else { steps },
            rounds: 1 + rng.index(2),
            limit: Limit::default(),
        }
    }

    /// The scenario with limits.
    #[must_use]
    pub fn limited(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }

    /// The schedule of a round.
    pub fn schedule(&self, round: usize, fail: fn(&str) -> !) -> SimulationOptions {
        let mut rng = Rng::stream(self.seed, 100 + round as u64);
        let strategy = match rng.below(2) {
            0 => SchedulingStrategy::Random { per_mille: [5, 30, 200][rng.index(3)] },
            _ => SchedulingStrategy::Priorities { changes_per_million: [200, 2_000, 20_000][rng.index(3)] },
        };
        SimulationOptions {
            seed: rng.next_u64(),
            strategy,
            stalls_per_million: [0, 0, 20, 200][rng.index(4)],
            stall: Duration::from_secs(1),
            spurious_per_million: [0, 200][rng.index(2)],
            cpus: 1 + rng.index(4),
            steps_max: 100_000_000,
            fail,
        }
    }

    /// The actors of a round: number and kind.
    pub fn actors(&self) -> impl Iterator<Item = (usize, Role)> + '_ {
        let takes_part = |(n, _): &(usize, Role)| self.limit.actors & (1 << n) != 0;
        self.roles.iter().copied().enumerate().filter(takes_part)
    }

    /// Steps per actor, limited.
    pub fn steps(&self) -> usize {
        self.steps.min(self.limit.steps)
    }

    /// Number of rounds, limited.
    pub fn rounds(&self) -> usize {
        self.rounds.min(self.limit.rounds)
    }
}
