//! Commands for volumes that URLs name.
//!
//! | part | commands |
//! |---|---|
//! | `snapshot` | `snapshot create`, `snapshot list`, `snapshot remove` |
//! | `objects` | `objects audit`, `objects clean`, `objects collect`, `objects unpin` |
//! | `images` | `push`, `pull` |

pub mod images;
pub mod objects;
pub mod snapshot;

use std::path::Path;

use anyhow::Context as _;
use remote::{NewRemoteVolume, RemoteUrl};

use crate::commands::mkfs::wrong;

/// The URL that an operand must be. `what` the command is for, such as "snapshots are".
fn expect_url<'p>(path: &'p Path, what: &str) -> anyhow::Result<RemoteUrl<'p>> {
    RemoteUrl::new(path).ok_or_else(|| {
        wrong(format!(
            "{}: this is not a URL, and {what} for volumes that URLs name, such as s3://BUCKET/PATH or \
             rbd://POOL/IMAGE",
            path.display()
        ))
    })
}

/// Lets a volume exist that was made, or removes what was stored of it if that failed.
pub fn complete<T>(new: NewRemoteVolume, made: anyhow::Result<T>) -> anyhow::Result<T> {
    match made {
        Ok(made) => {
            new.finish().context("the volume may be incomplete: its objects were not removed")?;
            Ok(made)
        }
        Err(error) => Err(match new.abandon() {
            Ok(()) => error,
            Err(left) => error.context(format!("what was stored could not be removed ({left})")),
        }),
    }
}
