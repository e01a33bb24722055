//! A device whose transfers take virtual time, complete in pieces, fail, and are cut.
//!
//! A submitted write is *in flight*: any of its sectors may be on the device. Its pieces *land* one by one, in any
//! order, and are then visible to readers. A flush makes stable what had landed when it started. A power cut keeps
//! everything that is stable, and any sectors of the rest.
//!
//! # Locking
//! One mutex around the contents, never held during a delay. It is not part of the schedule.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base::{simulation, thread};
use block::{Device, DeviceError, Durability, Operation, WriteRequest};
use crashsim::Image;

use crate::scenario::{Delay, DiskPlan};

/// Bytes that are written atomically.
const SECTOR: usize = 512;
/// Contents of a discarded range.
const DISCARDED: u8 = 0xd5;

/// A landed piece of a write.
struct LandedPiece {
    write: u64,
    piece: u64,
    offset: u64,
    bytes: Vec<u8>,
    stable: bool,
}

/// A write in flight.
struct InFlight {
    write: u64,
    offset: u64,
    bytes: Vec<u8>,
}

struct Contents {
    /// Stable contents below `landed`.
    base: Image,
    landed: VecDeque<LandedPiece>,
    in_flight: Vec<InFlight>,
    /// Contents for readers.
    visible: Image,
    writes: u64,
    /// Number of landed pieces.
    pieces: u64,
    cuts: usize,
    counts: Counts,
}

/// Numbers of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes and discards.
    pub writes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of failed transfers.
    pub faults: u64,
}

type OnCut = Box<dyn Fn(Image) + Send + Sync>;

/// The device.
pub struct Disk {
    plan: DiskPlan,
    contents: Mutex<Contents>,
    on_cut: OnceLock<OnCut>,
}

fn draw() -> u64 {
    simulation::random().unwrap_or(0)
}

fn one_in(n: u64) -> bool {
    n > 0 && draw().is_multiple_of(n)
}

impl Disk {
    /// Creates a device with an image.
    pub fn new(image: Image, plan: DiskPlan) -> Self {
        let contents = Contents {
            base: image.clone(),
            landed: VecDeque::new(),
            in_flight: Vec::new(),
            visible: image,
            writes: 0,
            pieces: 0,
            cuts: 0,
            counts: Counts::default(),
        };
        Self { plan, contents: Mutex::new(contents), on_cut: OnceLock::new() }
    }

    /// Starts failures and power cuts. `on_cut` is called with the image that a cut leaves; the run continues.
    pub fn begin(&self, on_cut: impl Fn(Image) + Send + Sync + 'static) {
        // It is set only once.
        let _ = self.on_cut.set(Box::new(on_cut));
    }

    /// The contents for readers.
    pub fn image(&self) -> Image {
        self.contents().visible.clone()
    }

    /// Numbers of transfers.
    pub fn counts(&self) -> Counts {
        self.contents().counts
    }

    /// The image that a power cut would leave now.
    pub fn cut(&self) -> Image {
        self.contents().cut()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self, delay: Delay) -> Duration {
        let micros = match one_in(delay.slow_in) {
            true => 1_000_000 + draw() % 5_000_000,
            false => delay.min + draw() % (delay.max - delay.min + 1),
        };
        Duration::from_micros(micros)
    }

    fn check(&self, operation: Operation, offset: u64, length: u64) -> Result<(), DeviceError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => {
                Err(DeviceError::PastEnd { device: self.describe().into(), operation, offset, length, size })
            }
        }
    }

    /// Whether a transfer fails, with a probability of one in `n`.
    fn fails(&self, n: u64) -> bool {
        self.on_cut.get().is_some() && one_in(n)
    }

    fn fault(&self, operation: Operation, offset: u64, length: u64) -> DeviceError {
        self.contents().counts.faults += 1;
        // `EIO`
        let source = io::Error::from_raw_os_error(5);
        DeviceError::Io { device: self.describe().into(), operation, offset, length, source }
    }

    /// Cuts the power at random.
    fn maybe_cut(&self) {
        let Some(on_cut) = self.on_cut.get() else { return };
        if one_in(self.plan.cut_in) {
            let mut contents = self.contents();
            if contents.cuts < self.plan.cuts_max {
                contents.cuts += 1;
                let image = contents.cut();
                drop(contents);
                on_cut(image);
            }
        }
    }

    /// Writes pieces, each after a part of the delay.
    fn transfer(&self, offset: u64, bytes: &[u8], stable: bool) -> Result<(), DeviceError> {
        let delay = self.delay(self.plan.write);
        let fails = self.fails(self.plan.write_fails_in);
        let write = self.contents().submit(offset, bytes);
        let mut pieces = pieces(bytes.len());
        shuffle(&mut pieces);
        let count = pieces.len() as u32;
        for (start, end) in pieces {
            thread::sleep(delay / count);
            if !fails || one_in(2) {
                self.contents().land(write, offset + start as u64, &bytes[start..end]);
            }
        }
        self.contents().complete(write, stable && !fails);
        self.maybe_cut();
        if fails { Err(self.fault(Operation::Write, offset, bytes.len() as u64)) } else { Ok(()) }
    }
}

/// Up to three pieces of whole sectors.
fn pieces(length: usize) -> Vec<(usize, usize)> {
    let sectors = length.div_ceil(SECTOR);
    let count = (1 + draw() as usize % 3).min(sectors.max(1));
    let cut = |n: usize| (sectors * n / count * SECTOR).min(length);
    (0..count).map(|n| (cut(n), if n + 1 == count { length } else { cut(n + 1) })).collect()
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, draw() as usize % (last + 1));
    }
}

impl Contents {
    fn submit(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        self.counts.writes += 1;
        self.writes += 1;
        self.in_flight.push(InFlight { write: self.writes, offset, bytes: bytes.to_vec() });
        self.writes
    }

    fn land(&mut self, write: u64, offset: u64, bytes: &[u8]) {
        self.visible.write(offset, bytes);
        self.pieces += 1;
        self.landed.push_back(LandedPiece {
            write,
            piece: self.pieces,
            offset,
            bytes: bytes.to_vec(),
            stable: false,
        });
    }

    fn complete(&mut self, write: u64, stable: bool) {
        self.in_flight.retain(|unfinished| unfinished.write != write);
        if stable {
            self.landed
                .iter_mut()
                .filter(|landed| landed.write == write)
                .for_each(|landed| landed.stable = true);
        }
    }

    /// Marks the pieces up to `last` as stable.
    fn flushed(&mut self, last: u64) {
        self.landed.iter_mut().filter(|landed| landed.piece <= last).for_each(|landed| landed.stable = true);
    }

    /// Moves stable pieces that follow no unstable one into the base.
    fn advance_base(&mut self) {
        while self.landed.front().is_some_and(|landed| landed.stable) {
            if let Some(landed) = self.landed.pop_front() {
                self.base.write(landed.offset, &landed.bytes);
            }
        }
    }

    fn cut(&self) -> Image {
        let mut image = self.base.clone();
        // None, some or all of the unstable pieces survive: each kind of cut finds other errors.
        let chance = [0, 2, 10, 10][draw() as usize % 4];
        for landed in &self.landed {
            match landed.stable {
                true => image.write(landed.offset, &landed.bytes),
                false => apply_unstable(&mut image, landed.offset, &landed.bytes, chance),
            }
        }
        for unfinished in &self.in_flight {
            apply_unstable(&mut image, unfinished.offset, &unfinished.bytes, [0, 5][draw() as usize % 2]);
        }
        image
    }
}

/// Applies an unstable write as a whole or sector by sector, each with a probability of `chance` in ten.
fn apply_unstable(image: &mut Image, offset: u64, bytes: &[u8], chance: u64) {
    if draw().is_multiple_of(2) {
        if draw() % 10 < chance {
            image.write(offset, bytes);
        }
        return;
    }
    for (n, sector) in bytes.chunks(SECTOR).enumerate() {
        if draw() % 10 < chance {
            image.write(offset + (n * SECTOR) as u64, sector);
        }
    }
}

impl Device for Disk {
    fn size(&self) -> u64 {
        self.contents().visible.size()
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        let mut contents = self.contents();
        contents.visible.grow(size);
        contents.base.grow(size);
        Ok(())
    }

    fn logical_sector_size(&self) -> u32 {
        SECTOR as u32
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset, buf.len() as u64)?;
        self.contents().counts.reads += 1;
        // A read returns the contents of one moment during its delay.
        let delay = self.delay(self.plan.read);
        thread::sleep(delay / 2);
        self.contents().visible.read(offset, buf);
        thread::sleep(delay / 2);
        match self.fails(self.plan.read_fails_in) {
            true => Err(self.fault(Operation::Read, offset, buf.len() as u64)),
            false => Ok(()),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.transfer(offset, buf, how == Durability::Fua)
    }

    /// The writes complete in any order.
    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let mut order: Vec<_> = (0..writes.len()).collect();
        shuffle(&mut order);
        let mut result = Ok(());
        for n in order {
            let write = &writes[n];
            self.check(Operation::Write, write.offset, write.buf.len() as u64)?;
            let written = self.transfer(write.offset, write.buf, false);
            result = result.and(written);
        }
        result
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let last = {
            let mut contents = self.contents();
            contents.counts.flushes += 1;
            contents.pieces
        };
        thread::sleep(self.delay(self.plan.flush));
        if self.fails(self.plan.flush_fails_in) {
            return Err(self.fault(Operation::Flush, 0, 0));
        }
        let mut contents = self.contents();
        contents.flushed(last);
        contents.advance_base();
        drop(contents);
        self.maybe_cut();
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.check(Operation::Write, offset, length)?;
        self.transfer(offset, &vec![DISCARDED; length as usize], false)?;
        Ok(false)
    }

    fn describe(&self) -> String {
        "simulated disk".into()
    }
}
