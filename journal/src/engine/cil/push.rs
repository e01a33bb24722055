//! Pushing: from the shards' lists to records in the log's buffers.
//!
//! | step | under | meanwhile |
//! |---|---|---|
//! | swap the lists out, number the next checkpoint | all shards | commits wait for some microseconds |
//! | take the snapshots out of the items | each item's slots | commits run, into the next checkpoint; one that meets an item not yet emptied uses its other slot |
//! | sort, compare with the reservation, fill records | `Push` alone | commits run, records are written |
//! | wait for the disk | nothing | the next push begins |

use std::sync::Arc;

use super::context::Context;
use super::{Checkpoint, Cil, Shard};
use crate::engine::grant::Grant;
use crate::engine::halt::Halt;
use crate::engine::iclog::fill::{Filled, Filler};
use crate::engine::iclog::{Host, Iclogs};
use crate::engine::item::{LogItem, Snapshot, ahead};
use crate::engine::target::BusyExtent;

/// How many snapshots ahead memory is asked for.
const SNAPSHOTS_AHEAD: usize = 4;

/// All that was committed into one checkpoint.
struct Swapped {
    sequence: u64,
    items: Vec<Arc<dyn LogItem>>,
    busy: Vec<BusyExtent>,
    bytes: i64,
    reserved: u64,
}

impl Cil {
    /// Pushes the current checkpoint unless it is later than `upto`, or empty. When it returns, the records are on
    /// their way, and nothing that was committed before the call to a checkpoint up to `upto` is left behind.
    ///
    /// # Errors
    /// [`Halt::Closed`]; [`Halt::Because`] where the checkpoint needs more than was reserved for it: the volume must
    /// then be shut down.
    pub fn push(&self, upto: u64, iclogs: &Iclogs, grant: &Grant, host: &dyn Host) -> Result<(), Halt> {
        let _alone = self.pushing.lock();
        if self.progress.current() > upto {
            return Ok(());
        }
        let Some(swapped) = self.swap() else { return Ok(()) };
        let (sequence, reserved) = (swapped.sequence, swapped.reserved);
        let (snapshots, mut checkpoint) = swapped.take_snapshots();
        let written = self.write(sequence, reserved, &snapshots, iclogs);
        match written {
            Ok(filled) => {
                checkpoint.start = filled.start;
                iclogs.submit(filled.last, true, Some(checkpoint));
                grant.give_back(reserved - filled.cost);
                Ok(())
            }
            Err(error) => {
                host.completed(checkpoint, false);
                Err(error)
            }
        }
    }

    /// The same without records: what was committed counts as stable at once, as if it stood where the next record
    /// goes.
    pub fn end_unrecorded(&self, upto: u64, iclogs: &Iclogs, grant: &Grant, host: &dyn Host) {
        let alone = self.pushing.lock();
        if self.progress.current() > upto {
            return;
        }
        let Some(swapped) = self.swap() else { return };
        let reserved = swapped.reserved;
        let (_, checkpoint) = swapped.take_snapshots();
        grant.give_back(reserved);
        let checkpoint = checkpoint.placed(iclogs.next());
        // Groups in which blocks were freed are locked next, and they come before this lock.
        drop(alone);
        host.completed(checkpoint, true);
    }

    /// Takes all lists and begins the next checkpoint; `None` where nothing was committed.
    fn swap(&self) -> Option<Swapped> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        if shards.iter().all(|shard| shard.is_empty()) {
            return None;
        }
        let sequence = self.progress.current();
        let next = Arc::new(Context::new(&self.sizes, shards.len(), self.space.batch, sequence + 1));
        let (items, busy) = (Vec::new(), Vec::new());
        let mut swapped = Swapped { sequence, items, busy, bytes: 0, reserved: 0 };
        for shard in &mut shards {
            let old = std::mem::replace(&mut **shard, Shard::new(Arc::clone(&next)));
            swapped.items.extend(old.items);
            swapped.busy.extend(old.busy);
            swapped.bytes += old.bytes;
            swapped.reserved += old.reserved;
        }
        self.space.restart();
        // Whoever commits after this sees the new number, and whoever waits for the old one sees it pushed.
        self.progress.pushed(sequence);
        Some(swapped)
    }

    fn write(
        &self,
        sequence: u64,
        reserved: u64,
        snapshots: &[Snapshot],
        iclogs: &Iclogs,
    ) -> Result<Filled, Halt> {
        let bytes = snapshots.iter().map(Snapshot::logged).sum();
        let regions = snapshots.iter().map(Snapshot::count).sum();
        let too_little = |needed: u64| {
            Halt::Because(format!(
                "checkpoint {sequence} needs {needed} bytes of the log, and {reserved} were reserved for it"
            ))
        };
        let most = self.sizes.checkpoint(bytes);
        if most > reserved {
            return Err(too_little(most));
        }
        let mut filler = Filler::begin(iclogs, sequence as u32, regions)?;
        let mut result = Ok(());
        let mut rest = snapshots.iter();
        while let Some(snapshot) = rest.next() {
            if let Some(later) = rest.as_slice().get(SNAPSHOTS_AHEAD) {
                later.ask_for();
            }
            snapshot.for_each(|region| {
                if result.is_ok() {
                    result = filler.region(region);
                }
            });
        }
        result?;
        let filled = filler.finish()?;
        if filled.cost > reserved {
            iclogs.give_back(filled.last);
            return Err(too_little(filled.cost));
        }
        Ok(filled)
    }
}

impl Swapped {
    /// Empties the items' slots; gives the snapshots in the order of their commits.
    fn take_snapshots(self) -> (Vec<Snapshot>, Checkpoint) {
        let sequence = self.sequence;
        let mut fetched = Vec::with_capacity(self.items.len());
        // What is sorted is small: the order, and where the item lies.
        let mut order = Vec::with_capacity(self.items.len());
        let mut rest = self.items.into_iter();
        while let Some(item) = rest.next() {
            ahead(rest.as_slice());
            let snapshot = item.core().fetch(sequence);
            debug_assert!(snapshot.is_some(), "an item in the list has a snapshot");
            let (place, snapshot) = snapshot.map_or((0, None), |(place, snapshot)| (place, Some(snapshot)));
            order.push((place, fetched.len()));
            fetched.push(snapshot.map(|snapshot| (snapshot, item)));
        }
        // Stable, as it lies in long runs that are sorted already.
        order.sort();
        let (mut snapshots, mut items) = (Vec::with_capacity(order.len()), Vec::with_capacity(order.len()));
        for (_, at) in order {
            if let Some((snapshot, item)) = fetched.get_mut(at).and_then(Option::take) {
                snapshots.push(snapshot);
                items.push(item);
            }
        }
        debug_assert_eq!(
            snapshots.iter().map(|snapshot| snapshot.logged() as i64).sum::<i64>(),
            self.bytes,
            "what commits accounted for is what the items hold"
        );
        (snapshots, Checkpoint { sequence, items, busy: self.busy, start: None, commit: 0 })
    }
}
