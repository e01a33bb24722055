//! All that a seed decides.

use std::time::Duration;

use base::simulation::{SchedulingStrategy, SimulationOptions};
use crashsim::shape::{BASE, SHAPES, Shape};
use model::Rng;

/// What a volume went through before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Age {
    /// Nothing.
    Fresh,
    /// Every other block of most of its space is free.
    Fragmented,
    /// The same, and so few blocks are free that writers are refused.
    Full,
}

/// How long a transfer takes, in virtual microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// At least.
    pub least: u64,
    /// At most, mostly.
    pub most: u64,
    /// One in so many is held for seconds; 0 for none.
    pub held_in: u64,
}

/// How a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Reads.
    pub read: Delay,
    /// Writes.
    pub write: Delay,
    /// Flushes.
    pub flush: Delay,
    /// One read in so many fails; 0 for none.
    pub read_fails_in: u64,
    /// One write in so many fails, having written any of its sectors; 0 for none.
    pub write_fails_in: u64,
    /// One flush in so many fails; 0 for none.
    pub flush_fails_in: u64,
    /// The power is cut after one write or flush in so many.
    pub cut_in: u64,
    /// Cuts of a round at most.
    pub cuts_max: usize,
}

impl DiskPlan {
    /// Whether most of some transfers take long.
    fn is_slow(&self) -> bool {
        [self.read, self.write, self.flush].iter().any(|delay| delay.least > 100_000 || delay.held_in == 8)
    }

    /// Whether the device fails now and then.
    pub fn fails(&self) -> bool {
        self.read_fails_in + self.write_fails_in + self.flush_fails_in > 0
    }
}

/// What a scenario is reduced to, to find what a failure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Steps of each actor at most.
    pub steps: usize,
    /// A bit for each actor that takes part.
    pub actors: u32,
    /// Rounds at most.
    pub rounds: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { steps: usize::MAX, actors: u32::MAX, rounds: usize::MAX }
    }
}

/// Who works on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A tree of its own, in step with the model.
    Names,
    /// Files of its own, whose sectors say which write they are of.
    Contents,
    /// A file with many holes, into which it writes single blocks.
    Scatter,
    /// A file that takes all space that is left.
    Filler,
    /// Attributes of files of its own.
    Attributes,
    /// A large directory that comes and goes, and files that take its blocks.
    Churn,
    /// Names and files that all of its kind share.
    Together,
    /// Sync, trim, metadata writeback, statistics.
    Operator,
}

/// One seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Which.
    pub seed: u64,
    /// The volume.
    pub shape: Shape,
    /// Its past.
    pub age: Age,
    /// The device.
    pub disk: DiskPlan,
    /// Who works on it.
    pub roles: Vec<Role>,
    /// Steps of each actor in one round.
    pub steps: usize,
    /// Each round but the first begins with what a cut of the one before left.
    pub rounds: usize,
    /// What is left out.
    pub limit: Limit,
}

/// Shapes beyond those of the crash simulator: large blocks, and AGs as small as they can be.
const SHAPES_BEYOND: [Shape; 4] = [
    Shape { name: "tiny-ags", size: 64 << 20, ag_count: Some(4), ..BASE },
    Shape { name: "bs1k-tiny-ags", size: 64 << 20, block_size: 1024, ag_count: Some(4), ..BASE },
    Shape { name: "bs16k", size: 96 << 20, block_size: 16 << 10, ag_count: Some(2), ..BASE },
    Shape { name: "bs64k", size: 256 << 20, block_size: 64 << 10, ag_count: Some(1), ..BASE },
];

fn delay(rng: &mut Rng, held_in: u64) -> Delay {
    match rng.below(5) {
        0 => Delay { least: 0, most: 20, held_in },
        1 | 2 => Delay { least: 20, most: 500, held_in },
        3 => Delay { least: 500, most: 10_000, held_in },
        _ => Delay { least: 150_000, most: 250_000, held_in },
    }
}

fn disk(rng: &mut Rng) -> DiskPlan {
    let held = |rng: &mut Rng| [0, 8, 40, 200][rng.index(4)];
    let (read_held, write_held, flush_held) = (held(rng), held(rng), held(rng));
    let fails = rng.one_in(6);
    let fails_in = |rng: &mut Rng| if fails && rng.one_in(2) { 50 + rng.below(500) } else { 0 };
    DiskPlan {
        read: delay(rng, read_held),
        write: delay(rng, write_held),
        flush: delay(rng, flush_held),
        read_fails_in: fails_in(rng),
        write_fails_in: fails_in(rng),
        flush_fails_in: fails_in(rng),
        cut_in: 20 + rng.below(200),
        cuts_max: 3,
    }
}

fn roles(age: Age, rng: &mut Rng) -> Vec<Role> {
    use Role::{Attributes, Churn, Contents, Filler, Names, Scatter, Together};
    let any: &[Role] = match age {
        Age::Fresh => &[Names, Contents, Attributes, Churn, Together],
        Age::Fragmented => &[Names, Contents, Attributes, Churn, Together, Scatter, Scatter],
        Age::Full => &[Names, Contents, Attributes, Churn, Together, Scatter, Filler, Filler],
    };
    let mut roles: Vec<Role> = (0..1 + rng.index(4)).map(|_| any[rng.index(any.len())]).collect();
    // One alone of those who meet nobody is no more than a crash test.
    if roles.contains(&Role::Together) {
        roles.push(Role::Together);
    }
    // What splits most is tried where nothing is left beside what was reserved for it.
    if age == Age::Full && roles.contains(&Scatter) && !roles.contains(&Filler) {
        roles.push(Filler);
    }
    if rng.one_in(2) {
        roles.push(Role::Operator);
    }
    roles
}

impl Scenario {
    /// What a seed is.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, 41);
        let shapes: Vec<Shape> = SHAPES.into_iter().chain(SHAPES_BEYOND).collect();
        let mut shape = &shapes[rng.index(shapes.len())];
        let small: Vec<&Shape> = shapes.iter().filter(|shape| shape.block_size == 1024).collect();
        // Trees of small blocks split early.
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
            // On a slow device hours pass, in which background threads look around again and again.
            steps: if disk.is_slow() { steps.min(60) } else { steps },
            rounds: 1 + rng.index(2),
            limit: Limit::default(),
        }
    }

    /// The same, reduced.
    #[must_use]
    pub fn limited(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }

    /// How a round's threads are scheduled.
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

    /// The actors of a round: number and role.
    pub fn actors(&self) -> impl Iterator<Item = (usize, Role)> + '_ {
        let takes_part = |(n, _): &(usize, Role)| self.limit.actors & (1 << n) != 0;
        self.roles.iter().copied().enumerate().filter(takes_part)
    }

    /// Steps of each actor.
    pub fn steps(&self) -> usize {
        self.steps.min(self.limit.steps)
    }

    /// Rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.min(self.limit.rounds)
    }
}
