//! A cache of build results in one image: each result appears completely or not at all, results that are equal share
//! their blocks, and the oldest are removed first.
//!
//! `cargo run --example build_cache -- [IMAGE]`

use std::path::Path;

use xebec::{Dir, ImageBuilder, OpenOptions, SetMetadata, Time, Volume};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Results by the hash of what they were built from.
struct Cache<'v> {
    results: Dir<'v>,
}

impl<'v> Cache<'v> {
    fn open(volume: &'v Volume) -> Result<Self> {
        let root = Dir::root(volume)?;
        root.create_dir_all("results")?;
        Ok(Self { results: root.open_dir("results")? })
    }

    /// Adds a result. The file has no name until it is complete, so no reader sees a part of it, and an interrupted
    /// build leaves nothing behind.
    fn add(&self, key: &str, contents: &[u8]) -> Result<()> {
        let file = self.results.create_unnamed(OpenOptions::new().write(true).mode(0o444))?;
        file.write_all_at(contents, 0)?;
        file.sync_all()?;
        match self.results.link_file(&file, key) {
            // Another builder was faster.
            Err(error) if error.errno() == xebec::errno::EEXIST => Ok(()),
            linked => Ok(linked?),
        }
    }

    /// A copy of a result, which shares its blocks.
    fn copy_to(&self, key: &str, target: &Dir<'_>, path: &str) -> Result<bool> {
        match self.results.copy(key, target, path) {
            Ok(_) => {
                // For `evict`: the result was used.
                self.results.set_metadata(key, &SetMetadata { touched: true, ..SetMetadata::default() })?;
                Ok(true)
            }
            Err(error) if error.errno() == xebec::errno::ENOENT => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes results, those first that were not used for the longest time, until at most `limit` bytes are left.
    fn evict(&self, limit: u64) -> Result<usize> {
        let mut results: Vec<(Time, u64, Vec<u8>)> = Vec::new();
        for entry in self.results.entries()?.with_metadata() {
            let entry = entry?;
            let metadata = entry.metadata.ok_or("no metadata")?;
            results.push((metadata.modified, metadata.size, entry.name));
        }
        results.sort();
        let mut total: u64 = results.iter().map(|(_, size, _)| size).sum();
        let mut removed = 0;
        for (_, size, name) in results {
            if total <= limit {
                break;
            }
            self.results.remove_file(&name)?;
            (total, removed) = (total - size, removed + 1);
        }
        Ok(removed)
    }
}

fn main() -> Result<()> {
    let image = std::env::args().nth(1).unwrap_or_else(|| "cache.xfs".into());
    if !Path::new(&image).exists() {
        ImageBuilder::new(&image).size(1 << 30).build()?;
    }
    let volume = Volume::open_path(&image)?;
    let (root, cache) = (Dir::root(&volume)?, Cache::open(&volume)?);
    for n in 0..8_u8 {
        cache.add(&format!("{n:064x}"), &vec![n; 1 << 20])?;
    }
    root.create_dir_all("work")?;
    let blocks = volume.statistics().blocks_free;
    let found = cache.copy_to(&format!("{:064x}", 3), &root, "work/output")?;
    assert!(found && !cache.copy_to("unknown", &root, "work/other")?);
    let taken = blocks - volume.statistics().blocks_free;
    let removed = cache.evict(4 << 20)?;
    println!("a copy of 1 MiB took {taken} blocks; {removed} results were removed");
    assert!(root.try_exists("work/output")?);
    drop((root, cache));
    volume.unmount()?;
    Ok(())
}
