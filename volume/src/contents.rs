//! Cached contents, attached to their inodes.

use std::any::Any;
use std::sync::Arc;

use base::errno;
use base::rcu::Section;
use base::refs::AttachedRef;
use block::Device;
use error::Error;
use inode::InodeRef;
use inode::contents::{VolumeBacking, WeakInode};
use inode::inode::{Attached, Inode};

use crate::Volume;

pub(crate) type Contents = cache::Contents<VolumeBacking>;
pub(crate) type MapChange<'c> = cache::MapChange<'c, VolumeBacking>;

/// A reference to a file, and its contents.
pub(crate) type FileContents = AttachedRef<Inode, Contents>;

/// The attachment of an inode with cached contents.
struct Attachment(Arc<Contents>);

impl Attached for Attachment {
    fn forget(&self) {
        self.0.forget();
    }

    fn try_forget(&self) -> bool {
        self.0.try_forget()
    }

    fn is_needed(&self) -> bool {
        self.0.is_needed()
    }
}

impl Volume {
    /// Returns the contents of a regular file.
    pub(crate) fn contents(&self, inode: InodeRef) -> Result<FileContents, Error> {
        if inode.attached().is_none() {
            let contents = Contents::new(self.cache_references.local(), WeakInode::new(&inode))?;
            inode.attach(Arc::new(Attachment(contents)));
        }
        let why = "the inode has no contents";
        FileContents::new(inode, find).ok_or(Error::Refused { errno: errno::EIO, why })
    }

    /// The data device.
    pub(crate) fn device(&self) -> &dyn Device {
        self.cache.device()
    }
}

/// The contents in what is attached to an inode.
#[inline]
fn find(attached: &Arc<dyn Attached>) -> Option<&Contents> {
    let attached: &dyn Any = &**attached;
    attached.downcast_ref::<Attachment>().map(|attachment| &*attachment.0)
}

/// The contents of a file that are in memory, if any are.
pub(crate) fn in_memory(inode: &InodeRef) -> Option<&Contents> {
    find(inode.attached()?)
}

/// The contents of a file that are in memory, if any are, without a reference to the file.
#[inline]
pub(crate) fn in_section<'s>(inode: &'s Inode, section: &'s Section) -> Option<&'s Contents> {
    find(inode.attached(section)?)
}
