//! Images of whole trees, in one command, beside what people use today.
//!
//! | part | Xebec | beside it |
//! |---|---|---|
//! | `directory` | `create --from DIR` | `mke2fs -d`; and, as root, `mkfs.xfs`, a loop mount, `tar x`, `umount` |
//! | `sync` | `sync` of a directory that did not change | `create --from` it |
//! | `empty` | `create --from` a tar of empty files | the same by way of the kernel |
//!
//! Every side ends with a stable image: `umount` and `mke2fs` flush theirs, too. Sources are in the page cache.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::measure::{Run, turns};
use crate::table::{Part, Row, Table, Target};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Where the images are made.
    pub folder: PathBuf,
    /// The program.
    pub xebec: PathBuf,
    /// Measured turns of each side.
    pub rounds: u32,
    /// The directory.
    pub source: PathBuf,
    /// Empty files in the archive.
    pub files: u32,
}

impl Scale {
    /// A real measurement, or one that only shows that the harness works.
    pub fn new(folder: PathBuf, xebec: PathBuf, rounds: u32, smoke: bool) -> Self {
        let (source, files) = if smoke { ("/etc", 1_000) } else { ("/usr/share", 1_000_000) };
        Self { folder, xebec, rounds, source: source.into(), files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs the parts that have `only` in their names.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    let parts: [(&str, Part<Scale>); 3] = [("directory", directory), ("sync", sync), ("empty", empty)];
    table.run(scale, &parts, only)
}

/// The kernel's way: a volume of 4 GiB, mounted, filled by tar, unmounted.
const KERNEL: &str = r#"
truncate -s 4G "$1" && mkfs.xfs -q "$1" && mount -o loop,nouuid "$1" "$2" && tar -xf "$3" -C "$2"
umount "$2"
"#;

fn directory(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let archive = scale.file("source.tar");
    Run::new(["tar", "-C"]).with(&scale.source).with("-cf").with(&archive).with(".").measure()?;
    let mut peak = Vec::new();
    let mut ours = || {
        let used = fresh(scale, |image| ours(scale, image, &scale.source))?;
        peak.push(used.1);
        Ok(used.0)
    };
    let mut ext4 = || {
        let run = |image: &Path| {
            Run::new(["mke2fs", "-q", "-t", "ext4", "-d"]).with(&scale.source).with(image).with("4G")
        };
        Ok(fresh(scale, run)?.0)
    };
    let (first, second) = turns(scale.rounds, &mut ours, &mut ext4)?;
    let task = format!("an image of {}", scale.source.display());
    add(table, &task, "mke2fs -d", (first, second), 0.1);
    let mut kernel = || Ok(fresh(scale, |image| kernels(scale, image, &archive))?.0);
    let (first, second) = turns(scale.rounds, &mut ours, &mut kernel)?;
    add(table, &task, "mkfs.xfs, a loop mount, tar x, umount", (first, second), 1.0 / 3.0);
    std::fs::remove_file(archive)?;
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

fn sync(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let image = scale.file("synced.img");
    ours(scale, &image, &scale.source).measure()?;
    let sync = || {
        let run = Run::new([&scale.xebec]).with("sync").with(&scale.source).with(&image).with("-q");
        Ok(run.measure()?.wall_s)
    };
    let create = || Ok(fresh(scale, |image| ours(scale, image, &scale.source))?.0);
    let (first, second) = turns(scale.rounds, sync, create)?;
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

fn empty(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let archive = scale.file("empty.tar");
    write_empty(&archive, scale.files)?;
    let ours = || Ok(fresh(scale, |image| ours(scale, image, &archive))?.0);
    let kernel = || Ok(fresh(scale, |image| kernels(scale, image, &archive))?.0);
    let measured = turns(scale.rounds, ours, kernel)?;
    let task = format!("an image of a tar with {} empty files", scale.files);
    add(table, &task, "mkfs.xfs, a loop mount, tar x, umount", measured, 0.25);
    std::fs::remove_file(archive)?;
    Ok(())
}

fn ours(scale: &Scale, image: &Path, source: &Path) -> Run {
    Run::new([&scale.xebec]).with("create").with(image).with("--from").with(source).with("-q")
}

fn kernels(scale: &Scale, image: &Path, archive: &Path) -> Run {
    let mount = scale.file("mnt");
    // It is there already after the first turn.
    let _ = std::fs::create_dir(&mount);
    Run::new(["bash", "-c", KERNEL, "kernel"]).with(image).with(mount).with(archive)
}

/// Seconds, and MiB of memory, of a run that makes an image where there is none.
fn fresh(scale: &Scale, run: impl FnOnce(&Path) -> Run) -> anyhow::Result<(f64, f64)> {
    let image = scale.file("created.img");
    let used = run(&image).measure()?;
    std::fs::remove_file(&image)?;
    Ok((used.wall_s, used.rss_peak_bytes as f64 / f64::from(1 << 20)))
}

fn add(table: &mut Table, task: &str, peer: &'static str, (ours, other): (Vec<f64>, Vec<f64>), most: f64) {
    let target = Some(Target::RatioAtMost(most));
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

/// Empty files, a thousand a directory.
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
