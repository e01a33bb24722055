//! Copies the contents of a device to another one.
//!
//! The source is read in order, in rounds of a few pieces, each by a thread of its own: a device behind a network
//! answers several requests in the time of one. Between two rounds the target is flushed, and the caller learns up to
//! where it is complete.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::device::{Device, Durability};
use crate::error::DeviceError;

/// Bytes that a thread reads at once.
const PIECE: u64 = 4 << 20;
/// Whole pieces of a round for each thread.
const PIECES: u64 = 4;
/// Pieces of a round at most: those of a device with many holes are small.
const PIECES_MAX: usize = 4096;
/// Bytes that are compared, or found to be zeros, as a whole.
const UNIT: usize = 4096;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyDeviceOptions {
    /// Where to begin: the target is complete before.
    pub from: u64,
    /// The target may have any contents: they are read, and differences are written. Otherwise it reads as zeros.
    pub compares: bool,
    /// Number of threads.
    pub threads: usize,
}

/// What a copy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The target is complete and stable up to this offset.
    pub up_to: u64,
    /// Bytes of data that were read, without holes.
    pub read: u64,
    /// Bytes that were written, or zeroed.
    pub written: u64,
}

/// Why a device could not be copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyDeviceError {
    /// The source cannot be read, or the target cannot be compared.
    Read(DeviceError),
    /// The target cannot be written.
    Write(DeviceError),
    /// The callback stopped the copy.
    Stopped,
}

impl CopyDeviceError {
    /// The errno of the cause, if it has one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Read(error) | Self::Write(error) => Some(error.errno()),
            Self::Stopped => None,
        }
    }
}

impl fmt::Display for CopyDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) | Self::Write(error) => error.fmt(f),
            Self::Stopped => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for CopyDeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) | Self::Write(error) => Some(error),
            Self::Stopped => None,
        }
    }
}

type Result<T> = std::result::Result<T, CopyDeviceError>;

/// Copies the contents of a device to one that is at least as large. Holes and zeros are not written. `progress` is
/// called after each round.
///
/// # Errors
/// See [`CopyDeviceError`]. What is complete already stays.
pub fn copy_device(
    source: &dyn Device,
    target: &dyn Device,
    options: &CopyDeviceOptions,
    progress: &mut dyn FnMut(Copied) -> ControlFlow<()>,
) -> Result<Copied> {
    let size = source.size();
    let threads = options.threads.max(1);
    let mut copied = Copied { up_to: options.from.min(size), ..Copied::default() };
    while copied.up_to < size {
        let round = Round::plan(source, copied.up_to, threads as u64 * PIECES * PIECE)?;
        if options.compares {
            for hole in round.holes() {
                copied.written += clear(target, hole)?;
            }
        }
        copied.read += round.pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>();
        copied.written += round.run(source, target, options.compares, threads)?;
        target.flush().map_err(CopyDeviceError::Write)?;
        copied.up_to = round.range.end;
        if progress(copied).is_break() {
            return Err(CopyDeviceError::Stopped);
        }
    }
    Ok(copied)
}

/// Makes a range read as zeros. Returns the number of bytes that might not.
fn clear(target: &dyn Device, hole: Range<u64>) -> Result<u64> {
    let (mut at, mut cleared) = (hole.start, 0);
    while at < hole.end {
        let Some(data) = target.next_data(at).map_err(CopyDeviceError::Read)? else { break };
        let (start, end) = (data.start.max(at), data.end.min(hole.end));
        if start >= end {
            break;
        }
        target.zero(start, end - start).map_err(CopyDeviceError::Write)?;
        (at, cleared) = (end, cleared + (end - start));
    }
    Ok(cleared)
}

/// A part of the source, after whose copy the target is flushed.
struct Round {
    /// Its bytes, holes included.
    range: Range<u64>,
    /// The ranges in it that are no holes, in pieces of at most [`PIECE`].
    pieces: Vec<Range<u64>>,
}

impl Round {
    /// The next round, of some `bytes` of data.
    fn plan(source: &dyn Device, from: u64, bytes: u64) -> Result<Self> {
        let (unit, size) = (UNIT as u64, source.size());
        let (mut pieces, mut at, mut planned) = (Vec::new(), from, 0);
        while planned < bytes && pieces.len() < PIECES_MAX {
            let Some(data) = source.next_data(at).map_err(CopyDeviceError::Read)? else {
                return Ok(Self { range: from..size, pieces });
            };
            // Whole units, so that each is compared once.
            let start = (data.start / unit * unit).max(at);
            let data_end = data.end.next_multiple_of(unit).min(size);
            let piece_end = (start / PIECE + 1) * PIECE;
            at = data_end.min(piece_end);
            planned += at - start;
            pieces.push(start..at);
        }
        Ok(Self { range: from..at, pieces })
    }

    /// The ranges between the pieces.
    fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = [self.range.start].into_iter().chain(self.pieces.iter().map(|piece| piece.end));
        let ends = self.pieces.iter().map(|piece| piece.start).chain([self.range.end]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|hole| !hole.is_empty())
    }

    /// Copies all pieces. Returns the number of bytes written.
    fn run(&self, source: &dyn Device, target: &dyn Device, compares: bool, threads: usize) -> Result<u64> {
        let (next, written) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = || -> Result<()> {
            let mut buffers = [Vec::new(), Vec::new()];
            while let Some(piece) = self.pieces.get(next.fetch_add(1, Relaxed)) {
                let done = copy_piece(source, target, compares, piece, &mut buffers);
                // The others need not go on after an error.
                let done = done.inspect_err(|_| next.store(self.pieces.len(), Relaxed))?;
                written.fetch_add(done, Relaxed);
            }
            Ok(())
        };
        let count = threads.min(self.pieces.len());
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..count).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                let joined = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = result.and(joined);
            }
            result
        })?;
        Ok(written.into_inner())
    }
}

/// Copies one piece. Returns the number of bytes written.
fn copy_piece(
    source: &dyn Device,
    target: &dyn Device,
    compares: bool,
    piece: &Range<u64>,
    [new, old]: &mut [Vec<u8>; 2],
) -> Result<u64> {
    let length = (piece.end - piece.start) as usize;
    new.resize(length, 0);
    source.read_at(piece.start, new).map_err(CopyDeviceError::Read)?;
    old.clear();
    old.resize(length, 0);
    if compares {
        target.read_at(piece.start, old).map_err(CopyDeviceError::Read)?;
    }
    let is_zero = |unit: &[u8]| unit.iter().all(|byte| *byte == 0);
    /// What happens to a unit.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Action {
        Nothing,
        Zero,
        Write,
    }
    let action = |(new, old): (&[u8], &[u8])| match (new == old, is_zero(new)) {
        (true, _) => Action::Nothing,
        (false, true) => Action::Zero,
        (false, false) => Action::Write,
    };
    let actions: Vec<Action> = new.chunks(UNIT).zip(old.chunks(UNIT)).map(action).collect();
    let (mut at, mut written) = (0, 0);
    for run in actions.chunk_by(|one, next| one == next) {
        let end = (at + run.len() * UNIT).min(length);
        let offset = piece.start + at as u64;
        let bytes = new.get(at..end).unwrap_or_default();
        match run.first() {
            Some(Action::Write) => target.write_at(offset, bytes, Durability::Buffered),
            Some(Action::Zero) => target.zero(offset, bytes.len() as u64),
            _ => Ok(()),
        }
        .map_err(CopyDeviceError::Write)?;
        if run.first() != Some(&Action::Nothing) {
            written += bytes.len() as u64;
        }
        at = end;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    const SIZE: u64 = 40 << 20;

    /// A device with data in some places, with holes around it, as `next_data` says.
    struct Holed(MemoryDevice, Vec<Range<u64>>);

    impl Device for Holed {
        crate::forward!(0: size, logical_sector_size, is_read_only, read_at, write_at, flush, describe);

        fn next_data(&self, offset: u64) -> std::result::Result<Option<Range<u64>>, DeviceError> {
            let found = self.1.iter().find(|range| range.end > offset);
            Ok(found.map(|range| range.start.max(offset)..range.end))
        }
    }

    fn holed() -> Holed {
        let device = MemoryDevice::new(SIZE + 512);
        let ranges = vec![0..5000, (1 << 20)..(21 << 20) + 4096, SIZE - 4096..SIZE + 512];
        for range in &ranges {
            let bytes: Vec<u8> = range.clone().map(|n| (n / 4096 % 5) as u8).collect();
            device.write_at(range.start, &bytes, Durability::Buffered).unwrap();
        }
        Holed(device, ranges)
    }

    fn contents(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![1; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_empty_device_becomes_a_copy() {
        let source = holed();
        let target = MemoryDevice::new(SIZE + 512);
        let options = CopyDeviceOptions { from: 0, compares: false, threads: 3 };
        let mut last = 0;
        let copied = copy_device(&source, &target, &options, &mut |copied| {
            assert!(copied.up_to > last);
            last = copied.up_to;
            ControlFlow::Continue(())
        });
        let copied = copied.unwrap();
        assert!(contents(&source) == contents(&target));
        assert_eq!((copied.up_to, last), (SIZE + 512, SIZE + 512));
        // Holes were not read, and zeros not written.
        assert!(copied.read < 22 << 20 && copied.written < copied.read * 9 / 10, "{copied:?}");
    }

    #[test]
    fn differences_are_written_only() {
        let source = holed();
        let target = MemoryDevice::new(SIZE + 512);
        let options = CopyDeviceOptions { from: 0, compares: true, threads: 2 };
        let copy = || copy_device(&source, &target, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        copy();
        target.write_at(8000, &[9; 100], Durability::Buffered).unwrap();
        target.write_at(30 << 20, &[9; 100], Durability::Buffered).unwrap();
        target.write_at((2 << 20) + 5, &[9; 100], Durability::Buffered).unwrap();
        copy();
        assert!(contents(&source) == contents(&target));
        // A device in memory does not know its holes: they may be data, and are made zeros each time.
        let data =
            source.1.iter().map(|data| data.end.next_multiple_of(UNIT as u64).min(SIZE + 512) - data.start);
        assert_eq!(copy().written, SIZE + 512 - data.sum::<u64>());
        let same = Holed(holed().0, holed().1);
        assert_eq!(
            copy_device(&source, &same, &options, &mut |_| ControlFlow::Continue(())).unwrap().written,
            0
        );
    }

    #[test]
    fn a_copy_goes_on_where_it_was_stopped() {
        let source = holed();
        let target = MemoryDevice::new(SIZE + 512);
        let options = CopyDeviceOptions { from: 0, compares: false, threads: 1 };
        let mut up_to = 0;
        let stopped = copy_device(&source, &target, &options, &mut |copied| {
            up_to = copied.up_to;
            if up_to < 1 << 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert!(stopped.is_err() && up_to < SIZE);
        let options = CopyDeviceOptions { from: up_to, ..options };
        copy_device(&source, &target, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(contents(&source) == contents(&target));
    }
}
