//! Images of the benchmarks of commands. Missing ones are made: by the kernel as root, and by Xebec otherwise.

use std::path::{Path, PathBuf};

use anyhow::Context;
use xebec::Options;

use crate::bench_volume::{BenchVolume, layout};
use crate::scale::Scale;

/// What an image contains.
struct Shape {
    name: &'static str,
    bytes: u64,
    directories: u32,
    /// Files of a directory.
    files: u32,
    /// Bytes of all files together, about.
    contents: u64,
}

/// Many empty files.
pub fn many(scale: &Scale) -> anyhow::Result<PathBuf> {
    let (directories, name) = scale.pick((2000, "million"), (200, "many-quick"), (40, "many-smoke"));
    Shape { name, bytes: 4 << 30, directories, files: 500, contents: 0 }.image(scale)
}

/// A tree with contents, of sizes as in an installed system.
pub fn tree(scale: &Scale) -> anyhow::Result<PathBuf> {
    let (directories, contents, name) = scale.pick(
        (1300, 700_000_000, "tree"),
        (200, 100_000_000, "tree-quick"),
        (20, 10_000_000, "tree-smoke"),
    );
    Shape { name, bytes: 4 << 30, directories, files: 50, contents }.image(scale)
}

impl Shape {
    /// The path of the image, after reading it into the page cache.
    fn image(&self, scale: &Scale) -> anyhow::Result<PathBuf> {
        let image = scale.folder.join(format!("{}.xfs", self.name));
        if !image.exists() {
            let new = image.with_extension("new");
            self.make(&new)?;
            std::fs::rename(&new, &image).with_context(|| image.display().to_string())?;
        }
        warm(&image)?;
        Ok(image)
    }

    fn make(&self, image: &Path) -> anyhow::Result<()> {
        let layout = layout(self.bytes, 64 << 20);
        let volume = match rustix::process::geteuid().is_root() {
            true => BenchVolume::kernel(image, &layout)?,
            false => BenchVolume::xebec(image, &layout, Options::default())?,
        };
        let files = u64::from(self.directories) * u64::from(self.files);
        let bytes: Vec<u8> =
            (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for directory in 0..self.directories {
            let dir = volume.mkdir(&format!("directory{directory:04}"))?;
            for file in 0..self.files {
                let name = format!("file{file:04}");
                if self.contents == 0 {
                    volume.create(&dir, &name)?;
                    continue;
                }
                // Nearly all files are small; the large ones have most of the bytes.
                let share = self.contents / files;
                let log = (directory * self.files + file).wrapping_mul(2_654_435_761) >> 29;
                let length = (share >> 5 << log).min(bytes.len() as u64) as usize;
                volume.file(&dir, &name, true)?.write(bytes.get(..length).unwrap_or_default(), 0)?;
            }
        }
        volume.unmount()
    }
}

/// Reads a file into the page cache, with its holes, which cost little.
fn warm(image: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::open(image).with_context(|| image.display().to_string())?;
    std::io::copy(&mut file, &mut std::io::sink()).with_context(|| image.display().to_string())?;
    Ok(())
}
