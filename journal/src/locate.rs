//! Locating the head of the log: where the next record will be written, and so which record is the last complete one.
//!
//! Every block carries the cycle in which it was written: cycle *n* before the head, and *n - 1* from the head on (or
//! zero, in a log that was never filled). So a binary search finds an edge between the two. But a writer has up to
//! eight records in flight, and a power cut can leave any of their sectors old. So the edge is only a hint, accurate to
//! within the longest flight. The flight before the edge is read completely and judged by this table:
//!
//! | content of the flight | meaning |
//! |---|---|
//! | a block of the older cycle before the edge | it was never written: the head is at most there |
//! | an incomplete record: it reaches past the head, or its checksum is wrong | torn: the head is where it starts |
//! | complete records behind a torn one | written out of order: discarded with it, unless their tail lies behind it |
//! | no complete record | damage that no power cut causes: [`LogError::NoHead`] |
//! | an incomplete record further back than a flight | damage too, found by iterating from the tail |
//!
//! A torn sector keeps its old cycle, so a record that carries its cycle throughout but has a wrong checksum is not
//! torn at sectors. Linux discards it nevertheless, and so does this module; [`DiscardedRecords`] reports it.

use base::Lsn;
use format::damage::Damage;
use format::log::BLOCK_BYTES;
use format::log::record::{self, MAX_BLOCKS, MAX_IN_FLIGHT};

use crate::area::{LogArea, SCAN_BLOCKS};
use crate::error::LogError;
use crate::record::LogRecord;

/// Blocks before the head in which records are verified first.
const FIRST_REACH: u32 = 512;

/// Largest number of blocks in flight.
pub const MAX_INFLIGHT_BLOCKS: u32 = MAX_IN_FLIGHT * MAX_BLOCKS;

/// The end of a log.
#[derive(Debug)]
pub struct LogEnd {
    /// LSN of the next record.
    pub head: Lsn,
    /// The last complete record; `None` in a log that was never written.
    pub last: Option<LogRecord>,
    /// Records behind the last complete one.
    pub discarded: Option<DiscardedRecords>,
}

/// Records behind the head that a power cut left incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedRecords {
    /// Block of the first one.
    pub block: u32,
    /// Number of records, including complete ones that follow.
    pub records: u32,
    /// Damage of the first one.
    pub damage: Damage,
}

/// Locates the head.
///
/// # Errors
/// [`LogError::Device`], [`LogError::NoHead`].
pub fn locate(area: &LogArea<'_>) -> Result<LogEnd, LogError> {
    let Some(edge) = CycleEdge::find(area)? else {
        return Ok(LogEnd { head: Lsn::new(1, 0), last: None, discarded: None });
    };
    let mut flight = InflightWindow::read(area, &edge)?;
    // Usually the last records are enough: earlier ones are read only if they are not.
    let mut reach = FIRST_REACH;
    let (entries, chosen) = loop {
        let is_all = flight.look_back(area, reach)?;
        let entries = flight.entries(area);
        let chosen = choose(&entries);
        let first = entries.first().map_or(0, |entry| entry.offset);
        let tail = |at: usize| entries.get(at).and_then(|entry| Some(entry.state.as_ref().ok()?.tail_offset));
        if is_all || chosen.and_then(tail).is_some_and(|tail| tail >= first) {
            break (entries, chosen);
        }
        reach = reach.saturating_mul(4);
    };
    let none = || LogError::NoHead {
        block: flight.start,
        damage: entries
            .iter()
            .rev()
            .find_map(|entry| entry.state.as_ref().err().cloned())
            .unwrap_or_else(|| Damage::new("log", "records", "a record near the head", "none")),
    };
    let chosen = chosen.ok_or_else(none)?;
    let entry = entries.get(chosen).ok_or_else(none)?;
    let record = LogRecord::verify(flight.ahead(entry.offset), area.advance(flight.start, entry.offset))
        .map_err(|damage| LogError::NoHead { block: area.advance(flight.start, entry.offset), damage })?;
    let discarded = entries.get(chosen + 1..).and_then(|rest| {
        let first = rest.iter().find_map(|entry| Some((entry, entry.state.as_ref().err()?)))?;
        Some(DiscardedRecords {
            block: area.advance(flight.start, first.0.offset),
            records: rest.len() as u32,
            damage: first.1.clone(),
        })
    });
    Ok(LogEnd { head: behind(area, &record), last: Some(record), discarded })
}

/// LSN of the position behind a record.
fn behind(area: &LogArea<'_>, last: &LogRecord) -> Lsn {
    let LogRecord { header, .. } = last;
    let block = area.advance(header.lsn.block(), header.blocks());
    let wrapped = block <= header.lsn.block();
    let cycle = header.lsn.cycle();
    Lsn::new(if wrapped { record::next_cycle(cycle) } else { cycle }, block)
}

/// An edge between two cycles.
struct CycleEdge {
    /// The first block of the older cycle; the ring's length if every block has the same.
    block: u32,
    /// The cycle before the edge.
    newer: u32,
    /// The cycle from the edge to the physical end; 0 in a log that was never filled.
    older: u32,
    /// Blocks without a cycle behind the edge, before the older cycle begins.
    gap: u32,
}

impl CycleEdge {
    /// Finds the edge; `None` in a log that was never written.
    fn find(area: &LogArea<'_>) -> Result<Option<Self>, LogError> {
        let end = area.blocks() - 1;
        let (first, last) = (area.cycle(0)?, area.cycle(end)?);
        match (first, last) {
            // Linux reads only the first block. An older log may lie behind it if zeroing was interrupted.
            (0, _) => return Ok(None),
            _ if first == last => {
                return Ok(Some(Self { block: area.blocks(), newer: first, older: last, gap: 0 }));
            }
            _ => {}
        }
        let high = run_start(area, 0, end, last)?;
        Self::at(area, high, last)
    }

    /// The edge between the run of `last`, from `high` to the physical end, and the block before it.
    ///
    /// | cycle before the run | edge |
    /// |---|---|
    /// | the next cycle | here |
    /// | any, in a log that was never filled | here, except after [an interrupted formatting](Self::unfilled) |
    /// | the previous cycle, or none, preceded by the run's own | at a block in flight that was never written |
    /// | none, preceded by the next cycle | at the gap behind the single record of a log formatted by xfs_repair |
    fn at(area: &LogArea<'_>, high: u32, last: u32) -> Result<Option<Self>, LogError> {
        let before = area.cycle(high - 1)?;
        if last == 0 {
            return Self::unfilled(area, high, before).map(Some);
        }
        if before == record::next_cycle(last) {
            return Ok(Some(Self { block: high, newer: before, older: last, gap: 0 }));
        }
        let block = run_start(area, 0, high - 1, before)?;
        let newer = block.checked_sub(1).map(|at| area.cycle(at)).transpose()?.unwrap_or(0);
        if before == 0 && newer == record::next_cycle(last) {
            return Ok(Some(Self { block, newer, older: last, gap: high - block }));
        }
        if newer == last && (before == 0 || before == record::previous_cycle(last)) {
            return Ok(Some(Self { block, newer, older: before, gap: 0 }));
        }
        let expected = format!("{}, one above the blocks behind it", record::next_cycle(last));
        Err(no_head(high - 1, expected, before))
    }

    /// The edge before zeros that reach from `high` to the physical end, behind blocks of the cycle `before`.
    ///
    /// `xfs_repair` formats a log with one record of a new cycle, zeros of up to a record's length, and blocks of the
    /// previous cycle up to the physical end. If that is interrupted, the rest is zero too. As in Linux, zeros within a
    /// flight before the edge count as blocks that were never written: the head is behind the single record.
    fn unfilled(area: &LogArea<'_>, high: u32, before: u32) -> Result<Self, LogError> {
        let edge = |block, newer| Self { block, newer, older: 0, gap: 0 };
        let newer = record::next_cycle(before);
        if before == 0 || area.cycle(0)? != newer {
            return Ok(edge(high, before));
        }
        let filled = run_start(area, 0, high - 1, before)?;
        // Without a gap, a cycle ends here with a lost sector.
        if high - filled >= MAX_INFLIGHT_BLOCKS || area.cycle(filled - 1)? != 0 {
            return Ok(edge(high, before));
        }
        let block = run_start(area, 0, filled - 1, 0)?;
        Ok(if area.cycle(block - 1)? == newer { edge(block, newer) } else { edge(high, before) })
    }
}

fn no_head(block: u32, expected: String, found: u32) -> LogError {
    LogError::NoHead { block, damage: Damage::new("log block", "cycle", expected, found) }
}

/// The start of the run of blocks with a cycle that reaches to `end`; block `start` has another cycle. Earlier runs of
/// the same cycle need not be found by a binary search.
fn run_start(area: &LogArea<'_>, start: u32, end: u32, cycle: u32) -> Result<u32, LogError> {
    let (mut low, mut high) = (start, end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if area.cycle(middle)? == cycle { high = middle } else { low = middle }
    }
    Ok(high)
}

/// The blocks before an edge that may have been in flight. All are scanned, and the last ones are kept in memory.
struct InflightWindow {
    /// First block.
    start: u32,
    /// Number of blocks.
    length: u32,
    /// Blocks from `start` to the physical end if the window crosses it, else 0. They carry the older cycle.
    before_wrap: u32,
    newer: u32,
    older: u32,
    /// Blocks at the beginning that lie in a gap behind the edge.
    gap: u32,
    /// The part that was written in order.
    written: (u32, u32),
    /// Number of leading blocks that are not kept.
    dropped: u32,
    /// The kept blocks.
    bytes: Vec<u8>,
}

impl InflightWindow {
    fn read(area: &LogArea<'_>, edge: &CycleEdge) -> Result<Self, LogError> {
        let reach = MAX_INFLIGHT_BLOCKS.min(area.blocks());
        // In its first cycle the log has nothing older behind the physical end.
        let length = if edge.older == 0 { reach.min(edge.block) } else { reach };
        let start = area.back(edge.block % area.blocks(), length);
        let before_wrap = length.saturating_sub(edge.block);
        let gap = (edge.gap + length).saturating_sub(area.blocks());
        let (newer, older, bytes) = (edge.newer, edge.older, Vec::new());
        let mut flight =
            Self { start, length, before_wrap, newer, older, gap, written: (0, 0), dropped: length, bytes };
        flight.written = flight.look_through(area)?;
        Ok(flight)
    }

    fn cycle_at(&self, offset: u32) -> u32 {
        if offset < self.before_wrap { self.older } else { self.newer }
    }

    /// The part of the window that was written in order: from behind the blocks written past the edge up to the first
    /// block that was not written.
    ///
    /// Blocks written past the edge appear only in a ring so small that the window reaches around it: they carry the
    /// next cycle, or lie in the gap that xfs_repair leaves.
    fn look_through(&self, area: &LogArea<'_>) -> Result<(u32, u32), LogError> {
        let (mut start, mut hole) = (0, None);
        let mut piece = vec![0; SCAN_BLOCKS.min(self.length) as usize * BLOCK_BYTES];
        for from in (0..self.length).step_by(SCAN_BLOCKS as usize) {
            let bytes = SCAN_BLOCKS.min(self.length - from) as usize * BLOCK_BYTES;
            let piece = piece.get_mut(..bytes).unwrap_or(&mut []);
            area.read(area.advance(self.start, from), piece)?;
            for (n, block) in (from..).zip(piece.chunks_exact(BLOCK_BYTES)) {
                let (cycle, expected) = (record::block_cycle(block), self.cycle_at(n));
                if n < self.gap || cycle == Some(record::next_cycle(expected)) {
                    (start, hole) = (n + 1, None);
                } else if cycle != Some(expected) {
                    hole = hole.or(Some(n));
                }
            }
        }
        Ok((start, hole.unwrap_or(self.length)))
    }

    /// Keeps `reach` blocks before the end of the part written in order, and all behind it; returns whether that is
    /// all.
    fn look_back(&mut self, area: &LogArea<'_>, reach: u32) -> Result<bool, LogError> {
        let (start, end) = self.written;
        self.dropped = end.saturating_sub(reach).max(start).min(self.length);
        self.bytes = area.read_blocks(area.advance(self.start, self.dropped), self.length - self.dropped)?;
        Ok(self.dropped == start)
    }

    /// The kept blocks from an offset on.
    fn ahead(&self, offset: u32) -> &[u8] {
        self.bytes.get(offset.saturating_sub(self.dropped) as usize * BLOCK_BYTES..).unwrap_or(&[])
    }

    /// The entries of the kept part, from the first record that starts there. A block within a record never looks like
    /// a header, as its first word is a cycle. So the entries do not depend on how much is kept.
    fn entries(&self, area: &LogArea<'_>) -> Vec<WindowEntry> {
        let (mut next, end) = self.written;
        let mut entries: Vec<WindowEntry> = Vec::new();
        for (offset, block) in (self.dropped..end).zip(self.bytes.chunks_exact(BLOCK_BYTES)) {
            if offset < next {
                continue;
            }
            let follows = entries.last().is_some_and(|entry| entry.state.is_ok());
            if !record::is_header(block) {
                if follows {
                    let damage = Damage::new("log record header", "magicno", "a record", "none");
                    entries.push(WindowEntry { offset, state: Err(damage) });
                }
                continue;
            }
            let state = self.judge(area, offset, end);
            next = state.as_ref().map_or(offset + 1, |whole| offset + whole.blocks);
            entries.push(WindowEntry { offset, state });
        }
        entries
    }

    fn judge(&self, area: &LogArea<'_>, offset: u32, end: u32) -> Result<WholeRecord, Damage> {
        let header = LogRecord::check(self.ahead(offset), area.advance(self.start, offset))?;
        let blocks = header.blocks();
        if offset + blocks > end {
            let bytes = |blocks: u32| blocks as usize * BLOCK_BYTES;
            return Err(Damage::short("log record", bytes(blocks), bytes(end - offset)));
        }
        let reach = tail_distance(area, header.lsn, header.tail_lsn)?;
        Ok(WholeRecord { blocks, tail_offset: offset.saturating_sub(reach) })
    }
}

/// Distance in blocks from a record back to its tail: 0 if it is its own tail, the ring's length if the tail is the
/// same block one cycle earlier.
pub fn tail_distance(area: &LogArea<'_>, lsn: Lsn, tail: Lsn) -> Result<u32, Damage> {
    let distance = area.distance(tail.block() % area.blocks(), lsn.block() % area.blocks());
    let same_lap = tail.cycle() == lsn.cycle() && tail.block() <= lsn.block();
    let lap_before = record::next_cycle(tail.cycle()) == lsn.cycle() && tail.block() >= lsn.block();
    match (same_lap, lap_before && tail.block() < area.blocks()) {
        (true, _) => Ok(distance),
        (_, true) => Ok(if distance == 0 { area.blocks() } else { distance }),
        _ => Err(Damage::new(
            "log record header",
            "tail_lsn",
            format_args!("at most one cycle before {}:{}", lsn.cycle(), lsn.block()),
            format_args!("{}:{}", tail.cycle(), tail.block()),
        )),
    }
}

/// A record in the window, or a place where one should start.
struct WindowEntry {
    /// Blocks from the start of the window.
    offset: u32,
    state: Result<WholeRecord, Damage>,
}

/// A complete record.
struct WholeRecord {
    blocks: u32,
    /// Offset of its tail in blocks from the start of the window; 0 if it lies before the window.
    tail_offset: u32,
}

/// The last complete record whose predecessors back to its tail are complete too, as far as the window shows them.
fn choose(entries: &[WindowEntry]) -> Option<usize> {
    let mut candidates = entries;
    loop {
        let last = candidates.iter().rposition(|entry| entry.state.is_ok())?;
        let tail = candidates.get(last)?.state.as_ref().ok()?.tail_offset;
        let before = candidates.get(..last)?;
        match before.iter().rposition(|entry| entry.state.is_err() && entry.offset >= tail) {
            None => return Some(last),
            Some(torn) => candidates = before.get(..torn)?,
        }
    }
}
