//! Pushing: from the shards' lists to records in the log's buffers.
//!
//! | step | under | meanwhile |
//! |---|---|---|
//! | swap the lists out, number the next checkpoint | all shards | commits wait for some microseconds |
//! | take the snapshots out of the items | each item's slots | commits run, into the next checkpoint; one that meets an item not yet emptied uses its other slot |
//! | sort, compare with the reservation, checkpoint_writer records | `Push` alone | commits run, records are written |
//! | wait for the disk | nothing | the next push begins |

use std::sync::Arc;

use super::context::CilContext;
use super::{Checkpoint, Cil, CilShard};
use crate::engine::commit_target::BusyExtent;
use crate::engine::grant::GrantHead;
use crate::engine::iclog::checkpoint_writer::{CheckpointWriter, WrittenCheckpoint};
use crate::engine::iclog::{IclogCallbacks, Iclogs};
use crate::engine::item::{LogItem, LogVector, prefetch_next};
use crate::engine::shutdown::Shutdown;
use crate::engine::tuning::PREFETCH_COPIES;

/// All that was committed into one checkpoint.
struct DetachedList {
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
    /// [`Shutdown::Already`]; [`Shutdown::Because`] where the checkpoint needs more than was reserved for it: the
    /// volume must then be shut down.
    pub fn push(
        &self,
        upto: u64,
        iclogs: &Iclogs,
        grant: &GrantHead,
        host: &dyn IclogCallbacks,
    ) -> Result<(), Shutdown> {
        let _alone = self.pushing.lock();
        if self.progress.current() > upto {
            return Ok(());
        }
        let Some(swapped) = self.swap() else { return Ok(()) };
        let (sequence, reserved) = (swapped.sequence, swapped.reserved);
        let (vectors, mut checkpoint) = swapped.take_vectors();
        let written = self.write(sequence, reserved, &vectors, iclogs);
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
    pub fn complete_without_journal(
        &self,
        upto: u64,
        iclogs: &Iclogs,
        grant: &GrantHead,
        host: &dyn IclogCallbacks,
    ) {
        let alone = self.pushing.lock();
        if self.progress.current() > upto {
            return;
        }
        let Some(swapped) = self.swap() else { return };
        let reserved = swapped.reserved;
        let (_, checkpoint) = swapped.take_vectors();
        grant.give_back(reserved);
        let checkpoint = checkpoint.placed(iclogs.next());
        // Groups in which blocks were freed are locked next, and they come before this lock.
        drop(alone);
        host.completed(checkpoint, true);
    }

    /// Takes all lists and begins the next checkpoint; `None` where nothing was committed.
    fn swap(&self) -> Option<DetachedList> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        if shards.iter().all(|shard| shard.is_empty()) {
            return None;
        }
        let sequence = self.progress.current();
        let next = Arc::new(CilContext::new(&self.sizes, shards.len(), self.space.batch, sequence + 1));
        let (items, busy) = (Vec::new(), Vec::new());
        let mut swapped = DetachedList { sequence, items, busy, bytes: 0, reserved: 0 };
        for shard in &mut shards {
            let old = std::mem::replace(&mut **shard, CilShard::new(Arc::clone(&next)));
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
        vectors: &[LogVector],
        iclogs: &Iclogs,
    ) -> Result<WrittenCheckpoint, Shutdown> {
        let bytes = vectors.iter().map(LogVector::logged).sum();
        let regions = vectors.iter().map(LogVector::count).sum();
        let too_little = |needed: u64| {
            Shutdown::Because(format!(
                "checkpoint {sequence} needs {needed} bytes of the log, and {reserved} were reserved for it"
            ))
        };
        let most = self.sizes.checkpoint(bytes);
        if most > reserved {
            return Err(too_little(most));
        }
        let mut filler = CheckpointWriter::begin(iclogs, sequence as u32, regions)?;
        let mut result = Ok(());
        let mut rest = vectors.iter();
        while let Some(vector) = rest.next() {
            if let Some(next) = rest.as_slice().get(PREFETCH_COPIES) {
                next.prefetch();
            }
            vector.for_each(|region| {
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

impl DetachedList {
    /// Empties the items' slots; gives the snapshots in the order of their commits.
    fn take_vectors(self) -> (Vec<LogVector>, Checkpoint) {
        let sequence = self.sequence;
        let mut fetched = Vec::with_capacity(self.items.len());
        // What is sorted is small: the order, and where the item lies.
        let mut order = Vec::with_capacity(self.items.len());
        let mut rest = self.items.into_iter();
        while let Some(item) = rest.next() {
            prefetch_next(rest.as_slice());
            let vector = item.core().fetch(sequence);
            debug_assert!(vector.is_some(), "an item in the list has a snapshot");
            let (place, vector) = vector.map_or((0, None), |(place, vector)| (place, Some(vector)));
            order.push((place, fetched.len()));
            fetched.push(vector.map(|vector| (vector, item)));
        }
        // AfterCommit, as it lies in long runs that are sorted already.
        order.sort();
        let (mut vectors, mut items) = (Vec::with_capacity(order.len()), Vec::with_capacity(order.len()));
        for (_, at) in order {
            if let Some((vector, item)) = fetched.get_mut(at).and_then(Option::take) {
                vectors.push(vector);
                items.push(item);
            }
        }
        debug_assert_eq!(
            vectors.iter().map(|vector| vector.logged() as i64).sum::<i64>(),
            self.bytes,
            "what commits accounted for is what the items hold"
        );
        (vectors, Checkpoint { sequence, items, busy: self.busy, start: None, commit: 0 })
    }
}
