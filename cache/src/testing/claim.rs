//! Claims of the test volume.

use std::fmt;
use std::sync::Arc;

use base::FsBlock;

use super::{Owner, Shared};
use backing::ClaimedBlocks;

/// See the module.
pub struct TestClaim {
    pub(super) shared: Arc<Shared>,
    pub(super) start: u64,
    pub(super) count: u64,
}

impl fmt::Debug for TestClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.count)
    }
}

impl ClaimedBlocks for TestClaim {
    fn start(&self) -> FsBlock {
        FsBlock(self.start)
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn take_front(&mut self, count: u64) -> Self {
        let count = count.min(self.count);
        let front = Self { shared: Arc::clone(&self.shared), start: self.start, count };
        self.start += count;
        self.count -= count;
        front
    }
}

impl Drop for TestClaim {
    fn drop(&mut self) {
        // A file has taken the blocks, under the lock.
        if self.count == 0 {
            return;
        }
        let mut state = self.shared.lock();
        for block in self.start..self.start + self.count {
            let owner = &mut state.owners[block as usize];
            assert_eq!(*owner, Owner::Claimed, "a claim is given back once");
            *owner = Owner::Free;
        }
    }
}
