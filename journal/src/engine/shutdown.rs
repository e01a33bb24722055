//! Why the journal cannot go on.

use std::fmt;

use block::DeviceError;

/// What stops a part of the journal. Whoever meets it shuts the volume down, or finds it shut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The volume was shut down; the journal knows why.
    Already,
    /// A reason to shut it down.
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
