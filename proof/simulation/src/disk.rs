//! A device whose transfers take virtual time, land in pieces, fail, and are cut.
//!
//! A write that was asked for is *in flight*: any of its sectors may have arrived. Its pieces land one by one, in any
//! order, and are visible to readers then. A flush makes stable what had landed when it began. A power cut leaves what
//! is stable, and of the rest any sectors.
//!
//! # Locking
//! One mutex around the contents, never held over a delay: it does not take part in the schedule.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base::{simulation, thread};
use block::{Device, DeviceError, Durability, Operation, WriteRequest};
use crashsim::Image;

use crate::scenario::{Delay, DiskPlan};

/// Bytes that arrive wholly or not at all.
const SECTOR: usize = 512;
/// What a discarded range may hold.
const DISCARDED: u8 = 0xd5;

/// Sectors that landed and are not all stable.
struct Landed {
    write: u64,
    piece: u64,
    offset: u64,
    bytes: Vec<u8>,
    stable: bool,
}

/// A write that has not returned.
struct Flying {
    write: u64,
    offset: u64,
    bytes: Vec<u8>,
}

struct Contents {
    /// Before everything in `landed`.
    base: Image,
    landed: VecDeque<Landed>,
    flying: Vec<Flying>,
    /// What a reader sees.
    visible: Image,
    writes: u64,
    /// That landed.
    pieces: u64,
    cuts: usize,
    counts: Counts,
}

/// What reached the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Transfers that failed.
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
    /// A device that holds this.
    pub fn new(image: Image, plan: DiskPlan) -> Self {
        let contents = Contents {
            base: image.clone(),
            landed: VecDeque::new(),
            flying: Vec::new(),
            visible: image,
            writes: 0,
            pieces: 0,
            cuts: 0,
            counts: Counts::default(),
        };
        Self { plan, contents: Mutex::new(contents), on_cut: OnceLock::new() }
    }

    /// From now on transfers fail, and the power is cut now and then: `on_cut` is given what is left, and the run goes
    /// on.
    pub fn begin(&self, on_cut: impl Fn(Image) + Send + Sync + 'static) {
        // Nobody else sets it.
        let _ = self.on_cut.set(Box::new(on_cut));
    }

    /// What a reader sees.
    pub fn image(&self) -> Image {
        self.contents().visible.clone()
    }

    /// What reached it.
    pub fn counts(&self) -> Counts {
        self.contents().counts
    }

    /// What a power cut leaves at this moment.
    pub fn cut(&self) -> Image {
        self.contents().cut()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self, delay: Delay) -> Duration {
        let micros = match one_in(delay.held_in) {
            true => 1_000_000 + draw() % 5_000_000,
            false => delay.least + draw() % (delay.most - delay.least + 1),
        };
        Duration::from_micros(micros)
    }

    fn check(&self, what: Operation, offset: u64, length: u64) -> Result<(), DeviceError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(DeviceError::PastEnd { device: self.describe().into(), what, offset, length, size }),
        }
    }

    /// Whether a transfer fails, of which one in so many does.
    fn strikes(&self, one: u64) -> bool {
        self.on_cut.get().is_some() && one_in(one)
    }

    fn fault(&self, what: Operation, offset: u64, length: u64) -> DeviceError {
        self.contents().counts.faults += 1;
        // `EIO`
        let source = io::Error::from_raw_os_error(5);
        DeviceError::Io { device: self.describe().into(), what, offset, length, source }
    }

    /// Cuts the power now and then.
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

    /// Writes in pieces, each after a part of the delay.
    fn transfer(&self, offset: u64, bytes: &[u8], stable: bool) -> Result<(), DeviceError> {
        let delay = self.delay(self.plan.write);
        let fails = self.strikes(self.plan.write_fails_in);
        let write = self.contents().take_off(offset, bytes);
        let mut pieces = pieces(bytes.len());
        shuffle(&mut pieces);
        let count = pieces.len() as u32;
        for (from, to) in pieces {
            thread::sleep(delay / count);
            if !fails || one_in(2) {
                self.contents().land(write, offset + from as u64, &bytes[from..to]);
            }
        }
        self.contents().returned(write, stable && !fails);
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
    fn take_off(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        self.counts.writes += 1;
        self.writes += 1;
        self.flying.push(Flying { write: self.writes, offset, bytes: bytes.to_vec() });
        self.writes
    }

    fn land(&mut self, write: u64, offset: u64, bytes: &[u8]) {
        self.visible.write(offset, bytes);
        self.pieces += 1;
        self.landed.push_back(Landed {
            write,
            piece: self.pieces,
            offset,
            bytes: bytes.to_vec(),
            stable: false,
        });
    }

    fn returned(&mut self, write: u64, stable: bool) {
        self.flying.retain(|flying| flying.write != write);
        if stable {
            self.landed
                .iter_mut()
                .filter(|landed| landed.write == write)
                .for_each(|landed| landed.stable = true);
        }
    }

    /// All that landed up to this piece is stable.
    fn flushed(&mut self, last: u64) {
        self.landed.iter_mut().filter(|landed| landed.piece <= last).for_each(|landed| landed.stable = true);
    }

    /// Moves what is stable, with nothing unstable before it, into the base.
    fn fold(&mut self) {
        while self.landed.front().is_some_and(|landed| landed.stable) {
            if let Some(landed) = self.landed.pop_front() {
                self.base.write(landed.offset, &landed.bytes);
            }
        }
    }

    fn cut(&self) -> Image {
        let mut image = self.base.clone();
        // All that landed, nothing of it, or any: a cut of one kind alone would miss what the others find.
        let chance = [0, 2, 10, 10][draw() as usize % 4];
        for landed in &self.landed {
            match landed.stable {
                true => image.write(landed.offset, &landed.bytes),
                false => arrive(&mut image, landed.offset, &landed.bytes, chance),
            }
        }
        for flying in &self.flying {
            arrive(&mut image, flying.offset, &flying.bytes, [0, 5][draw() as usize % 2]);
        }
        image
    }
}

/// Of an unstable write arrives all, nothing, or each sector by chance; so many of ten writes or sectors.
fn arrive(image: &mut Image, offset: u64, bytes: &[u8], chance: u64) {
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
        // What a reader sees is of one moment of the time that it takes.
        let delay = self.delay(self.plan.read);
        thread::sleep(delay / 2);
        self.contents().visible.read(offset, buf);
        thread::sleep(delay / 2);
        match self.strikes(self.plan.read_fails_in) {
            true => Err(self.fault(Operation::Read, offset, buf.len() as u64)),
            false => Ok(()),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.transfer(offset, buf, how == Durability::Fua)
    }

    /// The writes are all in flight at once, and land in any order.
    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let mut order: Vec<_> = (0..writes.len()).collect();
        shuffle(&mut order);
        let mut result = Ok(());
        for n in order {
            let write = &writes[n];
            self.check(Operation::Write, write.offset, write.buf.len() as u64)?;
            let done = self.transfer(write.offset, write.buf, false);
            result = result.and(done);
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
        if self.strikes(self.plan.flush_fails_in) {
            return Err(self.fault(Operation::Flush, 0, 0));
        }
        let mut contents = self.contents();
        contents.flushed(last);
        contents.fold();
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
