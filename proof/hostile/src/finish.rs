//! A target for what recovery does last: intents that ask for anything, on volumes that may be damaged, too.

use base::{FileBlock, FsBlock, Ino, Lsn};
use format::log::exchange::ExchangeIntent;
use format::log::intent::{CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;
use journal::recovery::{Intent, IntentOperation};
use read::Volume;

use crate::damage::{self, Damaged};
use crate::images;
use crate::input::Input;

/// Most intents of one input.
const INTENTS_MAX: usize = 4;
/// Kinds of intents.
pub const KINDS: u8 = 5;

/// The beginning of an input with one intent, of small numbers; the volume and its damage follow.
pub fn seed(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind];
    for number in [40u32, 3, 100, 5, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    // Inodes of the volume, numbers near to what it has.
    bytes.extend_from_slice(&0x1000u16.to_le_bytes());
    bytes
}

/// What an intent says, before it is known of which volume.
struct Asked {
    kind: u8,
    numbers: [u32; 4],
    flags: u32,
    how: u16,
}

/// Finishes intents in memory, and reads the files that they named. Damage is refused, or the volume is as readable as
/// before.
pub fn volume_finish(data: &[u8]) {
    let mut input = Input::new(data);
    let count = 1 + input.below(INTENTS_MAX);
    let asked: Vec<Asked> = (0..count).map(|_| Asked::read(&mut input)).collect();
    let Some(damaged) = damage::apply(&mut input, 0..images::COUNT, |image| &image.sites) else { return };
    let intents: Vec<Intent> = asked.iter().zip(1..).map(|(asked, id)| asked.intent(&damaged, id)).collect();
    let Ok(done) = volume::finish::finish_in_memory(damaged.device.clone(), None, &intents) else { return };
    let Ok(volume) = Volume::open(done.device) else { return };
    for ino in intents.iter().flat_map(Intent::files_changed) {
        let _ = volume.inode(ino);
    }
}

impl Asked {
    fn read(input: &mut Input<'_>) -> Self {
        Self {
            kind: input.u8(),
            numbers: [(); 4].map(|()| input.u32()),
            flags: input.u32(),
            how: input.u16(),
        }
    }

    /// A number as it is, or made small, or at an edge.
    fn number(&self, which: usize, near: u64) -> u64 {
        let number = u64::from(self.numbers.get(which).copied().unwrap_or(0));
        match self.how >> (2 * which) & 3 {
            0 => number % near.max(1),
            1 => near.saturating_sub(number % 8),
            2 => number,
            _ => (number << 32 | number).rotate_left(self.flags & 63),
        }
    }

    /// An inode of the volume, or any number.
    fn ino(&self, which: usize, damaged: &Damaged) -> Ino {
        let files: Vec<Ino> = damaged.image.sites.iter().filter_map(|site| site.ino).collect();
        let number = self.numbers.get(which).copied().unwrap_or(0);
        let known = files.get(number as usize % files.len().max(1)).copied();
        known.filter(|_| self.how >> 12 & 7 != 0).unwrap_or(Ino(self.number(which, 1 << 12)))
    }

    fn intent(&self, damaged: &Damaged, id: u64) -> Intent {
        let geometry = &damaged.image.geometry;
        let start = FsBlock(self.number(0, geometry.blocks()));
        let blocks = self.number(1, 64) as u32;
        let operation = self.flags & 0xf0_00_00_00 | self.flags & 0xf;
        let map = |owner: Ino| MapTarget {
            owner: owner.get(),
            start,
            offset: FileBlock(self.number(2, 1 << 10)),
            blocks,
            flags: operation,
        };
        let (kind, body) = match self.kind % KINDS {
            0 => (ItemType::Efi, IntentOperation::Free(vec![FreeTarget { start, blocks }])),
            1 => (ItemType::Rui, IntentOperation::Rmap(vec![map(self.ino(3, damaged))])),
            2 => (
                ItemType::Cui,
                IntentOperation::Refcount(vec![CountTarget { start, blocks, flags: self.flags & 7 }]),
            ),
            3 => (ItemType::Bui, IntentOperation::Bmap(vec![map(self.ino(3, damaged))])),
            _ => (ItemType::Xmi, IntentOperation::Exchange(self.exchange(damaged, id))),
        };
        Intent { lsn: Lsn::new(1, 0), kind, id, body }
    }

    fn exchange(&self, damaged: &Damaged, id: u64) -> ExchangeIntent {
        let files = [self.ino(3, damaged), self.ino(2, damaged)];
        let generation = |ino| {
            let volume = Volume::open(damaged.device.clone()).ok();
            let inode = volume.and_then(|volume| volume.inode(ino).ok());
            inode.map_or(0, |inode| inode.dinode().core.generation.get())
        };
        ExchangeIntent {
            id,
            files,
            generations: files.map(generation),
            offsets: [FileBlock(self.number(0, 64)), FileBlock(self.number(1, 64))],
            blocks: self.number(2, 1 << 9),
            flags: u64::from(self.flags & 0x3f),
            sizes: [self.number(0, 1 << 20), self.number(1, 1 << 20)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeded intents on healthy volumes, then on damaged ones: each ends without a panic.
    #[test]
    fn whatever_intents_ask_for_it_ends() {
        let mut state = 0x5eed_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for round in 0..600 {
            // The intents take at most 2 + 4 * 23 bytes; behind them come the volume and its damage.
            let length = if round % 3 == 0 { 220 } else { 95 };
            let data: Vec<u8> = (0..length).map(|_| next()).collect();
            volume_finish(&data);
        }
    }
}
