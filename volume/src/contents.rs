//! Cached contents, attached to their inodes.

use std::any::Any;
use std::sync::Arc;

use base::errno;
use base::rcu::{self, Section};
use block::Device;
use error::Error;
use inode::contents::{VolumeBacking, WeakInode};
use inode::inode::{Attached, Inode};

use crate::Volume;

pub(crate) type Contents = cache::Contents<VolumeBacking>;
pub(crate) type MapChange<'c> = cache::MapChange<'c, VolumeBacking>;

/// The attachment of an inode with cached contents.
struct Attachment(Arc<Contents>);

impl Attached for Attachment {
    fn forget(&self) {
        self.0.forget();
    }

    fn is_needed(&self) -> bool {
        self.0.is_needed()
    }
}

impl Volume {
    /// Returns the contents of a regular file to which the caller has a reference.
    pub(crate) fn contents(&self, inode: &Arc<Inode>) -> Result<Arc<Contents>, Error> {
        if let Some(contents) = in_memory(inode) {
            return Ok(contents);
        }
        let contents = Contents::new(&self.cache, WeakInode::new(inode))?;
        inode.attach(Arc::new(Attachment(contents)));
        let why = "the inode has no contents";
        in_memory(inode).ok_or(Error::Refused { errno: errno::EIO, why })
    }

    /// The data device.
    pub(crate) fn device(&self) -> &dyn Device {
        self.cache.device()
    }
}

/// Returns the contents of a file that are in memory, if any are.
pub(crate) fn in_memory(inode: &Inode) -> Option<Arc<Contents>> {
    rcu::read(|section| data_in_memory(inode, section).cloned())
}

/// The contents of a file that are in memory, if any are, without a reference of their own: valid in the section.
#[inline]
pub(crate) fn data_in_memory<'s>(inode: &'s Inode, section: &'s Section) -> Option<&'s Arc<Contents>> {
    let attached: &dyn Any = &**inode.attached(section)?;
    attached.downcast_ref::<Attachment>().map(|attachment| &attachment.0)
}
