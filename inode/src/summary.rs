//! What opening a file needs to know of its inode, readable without the inode's lock.

use std::sync::atomic::{AtomicU64, Ordering};

use format::inode::{FileType, S_IFMT, flags2};

use crate::state::InodeState;

/// Generation and flags are above the type bits of the mode and a mark.
const GENERATION_SHIFT: u32 = 32;
const FLAGS_SHIFT: u32 = 16;
/// The file is one of the metadata directory.
const IS_INTERNAL: u64 = 1;

/// Generation, inode flags and file type of an inode, as of the last commit. Generation and type do not change from the
/// allocation of the inode until it is freed.
///
/// Loads are `Acquire`: what a thread examines after it has read the generation of a new file, such as whether a dentry
/// was removed, is no older than that file.
#[derive(Debug)]
pub(crate) struct Summary(AtomicU64);

impl Summary {
    pub fn new(state: &InodeState) -> Self {
        Self(AtomicU64::new(word(state)))
    }

    /// Called with the inode locked. Most changes of an inode change none of this. Then nothing is stored, and those
    /// that open the file or look names up in it are not disturbed.
    #[inline]
    pub fn set(&self, state: &InodeState) {
        let word = word(state);
        if self.0.load(Ordering::Relaxed) != word {
            self.0.store(word, Ordering::Release);
        }
    }

    /// Whether it is that of this state.
    pub fn is_of(&self, state: &InodeState) -> bool {
        self.word() == word(state)
    }

    #[inline]
    fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline]
    pub fn generation(&self) -> u32 {
        (self.word() >> GENERATION_SHIFT) as u32
    }

    /// `None` if the mode has no valid one.
    #[inline]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.word() as u16)
    }

    /// Inode flags (`format::inode::flags`).
    #[inline]
    pub fn flags(&self) -> u16 {
        (self.word() >> FLAGS_SHIFT) as u16
    }

    /// Whether the file is one of the metadata directory.
    #[inline]
    pub fn is_internal(&self) -> bool {
        self.word() & IS_INTERNAL != 0
    }
}

#[inline]
fn word(state: &InodeState) -> u64 {
    let core = state.core();
    let is_internal = core.flags2.get() & flags2::METADATA != 0;
    u64::from(core.generation.get()) << GENERATION_SHIFT
        | u64::from(core.flags.get()) << FLAGS_SHIFT
        | u64::from(state.mode() & S_IFMT)
        | if is_internal { IS_INTERNAL } else { 0 }
}
