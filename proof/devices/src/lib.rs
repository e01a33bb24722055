//! Devices for tests and measurements. Each forwards operations to a base device.
//!
//! | file | subject |
//! |---|---|
//! | `fault` | [`FaultDevice`]: injected errors, torn writes, silent corruption |
//! | `pause` | [`PauseDevice`]: pauses selected operations |
//! | `record` | [`RecordDevice`]: records writes, to construct the states after a power cut |
#![forbid(unsafe_code)]

mod fault;
mod pause;
mod record;

pub use fault::{Effect, Fault, FaultDevice, When};
pub use pause::{Pause, PauseDevice};
pub use record::{Event, PowerCut, RecordDevice, Recording};
