//! The checker as judge of a volume in memory.

use std::sync::{Arc, Mutex};

use block::MemoryDevice;

/// Keeps what the checker finds.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

/// No finding of the checker.
#[track_caller]
pub fn judge(device: &Arc<MemoryDevice>) {
    judge_device(&**device);
}

/// The same on any device.
#[track_caller]
pub fn judge_device(device: &dyn block::Device) {
    let findings = Findings::default();
    check::check(device, &check::Options { threads: 1, ..check::Options::default() }, &findings).unwrap();
    let findings = findings.0.into_inner().unwrap();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
