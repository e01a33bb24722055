//! Images of the benchmarks. The script `make-image` creates missing ones through the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The directory of the images.
pub struct Images {
    folder: PathBuf,
    smoke: bool,
}

impl Images {
    /// Images in `folder`, or in Cargo's target directory. A smoke test uses small images with names of their own.
    pub fn new(folder: Option<PathBuf>, smoke: bool) -> anyhow::Result<Self> {
        let default = || {
            let program = std::env::current_exe().context("the path of this program")?;
            let target = program.parent().and_then(Path::parent).context("the target folder")?;
            anyhow::Ok(target.join("bench-images"))
        };
        Ok(Self { folder: folder.map_or_else(default, Ok)?, smoke })
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One million inodes, nearly all of them empty files.
    pub fn million(&self) -> anyhow::Result<PathBuf> {
        self.image("million")
    }

    /// 65,000 files with 700 MB of contents.
    pub fn tree(&self) -> anyhow::Result<PathBuf> {
        self.image("tree65k")
    }

    /// Returns the path of an image after reading it into the page cache.
    fn image(&self, name: &str) -> anyhow::Result<PathBuf> {
        let name = if self.smoke { format!("{name}-smoke") } else { name.to_string() };
        let image = self.folder.join(format!("{name}.xfs"));
        if !image.exists() {
            eprintln!("creating {} through the kernel (once)", image.display());
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/make-image");
            let status = Command::new(script).arg(&image).arg(&name).status().context(script)?;
            if !status.success() {
                bail!("{script} {name}: {status}");
            }
        }
        warm(&image)?;
        Ok(image)
    }
}

/// Reads a file into the page cache, with its holes, which cost little.
fn warm(image: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::open(image).with_context(|| image.display().to_string())?;
    std::io::copy(&mut file, &mut std::io::sink()).with_context(|| image.display().to_string())?;
    Ok(())
}
