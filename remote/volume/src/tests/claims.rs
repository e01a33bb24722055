//! Writers that take a volume over from each other, in simulated schedules, on a store that loses, delays and repeats
//! requests.
//!
//! Three claimants open the volume again and again. In each session two threads write their own pair of registers:
//! ascending numbers, first the one, then the other, and a flush. So it must hold at each opening:
//! - a register has at least the value that was flushed before the opening began, and none that was not written;
//! - the second register of a pair is never ahead of the first: recovery is a prefix of the writes.
//!
//! The same runs with a step of the protocol left out must violate this: [`Defect`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::simulation::{SchedulingStrategy, SimulationOptions, run};
use base::thread;
use store::faulty::{Faults, FaultyStore, Network};

use super::*;
use crate::options::Defect;

const CLAIMANTS: usize = 3;
const WRITERS: usize = 2;
/// Registers are far apart: in different pages of the map.
const APART: u64 = 3000;
const BLOCKS: u64 = 4 * (CLAIMANTS * WRITERS) as u64 * APART;

fn schedule(seed: u64) -> SimulationOptions {
    SimulationOptions {
        stalls_per_million: 2000,
        stall: Duration::from_secs(5),
        spurious_per_million: 1000,
        ..SimulationOptions::new(seed, SchedulingStrategy::of_seed(seed, 100))
    }
}

/// What one writer thread of one claimant has written and flushed.
#[derive(Default)]
struct Register {
    written: AtomicU64,
    flushed: AtomicU64,
}

struct World {
    network: Arc<Network>,
    registers: Vec<Register>,
    violations: Mutex<Vec<String>>,
    sessions: AtomicU64,
    flushes: AtomicU64,
    defect: Option<Defect>,
    seed: u64,
}

impl World {
    fn options(&self, seed: u64) -> ObjectOptions {
        ObjectOptions {
            take_over: true,
            checkpoint_segments: 3 + self.seed % 5,
            defect: self.defect,
            ..small(seed)
        }
    }

    fn flushed(&self) -> Vec<u64> {
        self.registers.iter().map(|register| register.flushed.load(SeqCst)).collect()
    }

    /// Compares the registers that an opening found.
    fn judge(&self, device: &ObjectDevice, before: &[u64]) {
        for (n, (register, flushed)) in self.registers.iter().zip(before).enumerate() {
            let at = 2 * n as u64 * APART;
            let mut values = [0; 2];
            for (value, at) in values.iter_mut().zip([at, at + APART]) {
                let mut bytes = vec![0; BLOCK];
                if device.read_at(at * BLOCK as u64, &mut bytes).is_err() {
                    return;
                }
                *value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            }
            let written = register.written.load(SeqCst);
            let [first, second] = values;
            if first < *flushed || second < *flushed || second > first || first > written {
                let text = format!("register {n}: {first}, {second}; flushed {flushed}, written {written}");
                self.violations.lock().unwrap().push(text);
            }
        }
    }

    fn write_registers(&self, device: &ObjectDevice, n: usize, rounds: u64) {
        let register = &self.registers[n];
        for _ in 0..rounds {
            let value = register.written.fetch_add(1, SeqCst) + 1;
            for at in [2 * n as u64 * APART, (2 * n as u64 + 1) * APART] {
                if device.write_at(at * BLOCK as u64, &block(value), Durability::Buffered).is_err() {
                    return;
                }
                thread::preemption_point();
            }
            if device.flush().is_err() {
                return;
            }
            register.flushed.store(value, SeqCst);
            self.flushes.fetch_add(1, SeqCst);
        }
    }
}

/// One opening of the volume, some writes, and one of several ends.
fn session(world: &Arc<World>, claimant: usize, number: u64) {
    let seed = base::random::mix(world.seed ^ (claimant as u64) << 32 ^ number << 40);
    let client = Arc::new(FaultyStore::new(Arc::clone(&world.network), Faults::HOSTILE, seed));
    let before = world.flushed();
    let Ok(device) = ObjectDevice::open(client.clone(), world.options(seed)) else { return };
    world.sessions.fetch_add(1, SeqCst);
    world.judge(&device, &before);
    let device = Arc::new(device);
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (world, device) = (Arc::clone(world), Arc::clone(&device));
            let body = move || world.write_registers(&device, claimant * WRITERS + writer, 1 + seed % 4);
            thread::spawn("writer", body).unwrap()
        })
        .collect();
    if seed.is_multiple_of(3) {
        // The power is lost while it writes. What was sent still travels.
        thread::sleep(Duration::from_millis(seed % 300));
        client.cut_off();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let Some(device) = Arc::into_inner(device) else { return };
    if seed % 3 == 1 {
        // It may have been fenced.
        let _ = device.close();
    }
}

/// Runs one seed. Returns violations, sessions, flushes.
fn run_seed(seed: u64, defect: Option<Defect>) -> (Vec<String>, u64, u64) {
    let (world, _) = run(schedule(seed), || {
        let objects = MemoryStore::default();
        make(&objects, BLOCKS, seed);
        let network = Network::new(objects);
        let registers = (0..CLAIMANTS * WRITERS).map(|_| Register::default()).collect();
        let world = Arc::new(World {
            network,
            registers,
            violations: Mutex::default(),
            sessions: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            defect,
            seed,
        });
        let claimants: Vec<_> = (0..CLAIMANTS)
            .map(|claimant| {
                let world = Arc::clone(&world);
                let body = move || {
                    for number in 0..3 {
                        session(&world, claimant, number);
                        thread::sleep(Duration::from_millis(base::random::mix(world.seed ^ number) % 200));
                    }
                };
                thread::spawn("claimant", body).unwrap()
            })
            .collect();
        claimants.into_iter().for_each(|claimant| claimant.join().unwrap());
        let before = world.flushed();
        let last = Arc::new(world.network.objects().clone());
        match ObjectDevice::open(last, ObjectOptions { defect: None, ..world.options(seed) }) {
            Ok(device) => world.judge(&device, &before),
            Err(error) => world.violations.lock().unwrap().push(format!("the last opening failed: {error}")),
        }
        world
    });
    let violations = std::mem::take(&mut *world.violations.lock().unwrap());
    (violations, world.sessions.load(SeqCst), world.flushes.load(SeqCst))
}

/// Number of seeds: `XEBEC_REMOTE_SEEDS`, from `XEBEC_REMOTE_FROM` on.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number =
        |name, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let from = number("XEBEC_REMOTE_FROM", 0);
    from..from + number("XEBEC_REMOTE_SEEDS", default)
}

#[test]
fn flushed_writes_survive_claims_crashes_and_zombies() {
    let (mut sessions, mut flushes) = (0, 0);
    for seed in seeds(150) {
        let (violations, more_sessions, more_flushes) = run_seed(seed, None);
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        sessions += more_sessions;
        flushes += more_flushes;
    }
    println!("{sessions} sessions, {flushes} flushes");
    // Most sessions succeed, and write.
    assert!(flushes > 0 && sessions > 0);
}

/// Leaving out a step of the protocol is noticed.
fn assert_found(defect: Defect) {
    let found = (0..3000).find(|seed| !run_seed(*seed, Some(defect)).0.is_empty());
    println!("{defect:?}: seed {found:?}");
    assert!(found.is_some(), "{defect:?} was not found");
}

#[test]
fn a_log_without_a_fence_is_found() {
    assert_found(Defect::NoFence);
}

#[test]
fn deleted_fences_are_found() {
    assert_found(Defect::FencesDeleted);
}

#[test]
fn acknowledgement_out_of_order_is_found() {
    assert_found(Defect::OutOfOrder);
}

#[test]
fn a_head_without_a_condition_is_found() {
    assert_found(Defect::UnconditionalHead);
}
