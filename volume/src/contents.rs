//! Contents of files, as the cache keeps them, over the maps of their inodes.
//!
//! | part | is |
//! |---|---|
//! | [`Contents`] | what the cache has of one file; it is kept with the inode |
//! | [`Below`] | the volume, as the cache needs it |
//! | [`FileBelow`] | an inode, without keeping it in memory |

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use ag::{AllocTarget, Claim, ClaimRequest, Groups, RmapReservations};
use base::{FileBlock, FsBlock, Ino, errno};
use block::Device;
use cache::{Backing, Claimed, Finish, Kind, Mapping, Rooms, Want, Written};
use error::Error;
use format::inode::{ForkKind, ag_of};
use inode::contents::{self as maps, Mapped};
use inode::inode::{Attached, Inode};
use inode::reservation::ANY_EXTENTS;
use inode::shared::Shared;
use inode::state::InodeTime;

use crate::Volume;

pub(crate) type Contents = cache::Contents<Below>;
pub(crate) type Change<'c> = cache::Change<'c, Below>;

/// Times of a file that is written to move this often, as with Linux.
const TICK_NANOS: i128 = 4_000_000;

const DROPPED: Error = Error::Refused { errno: errno::EIO, why: "the volume was closed" };

/// See the module.
#[derive(Debug)]
pub(crate) struct Below {
    shared: Arc<Shared>,
    groups: Arc<Groups>,
    device: Arc<dyn Device>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileBelow {
    ino: Ino,
    /// What is attached to an inode does not keep it. Whoever works on the file has a hold on it, and so has the table
    /// while something of the file is not written.
    inode: Weak<Inode>,
}

impl FileBelow {
    fn get(&self) -> Result<Arc<Inode>, Error> {
        self.inode.upgrade().ok_or(DROPPED)
    }
}

/// Contents in the slot of their inode.
struct Kept(Arc<Contents>);

impl Attached for Kept {
    fn forget(&self) {
        self.0.forget();
    }

    fn is_needed(&self) -> bool {
        self.0.is_needed()
    }
}

impl Volume {
    /// The contents of a regular file on which the caller has a hold.
    pub(crate) fn contents(&self, inode: &Arc<Inode>) -> Result<Arc<Contents>, Error> {
        let attached = match inode.attachment() {
            Some(attached) => attached,
            None => {
                let file = FileBelow { ino: inode.ino(), inode: Arc::downgrade(inode) };
                inode.attach(Arc::new(Kept(Contents::new(&self.cache, file)?)))
            }
        };
        let attached: &dyn Any = &*attached;
        attached.downcast_ref::<Kept>().map(|kept| Arc::clone(&kept.0)).ok_or(DROPPED)
    }

    /// The device that contents lie on.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.cache.below().device
    }
}

/// What of a file's contents is in memory, if anything is.
pub(crate) fn in_memory(inode: &Inode) -> Option<Arc<Contents>> {
    let attached = inode.attachment()?;
    let attached: &dyn Any = &*attached;
    attached.downcast_ref::<Kept>().map(|kept| Arc::clone(&kept.0))
}

/// Free blocks that a write keeps.
#[derive(Debug)]
pub(crate) struct Blocks(Claim);

impl Claimed for Blocks {
    fn start(&self) -> FsBlock {
        self.0.start()
    }

    fn count(&self) -> u64 {
        self.0.count().into()
    }

    fn take_front(&mut self, count: u64) -> Self {
        Self(self.0.take_front(small(count)))
    }
}

/// What is reserved in the reverse-mapping btrees for what is dirty of a file.
#[derive(Debug, Default)]
pub(crate) struct Reserved(RmapReservations);

impl Rooms for Reserved {
    fn join(&mut self, others: Self) {
        self.0.join(others.0);
    }

    fn limit(&mut self, blocks: u64) {
        self.0.limit(small(blocks));
    }
}

/// Blocks of one write, or of one claim: no more than the cache writes at once.
fn small(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

impl Below {
    pub fn new(shared: &Arc<Shared>, groups: &Arc<Groups>, device: Arc<dyn Device>) -> Self {
        Self { shared: Arc::clone(shared), groups: Arc::clone(groups), device }
    }

    /// The groups count the blocks of a reservation in 32 bits.
    fn in_parts(blocks: u64, mut each: impl FnMut(u32) -> Result<(), Error>) -> Result<u64, Error> {
        let mut done = 0;
        while done < blocks {
            let part = small(blocks - done);
            each(part)?;
            done += u64::from(part);
        }
        Ok(done)
    }
}

impl Backing for Below {
    type File = FileBelow;
    type Claim = Blocks;
    type Rooms = Reserved;

    fn block_log(&self) -> u32 {
        self.shared.geometry.block_log.into()
    }

    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn written_past_log(&self) {
        self.shared.target.note_unlogged_write();
    }

    fn device_offset(&self, block: FsBlock) -> u64 {
        // A block that the volume does not have lies on no device either.
        self.shared.geometry.fs_block_offset(block).unwrap_or(u64::MAX)
    }

    fn ino(&self, file: &FileBelow) -> Ino {
        file.ino
    }

    fn group(&self, file: &FileBelow) -> u64 {
        ag_of(file.ino, &self.shared.geometry).unwrap_or_default().get().into()
    }

    fn size(&self, file: &FileBelow) -> Result<u64, Error> {
        Ok(file.get()?.read().size())
    }

    fn map(&self, file: &FileBelow, at: u64, count: u64) -> Result<Mapping, Error> {
        let (from, to) = (FileBlock(at), FileBlock(at.saturating_add(count)));
        let mut first = None;
        maps::map(&self.shared, &self.groups, &file.get()?, from, to, &mut |mapped| {
            first = Some(mapped);
            ControlFlow::Break(())
        })?;
        let hole = |count| Mapping { at, count, kind: Kind::Hole, start: FsBlock(0), shared: false };
        Ok(match first {
            None => hole(count),
            Some(Mapped { extent, .. }) if extent.offset > from => hole(extent.offset.get() - at),
            Some(Mapped { extent, shared }) => {
                let kind = if extent.unwritten { Kind::Unwritten } else { Kind::Written };
                Mapping { at, count: extent.count, kind, start: extent.start, shared }
            }
        })
    }

    fn reserve(&self, blocks: u64) -> Result<(), Error> {
        let mut taken = 0;
        let done = Self::in_parts(blocks, |part| {
            taken += u64::from(self.groups.reserve_blocks(part)?.give(part));
            Ok(())
        });
        done.map(drop).inspect_err(|_| self.unreserve(taken))
    }

    fn unreserve(&self, blocks: u64) {
        // Giving back cannot fail.
        let _ = Self::in_parts(blocks, |part| {
            drop(self.groups.given_blocks(part));
            Ok(())
        });
    }

    fn room_to_write(&self, mapping: &Mapping, writes: u64) -> Result<Reserved, Error> {
        let volume = (&*self.shared, &self.groups);
        maps::room_to_write(volume, mapping.start, small(writes), mapping.shared).map(Reserved)
    }

    fn extents(&self, file: &FileBelow, more: u64) -> Result<u64, Error> {
        let inode = file.get()?;
        let state = inode.read();
        let count = state.extent_count(ForkKind::Data);
        if state.can_count_extents(ForkKind::Data, count.saturating_add(more)) {
            return Ok(count);
        }
        Err(Error::Refused {
            errno: errno::EFBIG,
            why: "the file has as many extents as its counter can tell",
        })
    }

    fn tree_share(&self, extents: Option<u64>, records: u64) -> u64 {
        self.shared.reservations.map_blocks_for(extents.unwrap_or(ANY_EXTENTS), records)
    }

    fn claim(&self, file: &FileBelow, want: &Want) -> Result<Blocks, Error> {
        let home = || AllocTarget::Ag(ag_of(file.ino, &self.shared.geometry).unwrap_or_default());
        let near = want.near.map_or_else(home, AllocTarget::Block);
        let request = ClaimRequest { target: near, min: 1, max: small(want.most), align: 1 };
        Ok(Blocks(maps::claim(&self.shared, &self.groups, &request)?))
    }

    fn finish(&self, files: &mut [Finish<'_, Self>]) -> Result<(), Error> {
        // Before anything is taken out of `files`: what fails here leaves them what they have reserved.
        let inodes = files.iter().map(|file| file.file.get()).collect::<Result<Vec<_>, _>>()?;
        let mut finishes = Vec::with_capacity(files.len());
        for (file, inode) in files.iter_mut().zip(inodes) {
            let written = file.written.drain(..).map(|written| maps::Written {
                at: FileBlock(written.at),
                count: small(written.count),
                claim: written.claim.map(|blocks| blocks.0),
            });
            finishes.push(maps::Finish {
                inode,
                written: written.collect(),
                size: file.size,
                modified: None,
                reserved: small(std::mem::take(&mut file.reserved)),
                records: file.records,
                rooms: std::mem::take(&mut file.rooms).0,
                refused: None,
            });
        }
        let done = maps::finish(&self.shared, &self.groups, &mut finishes);
        for (file, finish) in files.iter_mut().zip(finishes) {
            (file.reserved, file.refused) = (finish.reserved.into(), finish.refused);
            file.rooms = Reserved(finish.rooms);
            let left = finish.written.into_iter().map(|left| Written {
                at: left.at.get(),
                count: left.count.into(),
                claim: left.claim.map(Blocks),
            });
            file.written.extend(left);
        }
        done
    }

    fn set_size(&self, file: &FileBelow, size: u64, shrinks: bool) -> Result<(), Error> {
        let set = if shrinks { maps::truncate } else { maps::set_size };
        set(&self.shared, &self.groups, &file.get()?, size)
    }

    fn clear_behind(&self, file: &FileBelow, size: u64) -> Result<(), Error> {
        let end = FileBlock(size.div_ceil(self.shared.geometry.block_size.into()));
        maps::clear_behind(&self.shared, &self.groups, &file.get()?, end)
    }

    fn unit(&self, file: &FileBelow) -> Result<u64, Error> {
        Ok(maps::unit(&file.get()?.read()).into())
    }

    fn fill_units(&self, file: &FileBelow, from: u64, to: u64) -> Result<(), Error> {
        maps::fill_units(&self.shared, &self.groups, &file.get()?, (FileBlock(from), FileBlock(to)))
    }

    fn trim(&self, file: &FileBelow, size: u64) -> Result<(), Error> {
        let end = FileBlock(size.div_ceil(self.shared.geometry.block_size.into()));
        maps::trim(&self.shared, &self.groups, &file.get()?, end).map(drop)
    }

    fn touch(&self, file: &FileBelow) -> Result<(), Error> {
        let inode = file.get()?;
        let now = self.shared.now();
        let nanos = |time: format::timestamp::Timestamp| {
            i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
        };
        let times = inode.read().dinode().times();
        let old = nanos(times.modify).min(nanos(times.change));
        if (old..old + TICK_NANOS).contains(&nanos(now)) {
            return Ok(());
        }
        let tx = self.shared.begin(self.shared.reservations.inode)?;
        let mut state = inode.lock();
        state.set_times(&[InodeTime::Modify, InodeTime::Change], now);
        tx.commit(&mut [&mut state])
    }
}
