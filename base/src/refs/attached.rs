//! References to attached objects.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use super::{Counted, Ref};

/// A reference to an object, and to a part of its attached object, such as an inode and its cached contents.
pub struct AttachedRef<T: Counted, P> {
    part: NonNull<P>,
    owner: Ref<T>,
    shares: PhantomData<P>,
}

#[allow(unsafe_code, reason = "the part lives as long as the reference")]
// SAFETY: it gives shared access to the part, which other threads have, too.
unsafe impl<T: Counted, P: Sync> Send for AttachedRef<T, P> {}
#[allow(unsafe_code, reason = "the part lives as long as the reference")]
// SAFETY: as above.
unsafe impl<T: Counted, P: Sync> Sync for AttachedRef<T, P> {}

impl<T: Counted, P> AttachedRef<T, P> {
    /// A reference to the part of the attached object that `find` returns; `None` if there is no attached object, or no
    /// such part.
    pub fn new(owner: Ref<T>, find: impl for<'a> FnOnce(&'a T::Attached) -> Option<&'a P>) -> Option<Self> {
        // The borrow is not of `owner`, which moves, but of what it refers to.
        let part = NonNull::from(find(owner.attached()?)?);
        Some(Self { part, owner, shares: PhantomData })
    }

    /// The reference to the object.
    pub fn owner(&self) -> &Ref<T> {
        &self.owner
    }
}

impl<T: Counted, P> Deref for AttachedRef<T, P> {
    type Target = P;
    #[inline]
    #[allow(unsafe_code, reason = "the part lives as long as the reference")]
    fn deref(&self) -> &P {
        // SAFETY: `find` could borrow it only from the attached object, or from something static. The attached object
        // does not move, and stays until the object is queued, which this valid reference excludes.
        unsafe { self.part.as_ref() }
    }
}

impl<T: Counted, P> fmt::Debug for AttachedRef<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttachedRef")
    }
}
