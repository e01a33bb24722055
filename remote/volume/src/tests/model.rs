//! The protocol as a model: three claimants on a store whose writes are lost, late or unanswered. A step is one
//! request, so that a hundred thousand schedules take seconds. `claims` runs the code itself, in fewer schedules.
//!
//! A write has the number of its session and its index in it. Each claim must find all writes that were acknowledged
//! before it began, and of each session a prefix.

use std::collections::{BTreeMap, HashMap, HashSet};

use base::random::mix;

/// A step that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// Collection deletes fences, too.
    FencesDeleted,
    /// Each head has another name, `head/1` and so on, and is created if absent; old ones are deleted.
    NumberedHeads,
    /// A claim puts no fence where a log ends.
    NoFence,
    /// A segment is acknowledged when it is stored, whatever is missing before it.
    OutOfOrder,
    /// A claim does not read the head again at its end.
    NoSecondLook,
}

type Write = (u64, u32);
type Position = (u64, u64);

#[derive(Clone, Debug)]
enum Object {
    Segment(u64, Vec<Write>),
    Fence(u64),
}

#[derive(Clone, Debug)]
struct Head {
    change: u64,
    epoch: u64,
    /// The first position that `state` does not contain.
    at: Position,
    state: Vec<Write>,
}

/// A write to the store.
#[derive(Clone, Debug)]
enum Put {
    Log(Position, Object),
    /// If the head has this change.
    Head(u64, Head),
}

struct World {
    seed: u64,
    mutation: Option<Mutation>,
    log: BTreeMap<Position, Object>,
    /// One head, or with numbered ones several, by their numbers.
    heads: BTreeMap<u64, Head>,
    late: Vec<Put>,
    acknowledged: Vec<Write>,
    nonces: u64,
    now: u64,
    violation: Option<&'static str>,
}

/// Reply to a write: `None` is a timeout.
type Reply = Option<bool>;

impl World {
    fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let head = Head { change: 0, epoch: 1, at: (1, 0), state: Vec::new() };
        Self {
            seed: mix(seed),
            mutation,
            log: BTreeMap::new(),
            heads: BTreeMap::from([(1, head)]),
            late: Vec::new(),
            acknowledged: Vec::new(),
            nonces: 1,
            now: 0,
            violation: None,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.seed) % n
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn nonce(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces
    }

    fn head(&self) -> Head {
        self.heads.values().next_back().cloned().unwrap()
    }

    fn carry_out(&mut self, put: Put) -> bool {
        match put {
            Put::Log(at, object) => {
                let is_absent = !self.log.contains_key(&at);
                if is_absent {
                    self.log.insert(at, object);
                }
                is_absent
            }
            Put::Head(expected, head) if self.has(Mutation::NumberedHeads) => {
                let number = expected + 1;
                let is_absent = !self.heads.contains_key(&number);
                if is_absent {
                    self.heads.insert(number, head);
                }
                is_absent
            }
            Put::Head(expected, head) => {
                let matches = self.head().change == expected;
                if matches {
                    self.heads = BTreeMap::from([(1, head)]);
                }
                matches
            }
        }
    }

    fn put(&mut self, put: Put) -> Reply {
        match self.below(12) {
            0 => None,
            1 => {
                self.late.push(put);
                None
            }
            2 => {
                self.carry_out(put);
                None
            }
            3 => {
                self.late.push(put.clone());
                Some(self.carry_out(put))
            }
            _ => Some(self.carry_out(put)),
        }
    }

    /// A claim has found this state. All writes that were acknowledged before it began must be there.
    fn judge(&mut self, state: &[Write], acknowledged: usize) {
        let found: HashSet<&Write> = state.iter().collect();
        if !self.acknowledged.iter().take(acknowledged).all(|write| found.contains(write)) {
            self.violation = Some("an acknowledged write is lost");
        }
        let mut next: HashMap<u64, u32> = HashMap::new();
        for (session, index) in state {
            let next = next.entry(*session).or_default();
            if *next != *index {
                self.violation = Some("the writes of a session have a gap");
            }
            *next = index + 1;
        }
    }
}

/// A segment that was sent.
struct Flight {
    seq: u64,
    writes: Vec<Write>,
    stored: bool,
    acknowledged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Claim,
    Recover(Position, bool),
    Verify,
    Open,
}

struct Claimant {
    phase: Phase,
    nonce: u64,
    /// The head as this claimant knows it; as numbered, with its number.
    head: Head,
    number: u64,
    /// A head that it tries to write.
    new: Option<Head>,
    state: Vec<Write>,
    flights: Vec<Flight>,
    next: u64,
    written: u32,
    acknowledged_before: usize,
    asleep: u64,
}

impl Claimant {
    fn new(world: &mut World) -> Self {
        Self {
            phase: Phase::Idle,
            nonce: world.nonce(),
            head: world.head(),
            number: 1,
            new: None,
            state: Vec::new(),
            flights: Vec::new(),
            next: 0,
            written: 0,
            acknowledged_before: 0,
            asleep: 0,
        }
    }

    /// The power is lost, or the claimant was fenced. It comes back later.
    fn restart(&mut self, world: &mut World) {
        *self = Self { asleep: world.now + world.below(150), ..Self::new(world) };
    }

    fn step(&mut self, world: &mut World) {
        match self.phase {
            Phase::Idle => {
                self.acknowledged_before = world.acknowledged.len();
                self.head = world.head();
                self.number = world.heads.keys().next_back().copied().unwrap_or(1);
                let epoch = self.head.epoch + 1;
                self.new = Some(Head { change: world.nonce(), epoch, ..self.head.clone() });
                self.phase = Phase::Claim;
            }
            Phase::Claim => match self.swap(world) {
                Some(true) => {
                    self.state = self.head.state.clone();
                    self.phase = Phase::Recover(self.head.at, false);
                }
                Some(false) => self.restart(world),
                None => {}
            },
            Phase::Recover(at, fencing) => self.recover(world, at, fencing),
            Phase::Verify => {
                if !world.has(Mutation::NoSecondLook) && world.head().change != self.head.change {
                    return self.restart(world);
                }
                let state = self.state.clone();
                world.judge(&state, self.acknowledged_before);
                self.phase = Phase::Open;
            }
            Phase::Open => self.work(world),
        }
    }

    /// Tries to write the new head. `None`: the reply is not clear, and the same is tried again.
    fn swap(&mut self, world: &mut World) -> Option<bool> {
        let new = self.new.clone()?;
        let numbered = world.has(Mutation::NumberedHeads);
        let expected = if numbered { self.number } else { self.head.change };
        let reply = world.put(Put::Head(expected, new.clone()))?;
        // Refused: it may have been this claimant's own attempt.
        let found = if numbered { world.heads.get(&(expected + 1)).cloned() } else { Some(world.head()) };
        let done = reply || found.is_some_and(|found| found.change == new.change);
        if done {
            self.head = new;
            self.number += 1;
        }
        self.new = None;
        Some(done)
    }

    fn recover(&mut self, world: &mut World, at: Position, fencing: bool) {
        let (epoch, seq) = at;
        if epoch >= self.head.epoch {
            self.phase = Phase::Verify;
            return;
        }
        if fencing {
            // Whatever became of it, what is there is read next.
            world.put(Put::Log(at, Object::Fence(self.head.epoch)));
            self.phase = Phase::Recover(at, false);
            return;
        }
        self.phase = match world.log.get(&at) {
            Some(Object::Segment(_, writes)) => {
                self.state.extend_from_slice(writes);
                Phase::Recover((epoch, seq + 1), false)
            }
            Some(Object::Fence(by)) if *by > self.head.epoch => return self.restart(world),
            Some(Object::Fence(_)) => Phase::Recover((epoch + 1, 0), false),
            None if world.has(Mutation::NoFence) => Phase::Recover((epoch + 1, 0), false),
            None => Phase::Recover(at, true),
        };
    }

    fn work(&mut self, world: &mut World) {
        match world.below(10) {
            0..3 if self.flights.len() < 3 => {
                let writes = vec![(self.nonce, self.written), (self.nonce, self.written + 1)];
                self.written += 2;
                self.flights.push(Flight { seq: self.next, writes, stored: false, acknowledged: false });
                self.next += 1;
            }
            0..7 => self.send(world),
            7 if self.new.is_none() => {
                let at = (self.head.epoch, self.next - self.flights.len() as u64);
                let state = self.state.clone();
                self.new = Some(Head { change: world.nonce(), at, state, ..self.head.clone() });
            }
            7 | 8 => {
                if self.swap(world) == Some(false) {
                    self.restart(world);
                }
            }
            _ => self.collect(world),
        }
    }

    /// Sends one of the segments that are not stored.
    fn send(&mut self, world: &mut World) {
        let waiting: Vec<usize> = (0..self.flights.len()).filter(|n| !self.flights[*n].stored).collect();
        if waiting.is_empty() {
            return;
        }
        let n = waiting[world.below(waiting.len() as u64) as usize];
        let at = (self.head.epoch, self.flights[n].seq);
        let object = Object::Segment(self.nonce, self.flights[n].writes.clone());
        match world.put(Put::Log(at, object)) {
            None => return,
            Some(true) => {}
            Some(false) => match world.log.get(&at) {
                Some(Object::Segment(nonce, _)) if *nonce == self.nonce => {}
                None => return,
                _ => return self.restart(world),
            },
        }
        self.flights[n].stored = true;
        if world.has(Mutation::OutOfOrder) {
            self.flights[n].acknowledged = true;
            world.acknowledged.extend_from_slice(&self.flights[n].writes);
        }
        while self.flights.first().is_some_and(|first| first.stored) {
            let first = self.flights.remove(0);
            self.state.extend_from_slice(&first.writes);
            if !first.acknowledged {
                world.acknowledged.extend(first.writes);
            }
        }
    }

    /// Deletes what the published head does not need.
    fn collect(&self, world: &mut World) {
        if world.has(Mutation::NumberedHeads) {
            world.heads = world.heads.split_off(&self.number);
        }
        let deletes_fences = world.has(Mutation::FencesDeleted);
        let is_unused = |object: &Object| deletes_fences || matches!(object, Object::Segment(..));
        world.log.retain(|at, object| *at >= self.head.at || !is_unused(object));
    }
}

/// Runs a schedule. Returns a violation, and the number of acknowledged writes.
fn run_schedule(seed: u64, mutation: Option<Mutation>) -> (Option<&'static str>, usize) {
    let mut world = World::new(seed, mutation);
    let mut claimants: Vec<Claimant> = (0..3).map(|_| Claimant::new(&mut world)).collect();
    for now in 0..800 {
        world.now = now;
        let n = world.below(3) as usize;
        if !world.late.is_empty() && world.below(8) == 0 {
            let n = world.below(world.late.len() as u64) as usize;
            let put = world.late.swap_remove(n);
            world.carry_out(put);
        }
        let claimant = &mut claimants[n];
        if claimant.asleep > now {
            continue;
        }
        match world.below(100) {
            0 => claimant.restart(&mut world),
            1..5 => claimant.asleep = now + world.below(100),
            _ => claimant.step(&mut world),
        }
        if world.violation.is_some() {
            break;
        }
    }
    // The last claim, which nobody disturbs.
    let mut last = Claimant::new(&mut world);
    for _ in 0..1000 {
        if last.phase == Phase::Open || world.violation.is_some() {
            break;
        }
        last.step(&mut world);
    }
    (world.violation, world.acknowledged.len())
}

/// Number of schedules: `XEBEC_REMOTE_SCHEDULES`.
#[test]
fn no_schedule_loses_an_acknowledged_write() {
    let schedules = std::env::var("XEBEC_REMOTE_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = schedules.unwrap_or(100_000);
    let mut acknowledged = 0;
    for seed in 0..schedules {
        let (violation, writes) = run_schedule(seed, None);
        assert_eq!(violation, None, "seed {seed}");
        acknowledged += writes;
    }
    println!("{schedules} schedules, {acknowledged} acknowledged writes");
    assert!(acknowledged as u64 > schedules, "they do nothing");
}

#[test]
fn each_mutation_is_found() {
    use Mutation::{FencesDeleted, NoFence, NoSecondLook, NumberedHeads, OutOfOrder};
    for mutation in [FencesDeleted, NumberedHeads, NoFence, OutOfOrder, NoSecondLook] {
        let found = (0..20_000).filter(|seed| run_schedule(*seed, Some(mutation)).0.is_some()).count();
        println!("{mutation:?}: {found} of 20,000");
        assert!(found > 10, "{mutation:?}: {found}");
    }
}
