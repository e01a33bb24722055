//! The records after an adjustment of reference counts: a pure function.

use std::ops::Range;

/// A decoded refcount record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefcountRecord {
    /// First block.
    pub start: u32,
    /// Blocks.
    pub blocks: u32,
    /// Number of owners.
    pub count: u32,
}

impl RefcountRecord {
    /// End: the block after the last.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(self.blocks)
    }
}

/// Direction of an adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountAdjustment {
    /// Adds an owner.
    Increase,
    /// Removes an owner.
    Decrease,
}

/// The adjusted records, and blocks that lost their owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjustedRefcounts {
    /// In order.
    pub records: Vec<RefcountRecord>,
    /// Extents without an owner: first block and length.
    pub freed: Vec<(u32, u32)>,
    /// Extents that were shared and have one owner left: first block and length.
    pub alone: Vec<(u32, u32)>,
}

/// Adjusts the counts of `range` by one. `old` holds the records that intersect or touch it, in order; blocks without a
/// record have the count `base`. Returns `None` if the adjustment is invalid: staging extents that exist already, or
/// are missing.
pub fn change(
    old: &[RefcountRecord],
    range: Range<u32>,
    adjustment: RefcountAdjustment,
    base: u32,
) -> Option<AdjustedRefcounts> {
    let mut new = AdjustedRefcounts::default();
    let mut at = range.start;
    for record in old {
        // Before the range.
        let before = record.end().min(range.start).saturating_sub(record.start);
        push(&mut new.records, RefcountRecord { blocks: before, ..*record });
        // The gap before the record, then the part of the record in the range.
        let inside = record.start.clamp(range.start, range.end)..record.end().clamp(range.start, range.end);
        count(&mut new, at..inside.start.max(at), base, adjustment, base)?;
        count(&mut new, inside.clone(), record.count, adjustment, base)?;
        at = at.max(inside.end);
        // After the range.
        let start = record.start.max(range.end);
        push(
            &mut new.records,
            RefcountRecord { start, blocks: record.end().saturating_sub(start), ..*record },
        );
        if record.end() > range.end {
            at = range.end;
        }
    }
    count(&mut new, at..range.end, base, adjustment, base)?;
    Some(new)
}

/// Adjusts blocks that have `count` owners.
fn count(
    new: &mut AdjustedRefcounts,
    blocks: Range<u32>,
    count: u32,
    adjustment: RefcountAdjustment,
    base: u32,
) -> Option<()> {
    if blocks.is_empty() {
        return Some(());
    }
    let now = match adjustment {
        // A count at its maximum stays there.
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
    } else if base > 0 && adjustment == RefcountAdjustment::Decrease {
        new.alone.push((blocks.start, length));
    }
    Some(())
}

/// Appends a record, merged with the previous one if they touch and have equal counts.
fn push(records: &mut Vec<RefcountRecord>, record: RefcountRecord) {
    if record.blocks == 0 {
        return;
    }
    match records.last_mut().filter(|last| last.end() == record.start && last.count == record.count) {
        Some(last) => last.blocks += record.blocks,
        None => records.push(record),
    }
}
