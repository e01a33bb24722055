//! A pointer that is set and removed while others read it.

use std::fmt;
use std::ptr;

use super::reader::Section;
use super::retired::Removed;
use crate::sync::atomic::{AtomicPtr, Ordering};

/// An optional object that readers find without a lock.
pub struct Slot<T> {
    object: AtomicPtr<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { object: AtomicPtr::new(ptr::null_mut()) }
    }
}

#[allow(unsafe_code, reason = "the object lives until a grace period after its removal")]
impl<T: Send + Sync> Slot<T> {
    /// The object, if there is one.
    #[inline]
    pub fn get<'s>(&'s self, _: &'s Section) -> Option<&'s T> {
        // SAFETY: it came from a box, and is freed after a grace period that begins when the slot no longer has it, or
        // by the drop of the slot, which is borrowed.
        unsafe { self.object.load(Ordering::Acquire).as_ref() }
    }

    /// The object, if there is one, without a section.
    ///
    /// # Safety
    /// The object is not taken for as long as the result is used.
    #[inline]
    pub(crate) unsafe fn get_unguarded(&self) -> Option<&T> {
        // SAFETY: it came from a box, and the caller says that it is still there.
        unsafe { self.object.load(Ordering::Acquire).as_ref() }
    }

    /// Whether there is an object.
    #[inline]
    pub fn is_set(&self) -> bool {
        !self.object.load(Ordering::Acquire).is_null()
    }

    /// Sets the object unless there is one; returns whether it did.
    pub fn set(&self, object: T) -> bool {
        let new = Box::into_raw(Box::new(object));
        let set =
            self.object.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !set {
            // SAFETY: nobody else has had it.
            drop(unsafe { Box::from_raw(new) });
        }
        set
    }

    /// Removes the object.
    pub fn take(&self) -> Option<Removed<T>> {
        let object = self.object.swap(ptr::null_mut(), Ordering::AcqRel);
        (!object.is_null()).then(|| Removed::new(object))
    }
}

impl<T> Drop for Slot<T> {
    #[allow(unsafe_code, reason = "the object came from a box")]
    fn drop(&mut self) {
        let object = self.object.swap(ptr::null_mut(), Ordering::AcqRel);
        if !object.is_null() {
            // SAFETY: readers borrow the slot, so there are none.
            drop(unsafe { Box::from_raw(object) });
        }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}
