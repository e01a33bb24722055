//! `xebec label`, `xebec uuid`, `xebec features`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use format::superblock::RawSuperblock;
use format::uuid::{self, UuidText};
use serde_json::json;
use xebec::features::{self, Feature};
use xebec::identity::{NewUuid, set_uuid};

use crate::args::Global;
use crate::commands::edit::unmount;
use crate::geometry;
use crate::json;
use crate::names::printable;
use crate::open::{self, ForChanges};
use crate::output::{Stdout, exit_code};
use crate::urls::shown;

/// Arguments of `label`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Without NEW, the label is shown. A label has at most 12 bytes.\n\n\
    Examples:\n  \
    xebec label disk.xfs\n  \
    xebec label disk.xfs scratch\n  \
    xebec label disk.xfs ''        # clears the label\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error.")]
pub struct Label {
    /// The image.
    pub image: PathBuf,
    /// New label; an empty one clears it.
    pub new: Option<OsString>,
}

/// Arguments of `uuid`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without NEW, the UUID is shown. Metadata keeps its original UUID; a volume with a different one \
    has the feature meta_uuid, supported since Linux 4.3. `restore` sets the UUID of the metadata again.\n\n\
    Examples:\n  \
    xebec uuid disk.xfs\n  \
    xebec uuid disk.xfs generate\n  \
    xebec uuid disk.xfs 01234567-89ab-4def-8123-456789abcdef\n  \
    xebec uuid disk.xfs restore\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error."
)]
pub struct Uuid {
    /// The image.
    pub image: PathBuf,
    /// New UUID; `generate` for a random one; `restore` for that of the metadata.
    #[arg(value_parser = parse_uuid)]
    pub new: Option<NewUuid>,
}

/// Arguments of `features`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without --add, features are shown. Features cannot be removed. `finobt` and `rmapbt` can only be \
    enabled by `xebec mkfs`.\n\n\
    Examples:\n  \
    xebec features disk.xfs\n  \
    xebec features disk.xfs --add bigtime,nrext64\n  \
    xebec features disk.xfs --add reflink\n\n\
    Exit codes: 0 success, or nothing to add; 1 failure; 2 usage error."
)]
pub struct Features {
    /// The image.
    pub image: PathBuf,
    /// Features to add, separated by commas.
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    pub add: Vec<FeatureArgument>,
}

/// A feature on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FeatureArgument {
    /// Timestamps up to the year 2486 (Linux 5.10).
    Bigtime,
    /// 64-bit extent counters (Linux 5.19).
    Nrext64,
    /// Exchange of file ranges (Linux 6.10).
    Exchange,
    /// Block counters of the inode btrees, for faster mounts (Linux 5.10).
    Inobtcount,
    /// Shared file extents (Linux 4.9).
    Reflink,
}

impl From<FeatureArgument> for Feature {
    fn from(added: FeatureArgument) -> Self {
        match added {
            FeatureArgument::Bigtime => Self::Bigtime,
            FeatureArgument::Nrext64 => Self::Nrext64,
            FeatureArgument::Exchange => Self::Exchange,
            FeatureArgument::Inobtcount => Self::Inobtcount,
            FeatureArgument::Reflink => Self::Reflink,
        }
    }
}

fn parse_uuid(text: &str) -> Result<NewUuid, String> {
    match text {
        "generate" => Ok(NewUuid::Random),
        "restore" => Ok(NewUuid::Restore),
        _ => uuid::parse(text)
            .map(NewUuid::Set)
            .ok_or_else(|| format!("`{text}` is not a UUID, `generate` or `restore`")),
    }
}

/// Shows one property as text, or all of them as JSON.
fn show(
    command: &'static str,
    image: &Path,
    raw: &RawSuperblock,
    text: &[u8],
    changed: bool,
    global: &Global,
) -> anyhow::Result<u8> {
    if global.json {
        let (key, label) = json::name("label", raw.label());
        let document = json!({
            (key): label,
            "uuid": raw.uuid_text().to_string(),
            "meta_uuid": UuidText(raw.stamp_uuid()).to_string(),
            "features": geometry::feature_names(raw),
            "changed": changed,
        });
        json::write(command, &shown(image), document)?;
    } else {
        let mut out = Stdout::buffered();
        writeln!(out, "{}", printable(text))?;
        out.flush()?;
    }
    Ok(exit_code::OK)
}

/// Reads the superblock.
fn superblock(image: &Path, global: &Global) -> anyhow::Result<RawSuperblock> {
    Ok(xebec::image::superblock(&open::device(image, global)?.device)?.raw)
}

/// Runs `label`.
pub fn label(arguments: &Label, global: &Global) -> anyhow::Result<u8> {
    if let Some(new) = &arguments.new {
        let opened = open::writable(&arguments.image, global)?;
        let done = opened.volume.set_label(new.as_bytes());
        unmount(opened.volume)?;
        done?;
    }
    let raw = superblock(&arguments.image, global)?;
    show("label", &arguments.image, &raw, raw.label(), arguments.new.is_some(), global)
}

/// Runs `uuid`.
pub fn uuid(arguments: &Uuid, global: &Global) -> anyhow::Result<u8> {
    if let Some(new) = arguments.new {
        let ForChanges { device, options, .. } = open::for_changes(&arguments.image, global)?;
        set_uuid(&device, &options, new)?;
    }
    let raw = superblock(&arguments.image, global)?;
    let text = raw.uuid_text().to_string();
    show("uuid", &arguments.image, &raw, text.as_bytes(), arguments.new.is_some(), global)
}

/// Runs `features`.
pub fn features(arguments: &Features, global: &Global) -> anyhow::Result<u8> {
    let mut changed = false;
    if !arguments.add.is_empty() {
        let ForChanges { device, options, messages } = open::for_changes(&arguments.image, global)?;
        let wanted: Vec<Feature> = arguments.add.iter().map(|added| (*added).into()).collect();
        let added = features::add(&device, &options, &wanted)?;
        for feature in wanted.iter().filter(|feature| !added.contains(feature)) {
            messages.note(format_args!("{} is already enabled", feature.name()));
        }
        changed = !added.is_empty();
    }
    let raw = superblock(&arguments.image, global)?;
    show(
        "features",
        &arguments.image,
        &raw,
        geometry::feature_names(&raw).join(" ").as_bytes(),
        changed,
        global,
    )
}
