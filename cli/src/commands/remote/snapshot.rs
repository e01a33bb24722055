//! `xebec snapshot`: snapshots of volumes on object storage and in a Ceph cluster.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use format::timestamp::Timestamp;
use remote::RemoteSnapshot;
use serde_json::{Value, json};

use super::expect_url;
use crate::args::Global;
use crate::json;
use crate::names::printable;
use crate::output::{Stdout, exit_code};
use crate::sizes::with_unit;
use crate::times::TimeFormatter;
use crate::urls::shown;

/// Arguments of `snapshot`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A snapshot is a name for a state of a volume. It takes no space at first, and keeps what the \
    volume overwrites later. It is read as URL@NAME by all commands, and cannot be changed.\n\n\
    A snapshot contains all that was synced before, also if another program has the volume open: that program goes \
    on, and the snapshot is what a power cut at this moment would have left. Its log is replayed in memory when it is \
    read. Of a mounted volume, it has what fsync(2) has made durable: Linux passes no sync(2) to a FUSE server. For a \
    state in which applications have finished their work, stop them before, or unmount the volume.\n\n\
    Examples:\n  \
    xebec snapshot create s3://bucket/home@monday\n  \
    xebec snapshot list s3://bucket/home\n  \
    xebec ls s3://bucket/home@monday:/\n  \
    xebec clone s3://bucket/home@monday s3://bucket/test\n  \
    xebec snapshot remove s3://bucket/home@monday\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error. See also docs/object-storage.md."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

/// The subcommands of `snapshot`.
#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Make a snapshot
    #[command(after_help = "Examples:\n  xebec snapshot create s3://bucket/home@monday")]
    Create(Named),
    /// List the snapshots of a volume
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  xebec snapshot list s3://bucket/home\n  \
        xebec snapshot list --json s3://bucket/home | jq -r '.snapshots[].name'"
    )]
    List(Listed),
    /// Remove a snapshot
    #[command(
        visible_alias = "rm",
        after_help = "What only the snapshot used is deleted by the next program that changes the volume, an hour \
        later at the earliest; see `xebec objects collect`.\n\n\
        Examples:\n  xebec snapshot remove s3://bucket/home@monday"
    )]
    Remove(Named),
}

/// A snapshot.
#[derive(Clone, Debug, Args)]
struct Named {
    /// The snapshot.
    #[arg(value_name = "URL@NAME")]
    url: PathBuf,
}

/// A volume.
#[derive(Clone, Debug, Args)]
struct Listed {
    /// The volume.
    url: PathBuf,
}

impl Arguments {
    /// The volume that messages name.
    pub fn image(&self) -> &Path {
        match &self.action {
            Action::Create(Named { url }) | Action::Remove(Named { url }) | Action::List(Listed { url }) => {
                url
            }
        }
    }
}

/// Runs `snapshot`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let path = arguments.image();
    let (url, options) = (expect_url(path, "snapshots are")?, global.remote(false));
    match &arguments.action {
        Action::Create(_) => url.make_snapshot(&options)?,
        Action::Remove(_) => url.remove_snapshot(&options)?,
        Action::List(_) => list(&url.snapshots(&options)?, path, global)?,
    }
    Ok(exit_code::OK)
}

/// Shows snapshots: one line for each, or a document.
fn list(snapshots: &[RemoteSnapshot], path: &Path, global: &Global) -> anyhow::Result<()> {
    if global.json {
        let snapshots: Vec<Value> = snapshots.iter().map(document).collect();
        return json::write("snapshot", &shown(path), json!({ "snapshots": snapshots }));
    }
    let mut times = TimeFormatter::new();
    let mut out = Stdout::buffered();
    for RemoteSnapshot { name, made, size } in snapshots {
        let made = made.map_or("-".into(), |made| {
            times.full(Timestamp { seconds: made.as_secs() as i64, nanoseconds: 0 })
        });
        let name = printable(name.as_bytes());
        writeln!(out, "{made:<35}  {:>10}  {name}", with_unit(*size))?;
    }
    Ok(out.flush()?)
}

fn document(snapshot: &RemoteSnapshot) -> Value {
    let RemoteSnapshot { name, made, size } = snapshot;
    json::without_nulls(json!({
        "name": name,
        "time": made.map(|made| format!("{}.000000000", made.as_secs())),
        "size": size,
    }))
}
