//! Checkpoints: the changed pages of the map are stored, and then the head refers to them.
//!
//! # Invariants
//! - A checkpoint contains exactly the segments that were acknowledged when it was frozen.
//! - An object is retired in the head that no longer refers to it, and deleted only when a later head has been
//!   published: `collect`.

use std::collections::HashSet;

use store::Bytes;

use crate::codec::{compress, crc, decompress};
use crate::collect::{Expired, append};
use crate::error::{Damage, ObjectError, Result};
use crate::head::{Checkpoint, Head, Retired, Root};
use crate::map::{Directory, Frozen, MapObject, PageRef, encode_page};
use crate::names::{self, Kind};
use crate::state::{Core, ObjectId, Origin, Publisher};

/// Bytes of pages in one object, roughly.
const PART_BYTES: usize = 8 << 20;
/// Bytes of a directory at most.
const DIRECTORY_BYTES: u32 = 512 << 20;

/// Objects that are deleted before a volume is closed at most: the user waits.
const DELETIONS_AT_CLOSE: usize = 64;

/// Pages of a checkpoint that are written.
pub struct Written {
    stored: Directory,
    /// Where the directory is.
    pub root: Root,
    /// Slots of segments without live blocks.
    dropped: Vec<u32>,
    /// Objects that the map does not use any more.
    unused: Vec<ObjectId>,
}

/// Reads the directory of a checkpoint.
pub fn read_directory(origins: &[Origin], root: &Root) -> Result<Directory> {
    let origin = origins.get(usize::from(root.origin));
    let wrong = |reason| ObjectError::Damaged {
        volume: origins.first().map(|origin| origin.client.name()).unwrap_or_default(),
        key: names::HEAD.into(),
        damage: Damage { what: "head", reason },
    };
    let origin = origin.ok_or_else(|| wrong("it refers to a parent that it does not have"))?;
    if root.length > DIRECTORY_BYTES || root.stored > root.length || root.length / 1024 > root.stored {
        return Err(wrong("the length of its directory is impossible"));
    }
    let key = names::map(root.epoch, root.number);
    let what = "directory of the map";
    origin.client.get_part(&key, u64::from(root.offset), u64::from(root.stored), |bytes| {
        if bytes.len() != root.stored as usize || crc(&[bytes]) != root.crc {
            return Err(Damage { what, reason: "wrong checksum" });
        }
        match root.stored == root.length {
            true => Directory::decode(bytes, root.origin),
            false => Directory::decode(&decompress(bytes, root.length as usize, what)?, root.origin),
        }
    })
}

/// The objects of this volume itself that a directory uses.
pub fn own_objects(directory: &Directory, root: &Root) -> HashSet<ObjectId> {
    let segments = directory.segments.iter().filter(|(_, segment)| segment.origin == 0);
    let objects = directory.objects.iter().filter(|(_, object)| object.origin == 0);
    let mut ids: HashSet<ObjectId> =
        segments.map(|(_, segment)| (Kind::Segment, segment.epoch, segment.seq)).collect();
    ids.extend(objects.map(|(_, object)| (Kind::Map, object.epoch, object.number)));
    if root.origin == 0 {
        ids.insert((Kind::Map, root.epoch, root.number));
    }
    ids
}

/// Why a checkpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The log is long. A new volume does not begin to exist by that: it may be half built.
    LongLog,
    /// The owner wants the map, and a new volume, in the store.
    Request,
    /// Others may write afterwards without taking over.
    Close,
}

impl Core {
    /// Stores the map, and publishes it.
    pub fn checkpoint(&self, occasion: Occasion) -> Result<()> {
        let close = occasion == Occasion::Close;
        let mut publisher = self.publisher.lock();
        let expired =
            self.delete_expired(&mut publisher, if close { DELETIONS_AT_CLOSE } else { usize::MAX })?;
        let (frozen, seq, unsaved) = self.freeze()?;
        let Checkpoint { epoch: last_epoch, seq: last_seq, root } = &publisher.head.checkpoint;
        let creates = publisher.version.is_none() && occasion != Occasion::LongLog;
        let is_news = (*last_epoch, *last_seq) != (self.epoch, seq) || root.is_none() || creates;
        if frozen.pages.is_empty() && !is_news && expired.is_empty() && !close {
            return Ok(());
        }
        let written = self.write_map(&mut publisher, frozen)?;
        let root = Some(written.root);
        // A closed log has its end here: no claim needs to look for it.
        let checkpoint = match close {
            true => Checkpoint { epoch: self.epoch + 1, seq: 0, root },
            false => Checkpoint { epoch: self.epoch, seq, root },
        };
        let size = self.size.load(std::sync::atomic::Ordering::SeqCst);
        let mut waiting = Vec::new();
        self.publish(&mut publisher, creates, |core, publisher, head| {
            head.checkpoint = checkpoint.clone();
            head.size = size;
            if close {
                head.writer = None;
            }
            waiting = core.retire(publisher, head, &written.unused, &expired)?;
            Ok(())
        })?;
        publisher.backlog = waiting;
        let mut state = self.state.lock();
        state.map.install(written.stored, &written.dropped);
        state.unsaved =
            (state.unsaved.0.saturating_sub(unsaved.0), state.unsaved.1.saturating_sub(unsaved.1));
        Ok(())
    }

    /// A copy of the map, the position up to which it contains the log, and what of that is new.
    pub fn freeze(&self) -> Result<(Frozen, u64, (u64, u64))> {
        loop {
            let unmerged = {
                let mut state = self.state.lock();
                self.check(&state)?;
                let unmerged = state.map.unmerged();
                if unmerged.is_empty() {
                    return Ok((state.map.freeze(), state.acked, state.unsaved));
                }
                unmerged
            };
            self.load_pages(&unmerged)?;
        }
    }

    /// Stores the pages of a copy, and its directory.
    pub fn write_map(&self, publisher: &mut Publisher, frozen: Frozen) -> Result<Written> {
        let Frozen { mut stored, pages } = frozen;
        let mut part = Part::new(self, publisher, &mut stored)?;
        for (number, page) in pages {
            if let Some(old) = stored.pages.remove(&number)
                && let Some(object) = stored.objects.get_mut(old.object)
            {
                object.live = object.live.saturating_sub(1);
            }
            if page.is_empty() {
                continue;
            }
            if part.bytes.len() >= PART_BYTES {
                let full = std::mem::replace(&mut part, Part::new(self, publisher, &mut stored)?);
                full.put(self)?;
            }
            let bytes = encode_page(&page, number, self.epoch, part.number);
            let page =
                PageRef { object: part.slot, offset: part.bytes.len() as u32, length: bytes.len() as u32 };
            part.bytes.extend_from_slice(&bytes);
            stored.pages.insert(number, page);
            if let Some(object) = stored.objects.get_mut(part.slot) {
                object.live += 1;
            }
        }
        let (dropped, unused) = drop_unused(&mut stored, part.slot);
        let directory = stored.encode();
        if directory.len() > DIRECTORY_BYTES as usize {
            let reason = "its map is too large: discard unused blocks, so that it has fewer segments";
            return Err(ObjectError::Refused { volume: self.name.clone(), reason: reason.into() });
        }
        let length = directory.len() as u32;
        let packed = compress(&directory).filter(|packed| packed.len() > directory.len() / 1000);
        let bytes = packed.unwrap_or(directory);
        let root = Root {
            origin: 0,
            epoch: self.epoch,
            number: part.number,
            offset: part.bytes.len() as u32,
            stored: bytes.len() as u32,
            length,
            crc: crc(&[&bytes]),
        };
        part.bytes.extend_from_slice(&bytes);
        part.put(self)?;
        Ok(Written { stored, root, dropped, unused })
    }
}

/// Removes segments without live blocks and objects without pages, except for `keep`, which gets the directory.
fn drop_unused(stored: &mut Directory, keep: u32) -> (Vec<u32>, Vec<ObjectId>) {
    let dead = stored.segments.iter().filter(|(_, segment)| segment.live == 0);
    let dropped: Vec<u32> = dead.map(|(slot, _)| slot).collect();
    let dead = stored.objects.iter().filter(|(slot, object)| object.live == 0 && *slot != keep);
    let objects: Vec<u32> = dead.map(|(slot, _)| slot).collect();
    let mut unused = Vec::new();
    for segment in dropped.iter().filter_map(|slot| stored.segments.remove(*slot)) {
        if segment.origin == 0 {
            unused.push((Kind::Segment, segment.epoch, segment.seq));
        }
    }
    for object in objects.iter().filter_map(|slot| stored.objects.remove(*slot)) {
        if object.origin == 0 {
            unused.push((Kind::Map, object.epoch, object.number));
        }
    }
    (dropped, unused)
}

/// An object with pages that is being filled.
struct Part {
    number: u64,
    slot: u32,
    bytes: Vec<u8>,
}

impl Part {
    fn new(core: &Core, publisher: &mut Publisher, stored: &mut Directory) -> Result<Self> {
        let number = publisher.next_map;
        publisher.next_map += 1;
        let object = MapObject { origin: 0, epoch: core.epoch, number, live: 0 };
        let slot = stored.objects.add(object);
        let slot = slot.ok_or_else(|| core.damaged("directory of the map", "it has too many objects"))?;
        Ok(Self { number, slot, bytes: Vec::new() })
    }

    fn put(self, core: &Core) -> Result<()> {
        core.client()?.put_own(&names::map(core.epoch, self.number), &Bytes::from(self.bytes))
    }
}

impl Core {
    /// Adds unused objects to the list of a new head, unless a snapshot or a clone uses them. Returns those for which
    /// it has no space.
    fn retire(
        &self,
        publisher: &mut Publisher,
        head: &mut Head,
        unused: &[ObjectId],
        expired: &Expired,
    ) -> Result<Vec<Retired>> {
        self.load_kept(publisher, head)?;
        let is_kept = |id: &ObjectId| publisher.kept.values().any(|kept| kept.contains(id));
        let new: Vec<ObjectId> = unused.iter().filter(|id| !is_kept(id)).copied().collect();
        expired.update(&mut head.retired);
        Ok(append(&mut head.retired, publisher.backlog.clone(), &new))
    }
}
