//! A target for the last step of recovery: arbitrary intents, on volumes that may be damaged.

use base::{FileBlock, FsBlock, Ino, Lsn};
use format::log::exchange::ExchangeIntent;
use format::log::intent::{CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;
use journal::recovery::{Intent, IntentOperation};
use read::Volume;

use crate::damage::{self, Damaged};
use crate::images;
use crate::input::Input;

/// Maximum number of intents per input.
const INTENTS_MAX: usize = 4;
/// Number of kinds of intents.
pub const KINDS: u8 = 5;

/// The start of an input with one intent of small numbers. The volume and its damage follow.
pub fn seed(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind];
    for number in [40u32, 3, 100, 5, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    // Inodes of the volume, and numbers near its sizes.
    bytes.extend_from_slice(&0x1000u16.to_le_bytes());
    bytes
}

/// Fields of an intent in the input.
struct IntentFields {
    kind: u8,
    numbers: [u32; 4],
    flags: u32,
    how: u16,
}

/// Finishes intents in memory, and reads the files that they name.
pub fn volume_finish(data: &[u8]) {
    let mut input = Input::new(data);
    let count = 1 + input.below(INTENTS_MAX);
    let fields: Vec<IntentFields> = (0..count).map(|_| IntentFields::read(&mut input)).collect();
    let Some(damaged) = damage::apply(&mut input, 0..images::COUNT, |image| &image.blocks) else { return };
    let intents: Vec<Intent> =
        fields.iter().zip(1..).map(|(fields, id)| fields.intent(&damaged, id)).collect();
    let Ok(done) = volume::finish::finish_in_memory(damaged.device.clone(), None, &intents) else { return };
    let Ok(volume) = Volume::open(done.device) else { return };
    for ino in intents.iter().flat_map(Intent::files_changed) {
        let _ = volume.inode(ino);
    }
}

impl IntentFields {
    fn read(input: &mut Input<'_>) -> Self {
        Self {
            kind: input.u8(),
            numbers: [(); 4].map(|()| input.u32()),
            flags: input.u32(),
            how: input.u16(),
        }
    }

    /// Number `index`: unchanged, below or near `bound`, or spread over 64 bits.
    fn number(&self, index: usize, bound: u64) -> u64 {
        let number = u64::from(self.numbers.get(index).copied().unwrap_or(0));
        match self.how >> (2 * index) & 3 {
            0 => number % bound.max(1),
            1 => bound.saturating_sub(number % 8),
            2 => number,
            _ => (number << 32 | number).rotate_left(self.flags & 63),
        }
    }

    /// An inode of the volume, or any number.
    fn ino(&self, index: usize, damaged: &Damaged) -> Ino {
        let files: Vec<Ino> = damaged.image.blocks.iter().filter_map(|block| block.ino).collect();
        let number = self.numbers.get(index).copied().unwrap_or(0);
        let known = files.get(number as usize % files.len().max(1)).copied();
        known.filter(|_| self.how >> 12 & 7 != 0).unwrap_or(Ino(self.number(index, 1 << 12)))
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

    /// Seeded intents on valid and on damaged volumes end without a panic.
    #[test]
    fn arbitrary_intents_end() {
        let mut state = 0x5eed_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for round in 0..600 {
            // Intents take at most 2 + 4 * 23 bytes; the volume and its damage follow.
            let length = if round % 3 == 0 { 220 } else { 95 };
            let data: Vec<u8> = (0..length).map(|_| next()).collect();
            volume_finish(&data);
        }
    }
}
