//! The seed corpus: every metadata block of the valid volumes, as input of its target.

use std::collections::BTreeMap;
use std::path::Path;

use format::inode::{Dinode, FileType, Fork, ForkKind};
use format::log::BLOCK_BYTES;
use format::log::operation::LogOperations;
use format::log::record::RecordHeader;

use crate::images::{self, Image, MetadataBlock, Protection};
use crate::{archives, finish, options, shape};

/// Maximum number of seeds per target and kind.
const PER_KIND_MAX: usize = 40;

/// Seeds by target, and their number by kind.
#[derive(Default)]
pub struct Seeds {
    files: Vec<(&'static str, Vec<u8>)>,
    counts: BTreeMap<(&'static str, Vec<u8>), usize>,
}

/// Seeds of all volumes.
pub fn all() -> Seeds {
    let mut seeds = Seeds::default();
    for (number, image) in (0..images::COUNT).filter_map(|n| Some((n as u8, images::image(n)?))) {
        for (index, block) in image.blocks.iter().enumerate() {
            seeds.structure(image, *block);
            for target in ["volume_read", "volume_check", "volume_dump"] {
                // Dumped structures are not forced to a type.
                let head: &[u8] = if target == "volume_dump" { &[u8::MAX] } else { &[] };
                seeds.edit(target, (head, number), index, image.block_bytes(*block));
            }
        }
        for kind in 0..finish::KINDS {
            seeds.add("volume_finish", &[number, kind], &[&finish::seed(kind), &[number]]);
        }
        for (index, block) in
            image.records.iter().enumerate().filter(|_| usize::from(number) >= images::FIRST_DIRTY)
        {
            seeds.edit(
                "volume_log",
                (&[], number - images::FIRST_DIRTY as u8),
                index,
                image.block_bytes(*block),
            );
        }
    }
    for (form, archive) in archives::seeds() {
        seeds.add("import_archive", &[form], &[&[form], &archive]);
    }
    for text in options::SEEDS {
        seeds.add("mount_options", b"", &[text.as_bytes()]);
    }
    seeds
}

impl Seeds {
    /// Writes each seed to a file `FOLDER/TARGET/seed-NUMBER`, and returns their number.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, folder: &Path) -> std::io::Result<usize> {
        for (number, (target, bytes)) in self.files.iter().enumerate() {
            let folder = folder.join(target);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(format!("seed-{number:05}")), bytes)?;
        }
        Ok(self.files.len())
    }

    /// Number of seeds of a target.
    pub fn count(&self, target: &str) -> usize {
        self.files.iter().filter(|(name, _)| *name == target).count()
    }

    fn add(&mut self, target: &'static str, kind: &[u8], parts: &[&[u8]]) {
        let count = self.counts.entry((target, kind.to_vec())).or_default();
        *count += 1;
        if *count <= PER_KIND_MAX {
            self.files.push((target, parts.concat()));
        }
    }

    /// Adds an edit that changes nothing, which shows the fuzzer the index of a metadata block.
    fn edit(&mut self, target: &'static str, (head, image): (&[u8], u8), index: usize, bytes: &[u8]) {
        let Ok(index) = u16::try_from(index) else { return };
        let kind = [&[image], bytes.get(..4).unwrap_or(&[]), bytes.get(8..10).unwrap_or(&[])].concat();
        let first = bytes.get(..1).unwrap_or(&[]);
        self.add(target, &kind, &[head, &[image], &index.to_le_bytes(), &[0, 0, 0], first]);
    }

    fn structure(&mut self, image: &Image, block: MetadataBlock) {
        let bytes = image.block_bytes(block);
        let shape = shape::bytes_for(&image.geometry);
        let magic = bytes.get(..4).unwrap_or(&[]);
        if block.protection == Protection::Record {
            return self.record(image, block, bytes);
        }
        let place = image.geometry.split_daddr(base::Daddr(block.offset as u64 >> 9));
        let (ag, number) = place.map_or((0, 0), |(ag, block)| (ag.get() as u8, block.get() as u16));
        let number = number.to_le_bytes();
        let level = bytes.get(5).copied().unwrap_or(0);
        let tree = [b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC", b"BMA3"];
        if let Some(kind) = tree.iter().position(|tree| magic == *tree) {
            return self.add(
                "btree",
                &[kind as u8, level],
                &[&shape, &[kind as u8, ag], &number, &[level], bytes],
            );
        }
        match magic {
            b"XFSB" => self.add("superblock", b"", &[&shape]),
            b"XAGF" => self.add("agf", b"", &[&shape, &[ag], bytes]),
            b"XAGI" => self.add("agi", b"", &[&shape, &[ag], bytes]),
            b"XAFL" => self.add("agfl", b"", &[&shape, &[ag], bytes]),
            b"XDB3" => self.add("dir_block", magic, &[&shape, &[0], bytes]),
            b"XDD3" => self.add("dir_block", magic, &[&shape, &[1], bytes]),
            b"XDF3" => self.add("dir_block", magic, &[&shape, &[2], bytes]),
            b"XARM" => self.remote("attr_block", &[&shape[..], &[1]].concat(), bytes),
            b"XSLM" => self.remote("payloads", &[&shape[..], &[0]].concat(), bytes),
            [b'I', b'N', ..] => self.inode(image, block, &shape, bytes),
            _ => self.index_block(&shape, bytes),
        }
    }

    /// A block of a remote value or symlink target, which contains its offset.
    fn remote(&mut self, target: &'static str, head: &[u8], bytes: &[u8]) {
        let number = |at: usize| {
            bytes.get(at..at + 4).and_then(|raw| raw.try_into().ok()).map_or(0, u32::from_be_bytes)
        };
        let (offset, length) = (number(4), number(4) + number(8));
        let blocks: &[u8] = if target == "payloads" { &[0] } else { &[] };
        self.add(target, b"remote", &[head, &offset.to_le_bytes(), &length.to_le_bytes(), blocks, bytes]);
    }

    fn index_block(&mut self, shape: &[u8], bytes: &[u8]) {
        match bytes.get(8..10) {
            Some([0x3d, 0xf1]) => self.add("dir_block", b"1", &[shape, &[3], bytes]),
            Some([0x3d, 0xff]) => self.add("dir_block", b"n", &[shape, &[4], bytes]),
            Some([0x3e, 0xbe]) => {
                self.add("dir_block", b"node", &[shape, &[5], bytes]);
                self.add("attr_block", b"node", &[shape, &[0], &[0; 8], bytes]);
            }
            Some([0x3b, 0xee]) => self.add("attr_block", b"leaf", &[shape, &[2], &[0; 8], bytes]),
            _ => {}
        }
    }

    fn inode(&mut self, image: &Image, block: MetadataBlock, shape: &[u8], bytes: &[u8]) {
        let kind = [bytes.get(2).copied().unwrap_or(0) >> 4, bytes.get(5).copied().unwrap_or(0)];
        self.add("inode", &kind, &[shape, bytes]);
        let dinode = block.ino.and_then(|ino| Dinode::verify(bytes, &image.geometry, ino).ok());
        let Some(dinode) = dinode.filter(|dinode| !dinode.is_free()) else { return };
        if let (Some(FileType::Directory), Ok(Some(Fork::Local(fork)))) =
            (dinode.file_type(), dinode.fork(ForkKind::Data, &image.geometry))
        {
            self.add("dir_shortform", b"", &[shape, fork]);
        }
        if let Ok(Some(Fork::Local(fork))) = dinode.fork(ForkKind::Attr, &image.geometry) {
            self.add("attr_shortform", b"", &[shape, fork]);
        }
    }

    fn record(&mut self, image: &Image, block: MetadataBlock, bytes: &[u8]) {
        let start =
            image.geometry.log_start.and_then(|start| image.geometry.fs_block_offset(start)).unwrap_or(0);
        let at = (block.offset as u64 - start) / BLOCK_BYTES as u64;
        let Ok(header) = RecordHeader::parse(bytes, at as u32) else { return };
        // The target reads block numbers of 16 bits; later records are left out.
        if let Ok(at) = u16::try_from(at) {
            self.add("log_record", b"", &[&at.to_le_bytes(), &[0xff, 0xff], bytes]);
        }
        let mut restored = bytes.to_vec();
        if header.restore_data(&mut restored).is_err() {
            return;
        }
        let payload = restored.get(header.header_blocks as usize * BLOCK_BYTES..).unwrap_or(&[]);
        for operation in LogOperations::new(payload, header.operations).flatten() {
            let length = operation.data.len().min(2047);
            let data = operation.data.get(..length).unwrap_or(&[]);
            let kind = data.get(..2).unwrap_or(&[]);
            self.add("log_item", kind, &[&(length as u16).to_le_bytes(), data]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every target has seeds from real structures.
    #[test]
    fn every_target_has_seeds_and_none_fails_on_them() {
        let seeds = all();
        for target in crate::TARGETS {
            assert!(seeds.count(target.name) > 0, "{}", target.name);
        }
        for (target, bytes) in &seeds.files {
            assert!(crate::run(target, bytes), "{target}");
        }
    }
}
