//! A power cut at every request of a run, carried out or not.

use base::simulation::{SchedulingStrategy, SimulationOptions, run};
use store::faulty::{Cut, Faults, FaultyStore, Network};

use super::*;
use crate::{audit, make_snapshot, remove_snapshot};

const BLOCKS: u64 = 9000;
const WRITES: u64 = 60;

/// The block that write `n` goes to; it gets the value `n + 1`.
fn place(n: u64) -> u64 {
    n * n * 37 % 23 * 390
}

/// Writes, flushes, checkpoints, cleans, closes, opens again, until the power is lost. Returns how many writes were
/// begun, and how many are durable.
fn work(client: &Arc<FaultyStore>) -> (u64, u64) {
    let (mut begun, mut durable) = (0, 0);
    let mut session = || -> Result<(), ()> {
        let options = ObjectOptions { checkpoint_segments: 1000, ..small(1) };
        let mut device = ObjectDevice::open(client.clone(), options).map_err(drop)?;
        for n in 0..WRITES {
            begun = n + 1;
            device.write_at(place(n) * BLOCK as u64, &block(n + 1), Durability::Buffered).map_err(drop)?;
            if n % 3 == 0 {
                device.flush().map_err(drop)?;
                durable = begun;
            }
            match n % 20 {
                9 => {
                    device.checkpoint().map_err(drop)?;
                    durable = begun;
                    device.clean().map_err(drop)?;
                }
                14 => make_snapshot(client.clone(), "s", n, &small(n + 50)).map_err(drop)?,
                16 => remove_snapshot(client.clone(), "s", &small(n + 50)).map_err(drop)?,
                19 => {
                    device.close().map_err(drop)?;
                    durable = begun;
                    let options = ObjectOptions { checkpoint_segments: 1000, ..small(n + 2) };
                    device = ObjectDevice::open(client.clone(), options).map_err(drop)?;
                }
                _ => {}
            }
        }
        device.close().map_err(drop)?;
        durable = begun;
        Ok(())
    };
    let _ = session();
    (begun, durable)
}

/// The state after `writes` writes.
fn state(writes: u64) -> Vec<u64> {
    let mut state = vec![0; BLOCKS as usize];
    (0..writes).for_each(|n| state[place(n) as usize] = n + 1);
    state
}

fn run_with(cut: Option<Cut>, faults: Faults) -> u64 {
    let seed = cut.map_or(0, |cut| cut.after);
    run(SimulationOptions::new(seed, SchedulingStrategy::Random { per_mille: 50 }), || {
        let objects = MemoryStore::default();
        make(&objects, BLOCKS, 3);
        let network = Network::new(objects);
        let client = Arc::new(FaultyStore::with_cut(Arc::clone(&network), faults, seed, cut));
        let (begun, durable) = work(&client);
        let requests = client.requests();
        // Some of what still travels arrives before the next writer, some after.
        let after = ObjectOptions { take_over: true, ..small(9) };
        let next = Arc::new(FaultyStore::new(Arc::clone(&network), Faults::default(), 1));
        let device = ObjectDevice::open(next, after).unwrap();
        let found: Vec<u64> = (0..BLOCKS).step_by(390).map(|at| read(&device, at)).collect();
        let is_state = |writes: &u64| {
            let state = state(*writes);
            found.iter().zip((0..BLOCKS as usize).step_by(390)).all(|(found, at)| *found == state[at])
        };
        let prefix = (durable..=begun).find(is_state);
        assert!(prefix.is_some(), "{cut:?}: {found:?} is no state between {durable} and {begun}");
        network.settle();
        write(&device, 1, 77);
        device.close().unwrap();
        assert!(audit(shared(network.objects()), &small(10)).unwrap().missing.is_empty(), "{cut:?}");
        let device = ObjectDevice::open(shared(network.objects()), small(11)).unwrap();
        assert_eq!(read(&device, 1), 77);
        (0..BLOCKS).step_by(390).zip(&found).for_each(|(at, value)| assert_eq!(read(&device, at), *value));
        requests
    })
    .0
}

#[test]
fn a_cut_at_any_request_leaves_a_prefix() {
    let total = run_with(None, Faults::default());
    assert!(total > 60, "{total}");
    for after in 0..total {
        for carried_out in [false, true] {
            run_with(Some(Cut { after, carried_out }), Faults::default());
        }
    }
}

/// The same where requests are lost, late and repeated before the cut, and arrive after it.
#[test]
fn a_cut_among_faults_leaves_a_prefix() {
    for after in 0..150 {
        run_with(Some(Cut { after, carried_out: after % 2 == 0 }), Faults::HOSTILE);
    }
}
