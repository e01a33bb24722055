//! Images of whole trees, compared with other tools.
//!
//! | part | Xebec | peer |
//! |---|---|---|
//! | `directory` | `create --from DIR` | `mke2fs -d`; and, as root, `mkfs.xfs`, a loop mount, `tar x`, `umount` |
//! | `sync` | `sync` of a directory that did not change | `create --from` it |
//! | `empty` | `create --from` a tar archive of empty files | `mkfs.xfs`, a loop mount, `tar x`, `umount` |
//!
//! Each side ends with a flushed image, as `umount` and `mke2fs` flush, too. Sources are in the page cache.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use report::record::Target;

use crate::cleanup::{self, Registered};
use crate::measure::{MeasuredCommand, alternate, compare};
use crate::peers;
use crate::recorder::{Recorder, Row};

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// Path of `xebec`.
    pub xebec: PathBuf,
    /// Measured runs of each side.
    pub rounds: u32,
    /// Whether peers are left out.
    pub alone: bool,
    /// Whether the kernel can mount XFS, or why not.
    pub kernel: Result<(), String>,
    /// Source directory.
    pub source: PathBuf,
    /// Number of empty files in the archive.
    pub files: u32,
}

impl From<&crate::scale::Scale> for Scale {
    fn from(scale: &crate::scale::Scale) -> Self {
        let source = scale.pick("/usr/share", "/usr/share/doc", "/etc");
        Self {
            folder: scale.folder.clone(),
            xebec: scale.xebec.clone(),
            rounds: scale.rounds,
            alone: scale.alone,
            kernel: scale.kernel.clone(),
            source: source.into(),
            files: scale.pick(1_000_000, 100_000, 1_000),
        }
    }
}

impl Scale {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether an image can be made through the kernel, to compare with.
    fn has_kernel(&self, table: &mut Recorder<'_>) -> bool {
        let ready = peers::installed(&["mkfs.xfs", "tar"]).and_then(|()| self.kernel.clone());
        table.has_peer(KERNEL_NAME, self.alone, ready)
    }
}

const KERNEL_NAME: &str = "mkfs.xfs, a loop mount, tar x, umount";

/// Creates an image of 4 GiB through the kernel: image, mount point, archive.
const KERNEL: &str = r#"
set -e
truncate -s 4G "$1"
mkfs.xfs -q "$1"
mount -o loop,nouuid "$1" "$2"
tar -xf "$3" -C "$2" || { umount "$2"; exit 1; }
umount "$2"
"#;

/// Measures it.
pub fn directory(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let mut peak = Vec::new();
    let mut ours = || {
        let used = fresh(scale, |image| ours(scale, image, &scale.source))?;
        peak.push(used.1);
        Ok(used.0)
    };
    let mut ext4 = || {
        let run = |image: &Path| {
            MeasuredCommand::new(["mke2fs", "-q", "-t", "ext4", "-d"])
                .with(&scale.source)
                .with(image)
                .with("4G")
        };
        Ok(fresh(scale, run)?.0)
    };
    let has_ext4 = table.has_peer("mke2fs -d", scale.alone, peers::installed(&["mke2fs"]));
    let measured = compare(table, (scale.rounds, !has_ext4), &mut ours, &mut ext4)?;
    let task = format!("an image of {}", scale.source.display());
    add(table, &task, "mke2fs -d", measured, 0.1);
    if scale.has_kernel(table) {
        let archive = scale.file("source.tar");
        MeasuredCommand::new(["tar", "-C"])
            .with(&scale.source)
            .with("-cf")
            .with(&archive)
            .with(".")
            .measure()?;
        let mut kernel = || kernels(scale, &archive);
        let measured = alternate(table, scale.rounds, &mut ours, &mut kernel)?;
        add(table, &task, KERNEL_NAME, measured, 1.0 / 3.0);
        std::fs::remove_file(archive)?;
    }
    table.add(Row {
        task: format!("{task}: peak memory"),
        unit: "MiB",
        ours_is: "xebec create",
        other_is: "-",
        ours: peak,
        other: Vec::new(),
        target: Some(Target::AtMost(300.0)),
    });
    Ok(())
}

/// Measures it.
pub fn sync(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.file("synced.img");
    ours(scale, &image, &scale.source).measure()?;
    let sync = || {
        let run =
            MeasuredCommand::new([&scale.xebec]).with("sync").with(&scale.source).with(&image).with("-q");
        Ok(run.measure()?.wall_s)
    };
    let create = || Ok(fresh(scale, |image| ours(scale, image, &scale.source))?.0);
    let (first, second) = alternate(table, scale.rounds, sync, create)?;
    std::fs::remove_file(&image)?;
    table.add(Row {
        task: format!("{} once more, unchanged", scale.source.display()),
        unit: "s",
        ours_is: "xebec sync",
        other_is: "xebec create",
        ours: first,
        other: second,
        target: Some(Target::RatioAtMost(0.1)),
    });
    Ok(())
}

/// Measures it.
pub fn empty(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let archive = scale.file("empty.tar");
    write_empty(&archive, scale.files)?;
    let ours = || Ok(fresh(scale, |image| ours(scale, image, &archive))?.0);
    let kernel = || kernels(scale, &archive);
    let has_kernel = scale.has_kernel(table);
    let measured = compare(table, (scale.rounds, !has_kernel), ours, kernel)?;
    let task = format!("an image of a tar with {} empty files", scale.files);
    add(table, &task, KERNEL_NAME, measured, 0.25);
    std::fs::remove_file(archive)?;
    Ok(())
}

fn ours(scale: &Scale, image: &Path, source: &Path) -> MeasuredCommand {
    MeasuredCommand::new([&scale.xebec]).with("create").with(image).with("--from").with(source).with("-q")
}

/// Seconds until the kernel has created an image.
fn kernels(scale: &Scale, archive: &Path) -> anyhow::Result<f64> {
    let run = |image: &Path, mount: &Path| {
        MeasuredCommand::new(["bash", "-c", KERNEL, "kernel"]).with(image).with(mount).with(archive).measure()
    };
    let image = scale.file("created.img");
    let place = MountedByScript::new(&scale.folder, &image)?;
    Ok(run(&image, &place.mount)?.wall_s)
}

/// The mount point and the image of the script. Dropping this unmounts and removes both, wherever the script ended.
struct MountedByScript<'s> {
    mount: PathBuf,
    image: &'s Path,
    _registered: Registered,
}

impl<'s> MountedByScript<'s> {
    fn new(folder: &Path, image: &'s Path) -> anyhow::Result<Self> {
        let (mount, registered) = cleanup::new_mount_point(folder)?;
        Ok(Self { mount, image, _registered: registered })
    }
}

impl Drop for MountedByScript<'_> {
    fn drop(&mut self) {
        // Fails if nothing is mounted, as after a script that succeeded.
        let _ = fuse::mount::unmount(&self.mount, true);
        let _ = std::fs::remove_dir(&self.mount);
        let _ = std::fs::remove_file(self.image);
    }
}

/// Runs a command that creates an image; returns seconds and peak memory in MiB.
fn fresh(scale: &Scale, run: impl FnOnce(&Path) -> MeasuredCommand) -> anyhow::Result<(f64, f64)> {
    let image = scale.file("created.img");
    let used = run(&image).measure()?;
    std::fs::remove_file(&image)?;
    Ok((used.wall_s, used.rss_peak_bytes as f64 / f64::from(1 << 20)))
}

fn add(
    table: &mut Recorder<'_>,
    task: &str,
    peer: &'static str,
    (ours, other): (Vec<f64>, Vec<f64>),
    ratio_max: f64,
) {
    let target = (!other.is_empty()).then_some(Target::RatioAtMost(ratio_max));
    table.add(Row {
        task: task.into(),
        unit: "s",
        ours_is: "xebec create",
        other_is: peer,
        ours,
        other,
        target,
    });
}

/// Writes an archive of empty files, a thousand per directory.
fn write_empty(path: &Path, files: u32) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(BufWriter::new(File::create(path)?));
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    for file in 0..files {
        let name = format!("directory {:04}/file {file:07}", file / 1000);
        archive.append_data(&mut header, name, std::io::empty())?;
    }
    archive.into_inner()?.into_inner()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script was killed between `mount` and `umount`.
    #[test]
    fn a_script_that_ends_early_leaves_no_mount() {
        let Some(()) = needs::met(needs::mounting()) else { return };
        let folder = tempfile::tempdir().expect("a directory");
        let image = folder.path().join("image");
        std::fs::write(&image, "").expect("an image");
        let place = MountedByScript::new(folder.path(), &image).expect("a mount point");
        let script =
            MeasuredCommand::new(["bash", "-c", "mount -t tmpfs tmpfs \"$1\"; kill -9 $$", "script"]);
        assert!(script.with(&place.mount).output().is_err(), "it is killed");
        std::fs::write(place.mount.join("file"), "").expect("it is mounted");
        drop(place);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 0);
    }
}
