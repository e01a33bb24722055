//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to its maximum, to write very deep trees: each directory on the path to a file is
/// open.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, very deep trees fail with their own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
