//! The images: ready ones in a folder, or made by the script beside `src/`, through the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The folder of images.
pub struct Images {
    folder: PathBuf,
    smoke: bool,
}

impl Images {
    /// Images in `folder`; small ones of their own for a smoke run, wherever it is.
    pub fn new(folder: Option<PathBuf>, smoke: bool) -> anyhow::Result<Self> {
        let default = || {
            let program = std::env::current_exe().context("the path of this program")?;
            let target = program.parent().and_then(Path::parent).context("the target folder")?;
            anyhow::Ok(target.join("bench-images"))
        };
        Ok(Self { folder: folder.map_or_else(default, Ok)?, smoke })
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A million inodes, nearly all of them empty files.
    pub fn million(&self) -> anyhow::Result<PathBuf> {
        self.image("million")
    }

    /// 65,000 files with 700 MB of contents.
    pub fn tree(&self) -> anyhow::Result<PathBuf> {
        self.image("tree65k")
    }

    /// The image of that name, in the page cache.
    fn image(&self, name: &str) -> anyhow::Result<PathBuf> {
        let name = if self.smoke { format!("{name}-smoke") } else { name.to_string() };
        let image = self.folder.join(format!("{name}.xfs"));
        if !image.exists() {
            eprintln!("making {} through the kernel (once)", image.display());
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

/// Reads a file, so that it lies in the page cache. Holes are read too: they are as good as free.
fn warm(image: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::open(image).with_context(|| image.display().to_string())?;
    std::io::copy(&mut file, &mut std::io::sink()).with_context(|| image.display().to_string())?;
    Ok(())
}
