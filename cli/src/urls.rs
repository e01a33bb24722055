//! Volumes that URLs name, where a command line names files.

use std::path::Path;

use remote::RemoteUrl;

use crate::commands::mkfs::wrong;

/// An image for messages and documents: as on the command line, but without the options of a URL, which may contain
/// keys.
pub fn shown(image: &Path) -> String {
    RemoteUrl::new(image).map_or_else(|| image.display().to_string(), |url| url.to_string())
}

/// Refuses a URL as an operand of a command that uses files only. `command` is its name and what it does, such as
/// "create writes".
pub fn expect_file(path: &Path, command: &str) -> anyhow::Result<()> {
    match RemoteUrl::new(path) {
        Some(url) => {
            Err(wrong(format!("{url}: {command} files only: create a volume with mkfs, then use sync")))
        }
        None => Ok(()),
    }
}

/// Refuses a URL as the device of an external log.
pub fn expect_local_log(path: &Path) -> anyhow::Result<()> {
    match RemoteUrl::new(path) {
        Some(url) => {
            Err(wrong(format!("{url}: an external log must be in a file or on a device of this machine")))
        }
        None => Ok(()),
    }
}
