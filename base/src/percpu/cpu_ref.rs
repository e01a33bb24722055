//! References to one object that CPUs take and drop without a shared reference count.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{PerCpu, available};

/// A reference to an object. The objects that one CPU creates share it.
pub struct CpuRef<T>(Arc<T>);

impl<T> CpuRef<T> {
    /// A single reference.
    pub fn new(object: &Arc<T>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(object)))
    }

    /// The object.
    pub fn object(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> Deref for CpuRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for CpuRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CpuRef")
    }
}

/// References to one object, one for each CPU.
#[derive(Debug)]
pub struct CpuRefs<T>(PerCpu<Arc<CpuRef<T>>>);

impl<T> CpuRefs<T> {
    /// References to `object`.
    pub fn new(object: &Arc<T>) -> Self {
        Self(PerCpu::new(available(), |_| CpuRef::new(object)))
    }

    /// The reference of the current CPU.
    #[inline]
    pub fn local(&self) -> &Arc<CpuRef<T>> {
        self.0.local().1
    }
}
