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

use remote::RemoteUrl;

use crate::commands::mkfs::wrong;

/// The URL that an operand must be. `what` the command is for, such as "snapshots are".
fn expect_url<'p>(path: &'p Path, what: &str) -> anyhow::Result<RemoteUrl<'p>> {
    RemoteUrl::new(path).ok_or_else(|| {
        wrong(format!(
            "{}: {what} for volumes that URLs name, such as s3://BUCKET/PATH or rbd://POOL/IMAGE; copy an image file \
             with `xebec clone`",
            path.display()
        ))
    })
}
