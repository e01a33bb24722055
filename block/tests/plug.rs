//! Merged writes on a device that fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use devices::{Fault, FaultDevice, When};
use xebec_block::{Device, MemoryDevice, Operation, Plug, PlugCounters, WriteRequest};

#[test]
fn only_one_request_of_a_merged_write_fails() {
    let fault = Fault::io_error(Operation::Write, When::Always).within(8192..8193);
    let device = FaultDevice::new(Arc::new(MemoryDevice::new(1 << 20)), vec![fault]);
    let (counters, block) = (PlugCounters::default(), vec![9; 4096]);
    let mut plug = Plug::new();
    for n in 0..4 {
        plug.push(WriteRequest::new(n * 4096, &block));
    }
    let failed: Vec<_> = plug.finish(&device, &counters).into_iter().map(|(index, _)| index).collect();
    assert_eq!(failed, [2]);
    let mut bytes = vec![0; 4 * 4096];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..8192].iter().chain(&bytes[12288..]).all(|byte| *byte == 9));
}
