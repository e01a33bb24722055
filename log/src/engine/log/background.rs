//! The thread that pushes checkpoints which became large, or old.

use std::time::Duration;

use super::shared::Shared;

impl Shared {
    /// What the thread does until it is stopped.
    pub fn background_loop(&self, interval: Duration) {
        let mut seen = 0;
        while self.background.wait(interval) {
            if self.is_shut_down() {
                continue;
            }
            let commits = self.cil.commits();
            let current = self.cil.progress.current();
            // A push that fails has shut the volume down.
            let _ = self.push(current);
            if commits == seen && !self.ail.is_empty() {
                self.want_all();
            }
            seen = commits;
        }
    }
}
