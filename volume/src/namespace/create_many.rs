//! Creating many files in one directory, several by one transaction.
//!
//! The first file of a transaction is created as by [`Volume::create`]. The others follow as long as the chunk of its
//! inode has free inodes, and the directory has space for their entries. So the directory is locked once for all of
//! them, and its inode, its blocks, the AGI and the records of the chunk are logged once.
//!
//! Directories are created one by one, because each goes to another AG. So are files that need blocks, files with
//! attributes, also inherited ones, and all files of volumes with parent pointers.
//!
//! # Invariants
//! - A name that is refused changes nothing, so the transaction continues with the next name. Everything that can be
//!   refused is checked before the entry of the file is added. After that, an error is damage or that of a device, and
//!   shuts the volume down as in a transaction that creates one file.
//! - Only the first file of a transaction allocates blocks, so the others need no reservation of blocks, and little log
//!   space.
//!
//! # Locking
//! Only the first file of a transaction waits for an AGI and for AGFs. The inodes of the others are free, and are
//! locked behind the AGI as that of a file that is created alone.

use format::Geometry;
use format::inode::RawInode;
use format::ondisk::OnDisk;
use inode::dir::{DirBlock, InsertSlot, NewEntry};
use inode::{InodeRef, LockedInode};
use journal::engine::Loggable;
use smallvec::SmallVec;

use super::create::{MAX_TARGET, expect_allowed, verify};
use crate::dir::AsPath;
use crate::new_file::{NewFile, NewFileType};
use crate::operation::{Operation, expect_directory, is_dots};
use crate::permissions::{Caller, EXECUTE, WRITE};
use crate::reservations::BATCH_MAX;
use crate::{Error, Result, Volume};

/// The result of the next file of a batch.
enum NextFile {
    Created(LockedInode),
    /// Nothing was changed.
    Refused(Error),
    /// The file was not created: it needs blocks or an inode of another chunk, and so a new transaction.
    NeedsTransaction,
}

impl Volume {
    /// Creates files in a directory for a caller, in their order. Returns the result of each.
    pub(crate) fn create_many_in<N: AsPath>(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        files: &[(N, NewFile<'_>)],
    ) -> Vec<Result<InodeRef>> {
        let mut results = Vec::with_capacity(files.len());
        let batch_max = self.reservations.batch_max(&self.geometry);
        while let Some(rest) = files.get(results.len()..).filter(|rest| !rest.is_empty()) {
            let most = rest.get(..batch_max).unwrap_or(rest);
            let count =
                most.iter().take_while(|(name, new)| is_simple(&self.geometry, name.as_path(), new)).count();
            let batch = rest.get(..count.max(1)).unwrap_or(rest);
            let created = if count > 1 { self.try_create_batch(caller, dir, batch) } else { Ok(Vec::new()) };
            match created {
                Ok(created) if !created.is_empty() => results.extend(created),
                // Each file alone: that finds the error of each, or creates it with attributes, or in another chunk.
                _ => results.extend(
                    batch
                        .iter()
                        .map(|(name, new)| self.create_in(caller, dir, name.as_path(), &caller.owned(new)?)),
                ),
            }
        }
        results
    }

    /// Creates the first of these files in one transaction, as many as need no other chunk and no block. Returns the
    /// results of those that were created or refused; none if they inherit attributes.
    fn try_create_batch<N: AsPath>(
        &self,
        caller: Caller<'_>,
        dir_ref: &InodeRef,
        files: &[(N, NewFile<'_>)],
    ) -> Result<Vec<Result<InodeRef>>> {
        let blocks = self.reservations.create_blocks(&NewFile::regular());
        let mut operation = self.begin_with_blocks(self.reservations.create_many(files.len()), blocks)?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        operation.expect_permitted(caller, &mut dir, WRITE | EXECUTE)?;
        let mut results = Vec::with_capacity(files.len());
        if operation.default_acl(&mut dir, &NewFile::regular())?.is_some() {
            return Ok(results);
        }
        let mut children: SmallVec<[LockedInode; BATCH_MAX]> = SmallVec::new();
        for (name, new) in files {
            match operation.create_next(caller, &mut dir, children.last(), name.as_path(), new)? {
                NextFile::Created(child) => {
                    results.push(Ok(child.reference()));
                    children.push(child);
                }
                NextFile::Refused(error) => results.push(Err(error)),
                NextFile::NeedsTransaction => break,
            }
        }
        if !children.is_empty() {
            let inodes = children.iter_mut().map(|child| child as &mut dyn Loggable);
            let mut locked: SmallVec<[&mut dyn Loggable; BATCH_MAX + 1]> = SmallVec::new();
            locked.push(&mut dir);
            locked.extend(inodes);
            operation.commit(&mut locked)?;
        }
        Ok(results)
    }
}

impl Operation<'_> {
    /// Creates a file in a locked directory; after another one, `last`, with an inode of the same chunk.
    fn create_next(
        &mut self,
        caller: Caller<'_>,
        dir: &mut LockedInode,
        last: Option<&LockedInode>,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<NextFile> {
        let (new, insert_slot) = match self.check_next(caller, dir, name, new)? {
            Ok(checked) => checked,
            Err(error) => return Ok(NextFile::Refused(error)),
        };
        let mut child = match last {
            None => {
                let child = self.create_inode(dir, &new, 1)?;
                let (ino, ftype) = (child.ino(), new.inode_type().ftype());
                self.add_entry(dir, insert_slot, NewEntry { name, ino, ftype })?;
                child
            }
            Some(last) => {
                let groups = &self.volume.groups;
                let Some(next) = groups.next_inode(&mut self.tx, last.ino(), dir.ino())? else {
                    return Ok(NextFile::NeedsTransaction);
                };
                let entry = NewEntry { name, ino: next.ino(), ftype: new.inode_type().ftype() };
                if !self.add_entry_in_place(dir, insert_slot, entry)? {
                    groups.leave_inode(next)?;
                    return Ok(NextFile::NeedsTransaction);
                }
                let ino = groups.take_next_inode(&mut self.tx, next)?;
                self.init_inode(ino, dir, &new, 1)?
            }
        };
        caller.restrict_mode(dir, &mut child);
        self.init_contents(&mut child, &new, dir.ino())?;
        self.named(dir, &mut child, name, &new);
        Ok(NextFile::Created(child))
    }

    /// Checks everything for which a file can be refused. The outer error is one after which the transaction must not
    /// continue.
    fn check_next<'n>(
        &mut self,
        caller: Caller<'_>,
        dir: &mut LockedInode,
        name: &[u8],
        new: &NewFile<'n>,
    ) -> Result<Result<(NewFile<'n>, InsertSlot<DirBlock>)>> {
        // The search changes nothing, so its error is not one of the transaction.
        let insert_slot = match self.directory(dir, |dir| Ok(dir.insert_slot(name)))? {
            Ok(insert_slot) => insert_slot,
            Err(error) => return Ok(Err(error.into())),
        };
        let allowed = expect_allowed(dir, new).and_then(|()| caller.expect_type_allowed(new));
        Ok(allowed.and_then(|()| Ok((caller.owned(new)?, insert_slot))))
    }
}

/// Whether a file can be created together with others.
fn is_simple(geometry: &Geometry, name: &[u8], new: &NewFile<'_>) -> bool {
    let needs_blocks = match new.file_type {
        NewFileType::Directory => true,
        NewFileType::Symlink(target) => {
            // A target that is too long is refused as in a call of its own.
            target.len() > MAX_TARGET || target.len() + RawInode::SIZE > geometry.inode_size as usize
        }
        _ => false,
    };
    !needs_blocks && new.attributes.is_empty() && !is_dots(name) && verify(new).is_ok()
}
