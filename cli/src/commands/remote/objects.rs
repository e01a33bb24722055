//! `xebec objects`: the objects of a volume on object storage.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use remote::{Audit, Cleaned, RequestCounts};
use serde_json::{Value, json};

use super::expect_url;
use crate::args::Global;
use crate::json;
use crate::output::{Messages, Stdout, counted};
use crate::progress::Spinner;
use crate::sizes::with_unit;
use crate::urls::shown;

/// Arguments of `objects`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A volume on object storage deletes what it does not need any more by itself. These commands examine \
    its objects, and do at once what it does in the course of time. `xebec info URL` shows what it has stored.\n\n\
    Examples:\n  \
    xebec objects audit s3://bucket/home\n  \
    xebec objects clean s3://bucket/home\n  \
    xebec objects collect s3://bucket/home\n  \
    xebec objects unpin s3://bucket/home s3://bucket/test\n\n\
    Exit codes: 0 success; 1 failure, or `audit` misses objects; 2 usage error. See also docs/object-storage.md."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

/// The subcommands of `objects`.
#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Compare the objects of a volume with what it needs
    #[command(
        after_help = "Lists all objects, a thousand with each request, and reads the header of each segment \
        that is not needed. Nothing is changed, and another program \
        may have the volume open. `xebec check` checks the file system in it.\n\n\
        Examples:\n  xebec objects audit s3://bucket/home\n  \
        xebec objects audit --json s3://bucket/home | jq .orphan_bytes\n\n\
        Exit codes: 0 all that is needed is there; 1 objects are missing, or failure; 2 usage error."
    )]
    Audit(Volume),
    /// Free the space of overwritten blocks
    #[command(
        after_help = "Writes live blocks again that are in segments of mostly overwritten ones, until at least 60 % of \
        what is stored is live; then as `collect`. The volume must not be open.\n\n\
        Examples:\n  xebec objects clean s3://bucket/home"
    )]
    Clean(Volume),
    /// Delete objects that are not needed any more
    #[command(
        after_help = "Deletes objects that the volume has stopped using an hour ago or earlier, by the clock of the \
        store, and what crashes have left. The volume must not be open.\n\n\
        Examples:\n  xebec objects collect s3://bucket/home"
    )]
    Collect(Volume),
    /// Release the objects kept for a deleted clone
    #[command(
        after_help = "A volume keeps what its clones share with it. If all objects of a clone were deleted, the volume \
        cannot know that. `xebec info URL` lists the clones.\n\n\
        Examples:\n  xebec objects unpin s3://bucket/home s3://bucket/test"
    )]
    Unpin(Unpin),
}

/// A volume.
#[derive(Clone, Debug, Args)]
struct Volume {
    /// The volume.
    url: PathBuf,
}

/// Arguments of `objects unpin`.
#[derive(Clone, Debug, Args)]
struct Unpin {
    /// The volume.
    url: PathBuf,
    /// The clone that is gone, as `xebec info` shows it.
    clone: PathBuf,
}

impl Arguments {
    /// The volume that messages name.
    pub fn image(&self) -> &Path {
        match &self.action {
            Action::Audit(Volume { url })
            | Action::Clean(Volume { url })
            | Action::Collect(Volume { url }) => url,
            Action::Unpin(Unpin { url, .. }) => url,
        }
    }
}

/// Runs `objects`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let path = arguments.image();
    let url = expect_url(path, "these commands are")?;
    let messages = Messages::new(global, shown(path));
    match &arguments.action {
        Action::Audit(_) => {
            let audit = url.audit(&global.remote(false))?;
            show_audit(&audit, &messages, global)?;
        }
        Action::Clean(_) | Action::Collect(_) => {
            let moves = matches!(arguments.action, Action::Clean(_));
            let spinner = Spinner::new(global, "cleaning");
            let cleaned = url.clean(moves, &global.remote(true), &mut |segments| {
                spinner.show(&format!("{} cleaned", counted(segments, "segment")));
            });
            spinner.clear();
            show_cleaned(&cleaned?, moves, &messages, global)?;
        }
        Action::Unpin(Unpin { clone, .. }) => {
            url.unpin(&expect_url(clone, "clones are")?, &global.remote(false))?;
        }
    }
    Ok(messages.finish())
}

fn show_audit(audit: &Audit, messages: &Messages, global: &Global) -> anyhow::Result<()> {
    let Audit { objects, bytes, missing, retired, orphans, orphan_bytes, fences, .. } = audit;
    for key in missing {
        messages.fail(format_args!("{key}: this object is needed, and missing: the volume is damaged"));
    }
    if global.json {
        let document = json!({
            "objects": objects,
            "bytes": bytes,
            "retired": retired,
            "fences": fences,
            "orphans": orphans,
            "orphan_bytes": orphan_bytes,
            "missing": missing,
        });
        return json::write("objects", messages.image(), document);
    }
    let mut out = Stdout::buffered();
    writeln!(out, "objects  ={objects}, {}", with_unit(*bytes))?;
    writeln!(out, "retired  ={retired}, to be deleted after the grace period")?;
    writeln!(out, "orphans  ={}, {}", orphans.len(), with_unit(*orphan_bytes))?;
    writeln!(out, "fences   ={fences}")?;
    writeln!(out, "missing  ={}", missing.len())?;
    Ok(out.flush()?)
}

fn show_cleaned(cleaned: &Cleaned, moves: bool, messages: &Messages, global: &Global) -> anyhow::Result<()> {
    let Cleaned { segments, deleted, retired, requests, .. } = cleaned;
    if global.json {
        let mut document = json!({
            "deleted": deleted,
            "retired": retired,
            "requests": requests_json(requests),
        });
        if let (true, Value::Object(fields)) = (moves, &mut document) {
            fields.shift_insert(0, "segments".into(), json!(segments));
        }
        return json::write("objects", messages.image(), document);
    }
    let mut out = Stdout::buffered();
    if moves {
        writeln!(out, "cleaned  ={}", counted(*segments, "segment"))?;
    }
    writeln!(out, "deleted  ={}", counted(*deleted, "object"))?;
    writeln!(out, "retired  ={retired}, to be deleted after the grace period")?;
    Ok(out.flush()?)
}

/// Numbers of requests, in the order of docs/json.md.
pub fn requests_json(requests: &RequestCounts) -> Value {
    let RequestCounts { gets, puts, lists, deletes, received, sent } = requests;
    json!({
        "gets": gets,
        "puts": puts,
        "lists": lists,
        "deletes": deletes,
        "received_bytes": received,
        "sent_bytes": sent,
    })
}
