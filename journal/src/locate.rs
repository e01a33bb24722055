//! Finding the head: where the next record would be written, and so which record is the last whole one.
//!
//! Every block carries the cycle in which it was written. Behind the head lies cycle *n*, from the head on *n - 1* (or
//! zero, in a log that was never filled), so a binary search finds an edge between the two. But a writer has up to
//! eight records in flight, and a power cut leaves any of their sectors old. So the edge is only a hint, good to within
//! the longest flight. The flight before it is read whole, and judged by this table:
//!
//! | what lies in the flight | what it means |
//! |---|---|
//! | a block of the older cycle before the edge | it was never written: the head is at most there |
//! | a record that is not whole: it reaches over the head, or has a wrong checksum | torn: the head is where it starts |
//! | whole records behind a torn one | written out of order: discarded with it, unless their tail lies behind it |
//! | no whole record at all | damage that no power cut makes: [`LogError::NoHead`] |
//! | a record further back than a flight that is not whole | damage too, found by the walk from the tail |
//!
//! A torn sector keeps its old cycle, so a record that carries its cycle throughout and yet has a wrong checksum was
//! not torn at sectors. Linux discards it all the same, and so does this; [`DiscardedRecords`] tells.

use base::Lsn;
use format::damage::Damage;
use format::log::BLOCK_BYTES;
use format::log::record::{self, MAX_BLOCKS, MAX_IN_FLIGHT};

use crate::area::{LogArea, SCAN_BLOCKS};
use crate::error::LogError;
use crate::record::LogRecord;

/// Blocks before the head in which the records are verified first.
const FIRST_REACH: u32 = 512;

/// Blocks that may be in flight at once.
pub const MAX_INFLIGHT_BLOCKS: u32 = MAX_IN_FLIGHT * MAX_BLOCKS;

/// What was found at the end of a log.
#[derive(Debug)]
pub struct LogEnd {
    /// Where the next record would be written, and the cycle it would carry.
    pub head: Lsn,
    /// The last whole record; `None` in a log that was never written.
    pub last: Option<LogRecord>,
    /// Records behind the last whole one.
    pub discarded: Option<DiscardedRecords>,
}

/// Records behind the head that a power cut left incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedRecords {
    /// Where the first of them lies.
    pub block: u32,
    /// How many there are, whole ones that follow it included.
    pub records: u32,
    /// What is wrong with the first.
    pub damage: Damage,
}

/// Finds the head.
///
/// # Errors
/// [`LogError::Device`], [`LogError::NoHead`].
pub fn locate(area: &LogArea<'_>) -> Result<LogEnd, LogError> {
    let Some(edge) = CycleEdge::find(area)? else {
        return Ok(LogEnd { head: Lsn::new(1, 0), last: None, discarded: None });
    };
    let mut flight = InflightWindow::read(area, &edge)?;
    // Mostly the last records tell: what lies further back is read only where they do not.
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

/// The sequence number of the place behind a record.
fn behind(area: &LogArea<'_>, last: &LogRecord) -> Lsn {
    let LogRecord { header, .. } = last;
    let block = area.advance(header.lsn.block(), header.blocks());
    let wrapped = block <= header.lsn.block();
    let cycle = header.lsn.cycle();
    Lsn::new(if wrapped { record::next_cycle(cycle) } else { cycle }, block)
}

/// An edge between two cycles.
struct CycleEdge {
    /// The first block of the older cycle; the ring's length where every block has the same.
    block: u32,
    /// The cycle before it.
    newer: u32,
    /// The cycle from it to the physical end; 0 in a log that was never filled.
    older: u32,
    /// Blocks behind it that carry no cycle at all, before the older one begins.
    gap: u32,
}

impl CycleEdge {
    /// Searches the edge; `None` in a log that was never written.
    fn find(area: &LogArea<'_>) -> Result<Option<Self>, LogError> {
        let end = area.blocks() - 1;
        let (first, last) = (area.cycle(0)?, area.cycle(end)?);
        match (first, last) {
            // Linux looks at the first block alone. An older log may lie behind it, where zeroing was interrupted.
            (0, _) => return Ok(None),
            _ if first == last => {
                return Ok(Some(Self { block: area.blocks(), newer: first, older: last, gap: 0 }));
            }
            _ => {}
        }
        let high = run_start(area, 0, end, last)?;
        Self::at(area, high, last)
    }

    /// The edge that a run of `last`, from `high` to the physical end, makes with what lies before it.
    ///
    /// | before it | it is |
    /// |---|---|
    /// | the next cycle | the edge |
    /// | anything in a log that was never filled | the edge, but for [an interrupted formatting](Self::unfilled) |
    /// | the cycle before, or none with the run's own before that | a block in flight that was never written: the edge |
    /// | none, with the next cycle before that | the gap behind the one record of a log that xfs_repair formatted |
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
    /// `xfs_repair` formats a log by one record of a new cycle, zeros of up to a record's length, and then blocks of
    /// the cycle before up to the physical end. Where that was interrupted, the rest is zero, too. As in Linux, zeros
    /// within a flight before the edge count as blocks that were never written: the head is behind the one record.
    fn unfilled(area: &LogArea<'_>, high: u32, before: u32) -> Result<Self, LogError> {
        let edge = |block, newer| Self { block, newer, older: 0, gap: 0 };
        let newer = record::next_cycle(before);
        if before == 0 || area.cycle(0)? != newer {
            return Ok(edge(high, before));
        }
        let filled = run_start(area, 0, high - 1, before)?;
        // Without a gap it is a lap that ends with a lost sector.
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

/// Where the run of blocks with a cycle begins that reaches up to `end`; block `start` has another. There may be other
/// runs of it before, which a binary search need not find.
fn run_start(area: &LogArea<'_>, start: u32, end: u32, cycle: u32) -> Result<u32, LogError> {
    let (mut low, mut high) = (start, end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if area.cycle(middle)? == cycle { high = middle } else { low = middle }
    }
    Ok(high)
}

/// The blocks before an edge that may have been in flight. All of them are looked at, and the last of them are kept.
struct InflightWindow {
    /// The first block.
    start: u32,
    /// Blocks of it.
    length: u32,
    /// Blocks from `start` up to the physical end, where the flight crosses it; else 0. They carry the older cycle.
    before_wrap: u32,
    newer: u32,
    older: u32,
    /// Blocks at the beginning that lie behind the edge in a gap.
    gap: u32,
    /// From where to where it holds what was written in order.
    written: (u32, u32),
    /// Blocks that are not kept.
    dropped: u32,
    /// The others.
    bytes: Vec<u8>,
}

impl InflightWindow {
    fn read(area: &LogArea<'_>, edge: &CycleEdge) -> Result<Self, LogError> {
        let reach = MAX_INFLIGHT_BLOCKS.min(area.blocks());
        // In its first lap nothing older lies behind the physical end.
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

    /// From where to where the flight holds what was written in order: from behind what was written over the edge, up
    /// to the first block that was not written.
    ///
    /// Blocks over the edge show only in a ring so small that the flight reaches around it: they carry one cycle more
    /// than what is expected there, or lie in the gap that xfs_repair leaves.
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

    /// Keeps so many blocks before the end of what was written in order, and what lies behind; whether that is all.
    fn look_back(&mut self, area: &LogArea<'_>, reach: u32) -> Result<bool, LogError> {
        let (start, end) = self.written;
        self.dropped = end.saturating_sub(reach).max(start).min(self.length);
        self.bytes = area.read_blocks(area.advance(self.start, self.dropped), self.length - self.dropped)?;
        Ok(self.dropped == start)
    }

    /// The blocks from an offset on, which are kept.
    fn ahead(&self, offset: u32) -> &[u8] {
        self.bytes.get(offset.saturating_sub(self.dropped) as usize * BLOCK_BYTES..).unwrap_or(&[])
    }

    /// What lies in the kept part, from the first record that starts there on. A block within a record never looks
    /// like the first of one: its first word is a cycle. So these entries are the same however much is kept.
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

/// How many blocks a record's tail lies before it: 0 where it is its own, the ring's length where it is the same block
/// one cycle earlier.
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
            format_args!("within one lap before {}:{}", lsn.cycle(), lsn.block()),
            format_args!("{}:{}", tail.cycle(), tail.block()),
        )),
    }
}

/// A record of the flight, or a place where one should be.
struct WindowEntry {
    /// Blocks from the flight's start.
    offset: u32,
    state: Result<WholeRecord, Damage>,
}

/// A whole record.
struct WholeRecord {
    blocks: u32,
    /// Where its tail lies, in blocks from the flight's start; 0 where that is before the flight.
    tail_offset: u32,
}

/// The last whole record whose way back to its tail is whole too, as far as the flight shows it.
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
