use std::sync::Arc;

use base::Lsn;
use proptest::prelude::*;

use super::*;
use crate::engine::item::{AfterCommit, ItemCore, LogItem};
use crate::engine::regions::LogRegions;
use crate::engine::writeback::{DelwriQueue, PushResult};

/// An item that is only logged.
#[derive(Debug, Default)]
struct Weight(ItemCore);

impl LogItem for Weight {
    fn core(&self) -> &ItemCore {
        &self.0
    }
    fn committed(&self, _: Lsn) -> AfterCommit {
        AfterCommit::Remove
    }
    fn push(self: Arc<Self>, _: &mut DelwriQueue<'_>) -> PushResult {
        PushResult::Clean
    }
    fn write_done(&self, _: bool) {}
}

/// One transaction: the lengths of its items' regions, its CPU, and whether a force follows.
#[derive(Clone, Debug)]
struct Step {
    items: Vec<Vec<u16>>,
    cpu: usize,
    forced: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let regions = prop::collection::vec(prop_oneof![0u16..64, 0u16..1024, 0u16..5000], 1..5);
    let items = prop::collection::vec(regions, 1..6);
    (items, 0..4usize, prop::bool::weighted(0.15)).prop_map(|(items, cpu, forced)| Step {
        items,
        cpu,
        forced,
    })
}

/// A reservation that just covers the items, in bytes of items.
fn reservation(step: &Step) -> LogReservation {
    let bytes: u32 = step.items.iter().flatten().map(|len| u32::from(*len).next_multiple_of(4)).sum();
    LogReservation { bytes, transactions: 1 }
}

/// Commits all steps; returns what is reserved at the end, or why the volume was shut down.
fn run(steps: &[Step], buffer_bytes: u32, shards: usize) -> Result<u64, String> {
    let volume = Volume::new(16384);
    let log = volume.open(&Options { buffer_bytes: Some(buffer_bytes), ..options(shards) });
    for step in steps {
        base::percpu::override_current(Some(step.cpu));
        let mut tx = log.begin(reservation(step)).map_err(|error| error.to_string())?;
        for (n, item) in (0u16..).zip(&step.items) {
            let mut regions = LogRegions::default();
            for len in item {
                regions.push(&vec![n as u8; usize::from(*len)]);
            }
            tx.log_item(Arc::new(Weight::default()), regions);
        }
        tx.commit(&mut []).map_err(|error| error.to_string())?;
        if step.forced {
            log.force().map_err(|error| error.to_string())?;
        }
    }
    log.force().map_err(|error| error.to_string())?;
    base::percpu::override_current(None);
    Ok(log.reserved())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The journal compares, at each commit and each push, what is taken with what was reserved, and shuts down if it
    /// is too little. At the end nothing is reserved: what was not needed was released.
    #[test]
    fn reservations_cover_transactions_and_checkpoints(
        steps in prop::collection::vec(step(), 1..120),
        shift in 0u32..4,
        shards in 1usize..5,
    ) {
        prop_assert_eq!(run(&steps, 32 << 10 << shift, shards), Ok(0));
    }
}
