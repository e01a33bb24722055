//! Pushing: from the shards' lists to records in iclogs.
//!
//! | step | under | meanwhile |
//! |---|---|---|
//! | detach the lists, number the next checkpoint | all shards | commits wait for some microseconds |
//! | take the log vectors out of the items | each item's slots | commits run, into the next checkpoint; a commit of an item that still has its vector uses the other slot |
//! | sort, compare with the reservation, fill iclogs | `Push` alone | commits run, records are written |
//! | wait for the disk | nothing | the next push begins |

use std::sync::Arc;

use super::context::CilContext;
use super::memory::DetachedMemory;
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
    memory: DetachedMemory,
    reserved: u64,
}

impl Cil {
    /// Pushes the current checkpoint unless it is later than `upto`, or empty. On return its records are submitted, and
    /// no earlier commit to a checkpoint up to `upto` is left behind.
    ///
    /// # Errors
    /// [`Shutdown::Already`]; [`Shutdown::Because`] if the checkpoint needs more log space than it reserved: the caller
    /// must then shut the volume down.
    pub fn push(
        &self,
        upto: u64,
        iclogs: &Iclogs,
        grant: &GrantHead,
        callbacks: &dyn IclogCallbacks,
    ) -> Result<(), Shutdown> {
        let _alone = self.pushing.lock();
        if self.progress.current() > upto {
            return Ok(());
        }
        let Some(detached) = self.detach() else { return Ok(()) };
        let (sequence, reserved, memory) = (detached.sequence, detached.reserved, detached.memory.vectors);
        let (vectors, mut checkpoint) = detached.take_vectors();
        let written = self.write(sequence, reserved, &vectors, iclogs);
        drop(vectors);
        self.memory.freed(memory);
        match written {
            Ok(written) => {
                checkpoint.start = written.start;
                iclogs.submit(written.last, true, Some(checkpoint));
                grant.give_back(reserved - written.cost);
                Ok(())
            }
            Err(error) => {
                callbacks.completed(checkpoint, false);
                Err(error)
            }
        }
    }

    /// Completes the checkpoint without records: its changes count as stable at once, at the position of the next
    /// record.
    pub fn complete_without_journal(
        &self,
        upto: u64,
        iclogs: &Iclogs,
        grant: &GrantHead,
        callbacks: &dyn IclogCallbacks,
    ) {
        let alone = self.pushing.lock();
        if self.progress.current() > upto {
            return;
        }
        let Some(detached) = self.detach() else { return };
        let (reserved, memory) = (detached.reserved, detached.memory.vectors);
        let (vectors, checkpoint) = detached.take_vectors();
        drop(vectors);
        self.memory.freed(memory);
        grant.give_back(reserved);
        let checkpoint = checkpoint.placed(iclogs.next());
        // Completion locks AGs in which blocks were freed, and those locks come before this one.
        drop(alone);
        callbacks.completed(checkpoint, true);
    }

    /// Detaches all lists and begins the next checkpoint; `None` if nothing was committed.
    fn detach(&self) -> Option<DetachedList> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        if shards.iter().all(|shard| shard.is_empty()) {
            return None;
        }
        let sequence = self.progress.current();
        let next = Arc::new(CilContext::new(&self.sizes, shards.len(), self.space.batch, sequence + 1));
        let (items, busy) = (Vec::new(), Vec::new());
        let memory = DetachedMemory::default();
        let mut detached = DetachedList { sequence, items, busy, bytes: 0, memory, reserved: 0 };
        for shard in &mut shards {
            let old = std::mem::replace(&mut **shard, CilShard::new(Arc::clone(&next)));
            detached.items.extend(old.items);
            detached.busy.extend(old.busy);
            detached.bytes += old.bytes;
            let memory = self.memory.detach(old.memory);
            detached.memory.vectors += memory.vectors;
            detached.memory.items += memory.items;
            detached.reserved += old.reserved;
        }
        self.space.restart();
        self.memory.restart();
        self.memory.pushed(detached.memory.items);
        // Later commits see the new number, and threads that wait for the old one see it pushed.
        self.progress.pushed(sequence);
        Some(detached)
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
        let mut writer = CheckpointWriter::begin(iclogs, sequence as u32, regions)?;
        let mut result = Ok(());
        let mut rest = vectors.iter();
        while let Some(vector) = rest.next() {
            if let Some(next) = rest.as_slice().get(PREFETCH_COPIES) {
                next.prefetch();
            }
            vector.for_each(|region| {
                if result.is_ok() {
                    result = writer.region(region);
                }
            });
        }
        result?;
        let written = writer.finish()?;
        if written.cost > reserved {
            iclogs.give_back(written.last);
            return Err(too_little(written.cost));
        }
        Ok(written)
    }
}

impl DetachedList {
    /// Empties the items' slots; returns the log vectors in the order of their commits.
    fn take_vectors(self) -> (Vec<LogVector>, Checkpoint) {
        let sequence = self.sequence;
        let mut fetched = Vec::with_capacity(self.items.len());
        // Sorts small keys: the order number and the index of the item.
        let mut order = Vec::with_capacity(self.items.len());
        let mut rest = self.items.into_iter();
        while let Some(item) = rest.next() {
            prefetch_next(rest.as_slice());
            let vector = item.core().fetch(sequence);
            debug_assert!(vector.is_some(), "an item in the list has a log vector");
            let (place, vector) = vector.map_or((0, None), |(place, vector)| (place, Some(vector)));
            order.push((place, fetched.len()));
            fetched.push(vector.map(|vector| (vector, item)));
        }
        // A stable sort, as the keys consist of long sorted runs.
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
        let memory = self.memory.items;
        (vectors, Checkpoint { sequence, items, busy: self.busy, start: None, commit: 0, memory })
    }
}
