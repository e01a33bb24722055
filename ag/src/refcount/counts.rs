//! What a change of counts makes of the records around it: a pure function.

use std::ops::Range;

/// A record: blocks that have equally many owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefcountRecord {
    /// First block.
    pub start: u32,
    /// Blocks.
    pub blocks: u32,
    /// Owners.
    pub count: u32,
}

impl RefcountRecord {
    /// The block behind the last.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(self.blocks)
    }
}

/// By one, up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountAdjustment {
    /// Another owner.
    Increase,
    /// One owner less.
    Decrease,
}

/// The records as they will be, and what nobody owns any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjustedRefcounts {
    /// In order.
    pub records: Vec<RefcountRecord>,
    /// First block and blocks.
    pub freed: Vec<(u32, u32)>,
    /// What was shared and has one owner left: first block and blocks.
    pub alone: Vec<(u32, u32)>,
}

/// Counts `range` by one. `old` holds the records in it and those that touch it, in order; blocks without a record
/// count `base`. `None` where that cannot be: staging that is counted twice, or taken away where there is none.
pub fn change(
    old: &[RefcountRecord],
    range: Range<u32>,
    step: RefcountAdjustment,
    base: u32,
) -> Option<AdjustedRefcounts> {
    let mut new = AdjustedRefcounts::default();
    let mut at = range.start;
    for record in old {
        // Before the range.
        let before = record.end().min(range.start).saturating_sub(record.start);
        push(&mut new.records, RefcountRecord { blocks: before, ..*record });
        // A gap in the range, then what of the record is in it.
        let inside = record.start.clamp(range.start, range.end)..record.end().clamp(range.start, range.end);
        count(&mut new, at..inside.start.max(at), base, step, base)?;
        count(&mut new, inside.clone(), record.count, step, base)?;
        at = at.max(inside.end);
        // Behind the range.
        let start = record.start.max(range.end);
        push(
            &mut new.records,
            RefcountRecord { start, blocks: record.end().saturating_sub(start), ..*record },
        );
        if record.end() > range.end {
            at = range.end;
        }
    }
    count(&mut new, at..range.end, base, step, base)?;
    Some(new)
}

/// Counts blocks that have `count` owners.
fn count(
    new: &mut AdjustedRefcounts,
    blocks: Range<u32>,
    count: u32,
    step: RefcountAdjustment,
    base: u32,
) -> Option<()> {
    if blocks.is_empty() {
        return Some(());
    }
    let now = match step {
        // What is shared so often is shared for ever.
        RefcountAdjustment::Increase | RefcountAdjustment::Decrease if count == u32::MAX => count,
        RefcountAdjustment::Increase => count + 1,
        RefcountAdjustment::Decrease => count.checked_sub(1)?,
    };
    if base == 0 && now > 1 {
        return None;
    }
    let length = blocks.end - blocks.start;
    if now > base {
        push(&mut new.records, RefcountRecord { start: blocks.start, blocks: length, count: now });
    } else if now == 0 && base > 0 {
        new.freed.push((blocks.start, length));
    } else if base > 0 && step == RefcountAdjustment::Decrease {
        new.alone.push((blocks.start, length));
    }
    Some(())
}

/// Appends a record, joined with the one before if they touch and count the same.
fn push(records: &mut Vec<RefcountRecord>, record: RefcountRecord) {
    if record.blocks == 0 {
        return;
    }
    match records.last_mut().filter(|last| last.end() == record.start && last.count == record.count) {
        Some(last) => last.blocks += record.blocks,
        None => records.push(record),
    }
}
