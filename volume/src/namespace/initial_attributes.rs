//! Attributes of a new file: those that the caller requests, and access control lists (ACLs) inherited from the
//! directory.
//!
//! A directory may have a default ACL. A new file gets it as its access ACL, restricted to the requested permission
//! bits; the permission bits are then set from the ACL. A new directory also gets the default ACL itself.
//!
//! # Invariants
//! After a crash, a file that has its name has all of these attributes. A few short ones are set in the transaction
//! that creates the file. Otherwise the file is created unlinked, gets each attribute in a transaction of its own, and
//! its name last.
//!
//! Most directories have no default ACL, and files in them are created without a reservation for it. Only when the
//! directory is locked does the operation know; if it has one, the operation starts again with a larger reservation.

use base::errno;
use format::Geometry;
use format::attr::{Namespace, acl};
use inode::attr::{AttrKey, NewAttrValue, is_inline};
use inode::{InodeRef, LockedInode};

use crate::attributes::{NewAttribute, SetAttribute, requested_attributes, set_permissions};
use crate::new_file::{NewFile, NewFileType};
use crate::operation::Operation;
use crate::permissions::{ACCESS_ACL, Caller};
use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// How the attributes of a new file are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeMode {
    /// The file has no attributes.
    None,
    /// In the transaction that creates the file: up to [`MAX_SAME_TRANSACTION`], all with inline values.
    SameTransaction,
    /// In transactions of their own, before the file gets its name.
    OwnTransactions,
}

/// The result of an attempt to create a file with an [`AttributeMode`].
pub(super) enum CreateAttempt<T> {
    Done(T),
    /// Nothing was changed: the attributes need this mode.
    Needs(AttributeMode),
}

/// The attributes of a new file.
pub(super) struct InitialAttributes<'a> {
    /// The permission bits that result from the inherited ACL.
    permissions: Option<u16>,
    /// Inherited access and default ACL, in their on-disk form.
    acls: [Option<(AttrKey<'static>, Vec<u8>)>; 2],
    /// Set after the ACLs: a requested ACL replaces an inherited one.
    requested: &'a [NewAttribute<'a>],
}

/// Maximum number of attributes that are set in the transaction that creates the file.
const MAX_SAME_TRANSACTION: usize = 2;
const DEFAULT: AttrKey<'static> = AttrKey::new(Namespace::Trusted, acl::DEFAULT);

impl<T> CreateAttempt<T> {
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> CreateAttempt<U> {
        match self {
            Self::Done(value) => CreateAttempt::Done(convert(value)),
            Self::Needs(mode) => CreateAttempt::Needs(mode),
        }
    }
}

impl InitialAttributes<'_> {
    /// The cheapest mode for these attributes.
    fn mode(&self, geometry: &Geometry) -> AttributeMode {
        let acls = self.acls.iter().flatten().map(|(key, acl)| (*key, acl.len()));
        let requested = self.requested.iter().map(|new| (new.name.key, new.stored.len()));
        let (mut count, mut all_inline) = (0, true);
        for (key, length) in acls.chain(requested) {
            count += 1;
            all_inline &= is_inline(&key, length, geometry);
        }
        match count {
            0 if self.permissions.is_none() => AttributeMode::None,
            0..=MAX_SAME_TRANSACTION if all_inline => AttributeMode::SameTransaction,
            _ => AttributeMode::OwnTransactions,
        }
    }
}

impl Volume {
    /// Creates a file, starting with the mode that its requested attributes need. `create` creates it in one
    /// transaction, `create_in_steps` in several.
    pub(super) fn create_with_attributes<T>(
        &self,
        new: &NewFile<'_>,
        create: impl Fn(AttributeMode, &[NewAttribute<'_>]) -> Result<CreateAttempt<T>>,
        create_in_steps: impl Fn(&[NewAttribute<'_>]) -> Result<T>,
    ) -> Result<T> {
        let requested = requested_attributes(new)?;
        let mut mode = AttributeMode::None;
        if !requested.is_empty() {
            self.note_attributes()?;
            mode = AttributeMode::SameTransaction;
        }
        while mode != AttributeMode::OwnTransactions {
            match self.retry_on_enospc(|| create(mode, &requested))? {
                CreateAttempt::Done(created) => return Ok(created),
                CreateAttempt::Needs(needed) => mode = needed,
            }
        }
        create_in_steps(&requested)
    }

    /// Begins an operation that creates a file.
    pub(super) fn begin_create(&self, new: &NewFile<'_>, mode: AttributeMode) -> Result<Operation<'_>> {
        let (reservations, blocks) = (&self.reservations, self.reservations.create_blocks(new));
        match mode {
            AttributeMode::SameTransaction => {
                let attribute_blocks = MAX_SAME_TRANSACTION as u32 * reservations.attribute_blocks;
                self.begin_with_blocks(reservations.create_with_attributes, blocks + attribute_blocks)
            }
            AttributeMode::None | AttributeMode::OwnTransactions => {
                self.begin_with_blocks(reservations.create, blocks)
            }
        }
    }

    /// Sets the attributes of a new file that has no name yet, each in a transaction of its own.
    pub(super) fn set_attributes_in_steps(
        &self,
        file: &InodeRef,
        initial: &InitialAttributes<'_>,
    ) -> Result<()> {
        for (key, acl) in initial.acls.iter().flatten() {
            self.retry_on_enospc(|| {
                let mut operation =
                    self.begin_attribute(file.ino(), self.remote_value_len(key, acl.len()))?;
                let mut state = file.lock();
                operation.put_attribute(&mut state, key, acl)?;
                operation.commit(&mut [&mut state])
            })?;
        }
        for NewAttribute { name, stored } in initial.requested {
            self.retry_on_enospc(|| {
                self.try_set_attribute(Caller::PROGRAM, file, name, stored, SetAttribute::Any)
            })?;
        }
        Ok(())
    }
}

impl Operation<'_> {
    /// Returns the attributes of a new file in a locked directory, or the mode that they need if `mode` is not enough.
    pub(super) fn initial_attributes<'a>(
        &mut self,
        dir: &mut LockedInode,
        new: &NewFile<'_>,
        mode: AttributeMode,
        requested: &'a [NewAttribute<'a>],
    ) -> Result<CreateAttempt<InitialAttributes<'a>>> {
        let mut initial = InitialAttributes { permissions: None, acls: [None, None], requested };
        if let Some(default) = self.default_acl(dir, new)? {
            let access =
                acl::inherited(&default, new.permissions).map_err(|damage| damaged(dir.ino(), damage))?;
            initial.permissions = Some(access.permissions);
            initial.acls = [
                (!access.is_mode).then_some((ACCESS_ACL, access.value)),
                new.is_directory().then_some((DEFAULT, default)),
            ];
        }
        let needed = initial.mode(&self.volume.geometry);
        if mode == needed || mode == AttributeMode::OwnTransactions || needed == AttributeMode::None {
            return Ok(CreateAttempt::Done(initial));
        }
        self.tx.release_clean();
        Ok(CreateAttempt::Needs(needed))
    }

    /// The default ACL of a directory, if a new file inherits it.
    #[inline]
    pub(super) fn default_acl(
        &mut self,
        dir: &mut LockedInode,
        new: &NewFile<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if dir.forkoff() == 0 || matches!(new.file_type, NewFileType::Symlink(_)) {
            return Ok(None);
        }
        self.attributes(dir, |attributes| attributes.get(&DEFAULT))
    }

    /// Sets the permission bits of a new file, and its attributes unless they are set in transactions of their own.
    pub(super) fn set_initial_attributes(
        &mut self,
        child: &mut LockedInode,
        initial: &InitialAttributes<'_>,
        mode: AttributeMode,
    ) -> Result<()> {
        set_permissions(child, initial.permissions);
        if mode == AttributeMode::OwnTransactions {
            return Ok(());
        }
        for (key, acl) in initial.acls.iter().flatten() {
            self.attributes(child, |attributes| attributes.set(key, &NewAttrValue::Inline(acl)))?;
        }
        for NewAttribute { name, stored } in initial.requested {
            match &stored.value {
                Some(value) => {
                    self.attributes(child, |attributes| {
                        attributes.set(&name.key, &NewAttrValue::Inline(value))
                    })?;
                }
                // An ACL that the permission bits represent, in place of an inherited one.
                None => drop(self.attributes(child, |attributes| attributes.remove(&name.key))?),
            }
            set_permissions(child, stored.permissions);
        }
        Ok(())
    }

    /// Refuses a name that exists. For files created in several transactions: nothing is created then.
    pub(super) fn expect_absent(&mut self, dir: &mut LockedInode, name: &[u8]) -> Result<()> {
        match self.lookup(dir, name)? {
            Some(_) => Err(Error::refused(errno::EEXIST, "the name exists")),
            None => Ok(()),
        }
    }
}
