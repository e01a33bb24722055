//! The open files of a mount, by their file handles. Their memory is counted with that of inodes: each of them keeps an
//! inode in memory, too.

use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;

use base::Slab;
use base::memory::{Counted, Share};
use xebec::File;

/// An open file, with its memory.
pub struct OpenFile<'v> {
    file: File<'v>,
    _memory: Counted<'v>,
}

impl<'v> Deref for OpenFile<'v> {
    type Target = File<'v>;

    fn deref(&self) -> &File<'v> {
        &self.file
    }
}

/// The open files.
pub struct OpenFiles<'v> {
    files: Slab<Arc<OpenFile<'v>>>,
    memory: &'v Share,
}

impl<'v> OpenFiles<'v> {
    /// Memory of an open file: with the counts of its reference.
    const FILE_BYTES: usize = size_of::<OpenFile<'_>>() + 2 * size_of::<usize>();

    /// No files; the memory of files is counted in `memory`.
    pub fn new(memory: &'v Share) -> Self {
        Self { files: Slab::default(), memory }
    }

    /// Adds a file and returns its handle. `None` if there are too many: some billions.
    pub fn add(&self, file: File<'v>) -> Option<u64> {
        let memory = Counted::new(self.memory, Self::FILE_BYTES);
        let added = self.files.insert(Arc::new(OpenFile { file, _memory: memory }))?;
        if added.grown > 0 {
            self.memory.add(added.grown as u64);
        }
        Some(added.key)
    }

    /// The file with a handle.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<Arc<OpenFile<'v>>> {
        self.files.get(handle)
    }

    /// Removes a file: it was closed.
    pub fn remove(&self, handle: u64) {
        drop(self.files.remove(handle));
    }
}

impl Drop for OpenFiles<'_> {
    fn drop(&mut self) {
        self.memory.sub(self.files.bytes() as u64);
    }
}

impl Debug for OpenFiles<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("OpenFiles")
    }
}
