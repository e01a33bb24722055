//! Why the journal stopped.

use std::fmt;

use block::DeviceError;

/// Why a part of the journal cannot continue. The caller shuts the volume down, if it is not shut down already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The volume is shut down already; the journal knows the cause.
    Already,
    /// The cause of a new shutdown.
    Because(String),
}

impl From<DeviceError> for Shutdown {
    fn from(error: DeviceError) -> Self {
        Self::Because(error.to_string())
    }
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Already => f.write_str("the volume was shut down"),
            Self::Because(why) => f.write_str(why),
        }
    }
}
