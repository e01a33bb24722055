//! References, which have a strong count of their object in common.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use super::state::{Dropped, RefCount, Taken};
use crate::rcu::{self, Removed};

/// An object to which references are counted.
pub trait Counted: Send + Sync + Sized {
    /// The type of the attached object, such as the cached contents of an inode.
    type Attached: Send + Sync;

    /// The object's count, always the same one.
    fn count(&self) -> &RefCount<Self::Attached>;

    /// The last reference to the object, which is unlinked, was dropped: the object must be freed. May be called with
    /// any lock held.
    fn unreferenced(self: Arc<Self>);
}

/// A reference to an object.
pub struct Ref<T: Counted> {
    /// A copy of an `Arc` whose strong count is that of all references together.
    object: ManuallyDrop<Arc<T>>,
}

/// A reference to an object that is free, or about to be freed. It is only to be dropped, which may take a lock, or
/// [reused](Self::reuse).
pub struct Stale<T: Counted> {
    /// Its drop may be that of the last reference to an unlinked object: the free object may have been allocated again
    /// and unlinked, and its other references may have been dropped before.
    reference: Ref<T>,
}

impl<T: Counted + fmt::Debug> Stale<T> {
    /// Makes the object another one instead of freeing it: it is unlinked, too, and this is a reference to it. The
    /// caller would free the object otherwise. `None` if the object is not about to be freed.
    pub fn reuse(self) -> Option<Reused<T>> {
        let detached = self.reference.count().set_reused()?;
        Some(Reused { reference: self.reference, detached })
    }
}

/// An object that was [reused](Stale::reuse).
#[derive(Debug)]
pub struct Reused<T: Counted + fmt::Debug> {
    /// The reference to it.
    pub reference: Ref<T>,
    /// The object that was attached: a thread that found it before may still read it.
    pub detached: Option<Removed<T::Attached>>,
}

#[allow(unsafe_code, reason = "references have a strong count in common")]
impl<T: Counted> Ref<T> {
    /// A reference to an object that is neither queued nor free.
    ///
    /// # Panics
    /// The object is queued or free.
    pub fn new(object: &Arc<T>) -> Self {
        let taken = object.count().take();
        let reference = Self::counted(object, taken);
        assert!(taken.is_valid, "a reference to a free object");
        reference
    }

    /// A reference to an object that is found by several threads.
    ///
    /// # Errors
    /// The object is free, or about to be freed.
    #[inline]
    pub fn acquire(object: &Arc<T>) -> Result<Self, Stale<T>> {
        let taken = object.count().take();
        let reference = Self::counted(object, taken);
        object.count().note_cpu();
        if taken.is_valid { Ok(reference) } else { Err(Stale { reference }) }
    }

    #[inline]
    fn counted(object: &Arc<T>, taken: Taken) -> Self {
        if taken.is_first {
            // The strong count of all references.
            mem::forget(Arc::clone(object));
        }
        // SAFETY: the copy is not dropped, except by the last reference, which drops the strong count of all of them.
        // Until then that count, which some thread has or is about to take from a borrowed `Arc`, keeps the object.
        Self { object: ManuallyDrop::new(unsafe { ptr::read(object) }) }
    }

    /// The attached object, if there is one. It stays attached as long as this reference exists.
    #[inline]
    pub fn attached(&self) -> Option<&T::Attached> {
        // SAFETY: this reference is valid, so that the object is not queued, and nothing is detached.
        unsafe { self.object.count().attached_while_referenced() }
    }
}

impl<T: Counted> Clone for Ref<T> {
    fn clone(&self) -> Self {
        Self::new(&self.object)
    }
}

impl<T: Counted> Drop for Ref<T> {
    #[inline]
    #[allow(unsafe_code, reason = "references have a strong count in common")]
    fn drop(&mut self) {
        let dropped = self.object.count().put();
        if dropped == Dropped::Other {
            return;
        }
        // SAFETY: the last reference takes the strong count of all references, and is not used after that.
        let object = unsafe { ManuallyDrop::take(&mut self.object) };
        if dropped == Dropped::LastOfUnlinked {
            object.unreferenced();
        }
    }
}

impl<T: Counted> Deref for Ref<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Counted + fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

impl<T: Counted> fmt::Debug for Stale<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stale")
    }
}

/// Collects the counts of objects that [began](RefCount::begin_collecting) it, after a grace period. Returns those that
/// are unlinked and have no references: they are queued now, and the caller must free them. Must not be called in a
/// read section.
#[allow(unsafe_code, reason = "references have a strong count in common")]
pub fn collect<T: Counted>(objects: impl IntoIterator<Item = Arc<T>>) -> Vec<Arc<T>> {
    let objects: Vec<_> = objects.into_iter().filter(|object| object.count().is_collecting()).collect();
    if !objects.is_empty() {
        rcu::grace_period().wait();
    }
    let collect = |object: Arc<T>| {
        let dropped = object.count().collect();
        if dropped != Dropped::Other {
            // SAFETY: the count has become zero, so that nobody else has the strong count of the references.
            drop(unsafe { Arc::from_raw(Arc::as_ptr(&object)) });
        }
        (dropped == Dropped::LastOfUnlinked).then_some(object)
    };
    objects.into_iter().filter_map(collect).collect()
}
