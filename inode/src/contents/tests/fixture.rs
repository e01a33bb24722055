//! Files on a volume, with a model of their maps: one entry per block.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ag::{AllocTarget, ClaimRequest};
use backing::{MappingState, WriteCompletion, WrittenRange};
use base::{AgNumber, FileBlock, FsBlock};
use error::Result;

use crate::contents::{
    self, File, Share, VolumeBacking, WeakInode, collapse, finish, insert, preallocate, punch, set_size,
    share, trim, zero,
};
use crate::inode::{Inode, InodeRef};
use crate::tests::volume::Volume;

/// A random number generator with a fixed seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        base::random::mix(self.0) % limit.max(1)
    }
}

/// Each mapped block: its block on disk, if the model knows it, and whether it is unwritten.
pub type Model = BTreeMap<u64, (Option<u64>, bool)>;

#[derive(Default)]
pub struct Known {
    pub map: Model,
    pub size: u64,
}

pub struct Fixture {
    pub volume: Arc<Volume>,
    pub files: Vec<InodeRef>,
    pub known: Vec<Known>,
    pub numbers: Numbers,
}

impl Fixture {
    pub fn new(options: &mkfs::Options, files: usize, seed: u64) -> Self {
        Self::on(&Arc::new(Volume::new(options)), files, seed)
    }

    /// More files on a volume, independent of the others.
    pub fn on(volume: &Arc<Volume>, files: usize, seed: u64) -> Self {
        let volume = Arc::clone(volume);
        let files: Vec<_> = (0..files).map(|_| volume.create(0o100_644)).collect();
        let known = files.iter().map(|_| Known::default()).collect();
        Self { volume, files, known, numbers: Numbers(seed << 32) }
    }

    pub fn block_size(&self) -> u64 {
        self.volume.groups.geometry().block_size.into()
    }

    pub fn inode(&self, file: usize) -> Arc<Inode> {
        Arc::clone(&self.files[file])
    }

    /// A file as the functions under test take it.
    pub fn with<R>(&self, file: usize, work: impl FnOnce(File<'_>) -> R) -> R {
        let (shared, groups) = (self.volume.shared(), &self.volume.groups);
        work(File { shared, groups, inode: &self.files[file] })
    }

    pub fn weak(&self, file: usize) -> WeakInode {
        WeakInode::new(&self.files[file])
    }

    pub fn claim(&mut self, min: u32, max: u32) -> Result<ag::Claim> {
        let ag = AgNumber(self.numbers.below(2) as u32);
        let near = match self.numbers.below(3) {
            0 => AllocTarget::Ag(ag),
            _ => AllocTarget::Block(self.volume.groups.geometry().fs_block(ag, base::AgBlock(500))),
        };
        let request = ClaimRequest { target: near, min, max, align: 1 };
        contents::claim(self.volume.shared(), &self.volume.groups, &request)
    }

    /// Reserves blocks for a completion.
    pub fn reserve(&self, blocks: u32) -> Result<u32> {
        let most = blocks + self.volume.shared().reservations.map_blocks;
        self.volume.groups.reserve_blocks(most).map(|mut reserved| reserved.detach(most))
    }

    /// Writes a range to new blocks.
    pub fn write(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        let reserved = self.reserve(count as u32)?;
        let mut written = Vec::new();
        let mut done = 0;
        while done < count {
            let claim = self.claim(1, (count - done) as u32);
            let claim = claim.inspect_err(|_| drop(self.volume.groups.attach_blocks(reserved)))?;
            let length = u64::from(claim.count());
            for n in 0..length {
                let location = Some(claim.start().get() + n);
                self.known[file].map.insert(at + done + n, (location, false));
            }
            written.push(WrittenRange { offset: FileBlock(at + done), count: length, claim: Some(claim) });
            done += length;
        }
        let size = (at + count) * self.block_size() - 1;
        self.known[file].size = self.known[file].size.max(size);
        let file = self.weak(file);
        let completion = WriteCompletion::new(&file, written, reserved.into(), 2 * count);
        self.finish(&mut [WriteCompletion { size: Some(size), ..completion }])
    }

    /// Writes unwritten blocks in place.
    pub fn fill(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        let reserved = self.reserve(0)?;
        let mut ranges: Vec<WrittenRange<ag::Claim>> = Vec::new();
        for (block, (_, unwritten)) in self.known[file].map.range_mut(at..at + count) {
            *unwritten = false;
            match ranges.last_mut().filter(|last| last.offset.get() + last.count == *block) {
                Some(last) => last.count += 1,
                None => ranges.push(WrittenRange { offset: FileBlock(*block), count: 1, claim: None }),
            }
        }
        self.finish(&mut [WriteCompletion::new(&self.weak(file), ranges, reserved.into(), 2 * count)])
    }

    /// Writes one run to many files at once.
    pub fn write_small(&mut self, at: u64, count: u32) -> Result<()> {
        let total = count * self.files.len() as u32;
        let mut claim = self.claim(total, total)?;
        let files: Vec<_> = (0..self.files.len()).map(|file| self.weak(file)).collect();
        let mut completions = Vec::new();
        let size = (at + u64::from(count)) * self.block_size();
        for (file, inode) in files.iter().enumerate() {
            let part = claim.take_front(count);
            for n in 0..u64::from(count) {
                self.known[file].map.insert(at + n, (Some(part.start().get() + n), false));
            }
            self.known[file].size = self.known[file].size.max(size);
            let range = WrittenRange { offset: FileBlock(at), count: count.into(), claim: Some(part) };
            let reserved = self.reserve(count)?.into();
            let completion = WriteCompletion::new(inode, vec![range], reserved, count.into());
            completions.push(WriteCompletion { size: Some(size), ..completion });
        }
        self.finish(&mut completions)
    }

    fn finish(&self, files: &mut [WriteCompletion<'_, VolumeBacking>]) -> Result<()> {
        let done = finish(self.volume.shared(), &self.volume.groups, files);
        for file in files {
            drop(self.volume.groups.attach_blocks(std::mem::take(&mut file.reserved) as u32));
        }
        done
    }

    pub fn set_size(&mut self, file: usize, size: u64) -> Result<()> {
        let from = size.div_ceil(self.block_size());
        let known = &mut self.known[file];
        if size < known.size {
            known.map.split_off(&from);
        }
        known.size = size;
        self.with(file, |file| set_size(file, size))
    }

    pub fn punch(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        self.known[file].map.retain(|block, _| !(at..at + count).contains(block));
        let range = (FileBlock(at), FileBlock(at + count));
        self.with(file, |file| punch(file, range.0, range.1))
    }

    pub fn preallocate(&mut self, file: usize, at: u64, count: u64, size: Option<u64>) -> Result<()> {
        let known = &mut self.known[file];
        for block in at..at + count {
            known.map.entry(block).or_insert((None, true));
        }
        known.size = known.size.max(size.unwrap_or(0));
        let range = (FileBlock(at), FileBlock(at + count));
        self.with(file, |file| preallocate(file, range.0, range.1, size))
    }

    pub fn zero(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        // Shared blocks are unmapped, and the model learns the new ones.
        let shares = crate::contents::file_transaction::shares(&self.files[file].read());
        let known = &mut self.known[file];
        for block in at..at + count {
            let location = known.map.entry(block).or_insert((None, true));
            *location = (location.0.filter(|_| !shares), true);
        }
        let range = (FileBlock(at), FileBlock(at + count));
        self.with(file, |file| zero(file, range.0, range.1, None))
    }

    pub fn collapse(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        let bytes = count * self.block_size();
        let known = &mut self.known[file];
        let after = known.map.split_off(&at).split_off(&(at + count));
        known.map.extend(after.into_iter().map(|(block, location)| (block - count, location)));
        known.size -= bytes;
        self.with(file, |file| collapse(file, FileBlock(at), count))
    }

    pub fn insert(&mut self, file: usize, at: u64, count: u64) -> Result<()> {
        let bytes = count * self.block_size();
        let known = &mut self.known[file];
        let after = known.map.split_off(&at);
        known.map.extend(after.into_iter().map(|(block, location)| (block + count, location)));
        known.size += bytes;
        self.with(file, |file| insert(file, FileBlock(at), count))
    }

    pub fn share(
        &mut self,
        (source, from): (usize, u64),
        (target, to): (usize, u64),
        count: u64,
    ) -> Result<()> {
        for n in 0..count {
            match self.known[source].map.get(&(from + n)).copied() {
                Some((location, false)) => self.known[target].map.insert(to + n, (location, false)),
                _ => self.known[target].map.remove(&(to + n)),
            };
        }
        let size = (to + count) * self.block_size();
        self.known[target].size = self.known[target].size.max(size);
        let source = self.inode(source);
        let (from, to) = (FileBlock(from), FileBlock(to));
        let what = Share { source: &source, from, to, count, size: Some(size) };
        self.with(target, |file| share(file, &what))
    }

    pub fn trim(&mut self, file: usize, end: u64) -> Result<bool> {
        let flags = self.files[file].read().core().flags.get();
        if flags & format::inode::flags::PREALLOC == 0 {
            self.known[file].map.split_off(&end);
        }
        self.with(file, |file| trim(file, FileBlock(end)))
    }

    /// Compares maps, sizes and sharing with the model, which learns the location of new blocks.
    pub fn compare(&mut self) {
        let mut owners: HashMap<u64, u32> = HashMap::new();
        let mut is_shared_by_block: HashMap<u64, bool> = HashMap::new();
        for (inode, known) in self.files.iter().zip(&mut self.known) {
            let mut found = Model::new();
            let mut last = None;
            let (shared, groups) = (self.volume.shared(), &self.volume.groups);
            contents::map(
                File { shared, groups, inode },
                FileBlock(0),
                FileBlock(u64::MAX),
                &mut |mapping| {
                    assert!(last < Some(mapping.offset), "in order");
                    last = Some(mapping.offset);
                    for n in 0..mapping.count {
                        let at = mapping.start.get() + n;
                        found.insert(
                            mapping.offset.get() + n,
                            (Some(at), mapping.state == MappingState::Unwritten),
                        );
                        *owners.entry(at).or_default() += 1;
                        is_shared_by_block.insert(at, mapping.shared);
                    }
                    std::ops::ControlFlow::Continue(())
                },
            )
            .unwrap();
            for (block, location) in &mut known.map {
                location.0 = location.0.or(found.get(block).and_then(|location| location.0));
            }
            assert_eq!(found, known.map, "{inode:?}");
            assert_eq!(inode.read().size(), known.size, "{inode:?}");
        }
        for (block, is_shared) in is_shared_by_block {
            assert_eq!(is_shared, owners[&block] > 1, "block {:#x}", FsBlock(block));
        }
    }

    pub fn check(&mut self) {
        self.compare();
        assert_eq!(self.volume.groups.claimed(), 0);
        self.volume.check();
    }
}
