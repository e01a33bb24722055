//! The sample images of `proof/samples`: unpacked, and shown by `xebec`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use samples::Sample;

use crate::target;

/// `sample clean|dirty FILE`: unpacks a sample image.
pub fn sample(arguments: &[String]) -> Result<()> {
    let [kind, file] = arguments else { bail!("usage: cargo xtask sample clean|dirty FILE") };
    let sample = Sample::ALL.into_iter().find(|sample| sample.name() == kind);
    let sample = sample.with_context(|| format!("no sample is called {kind}: clean or dirty"))?;
    sample.unpack(Path::new(file)).with_context(|| format!("cannot make {file}"))?;
    eprintln!("made {file}");
    Ok(())
}

/// `try`: makes the sample with a dirty log, shows what is in it, and extracts it.
pub fn tour(root: &Path) -> Result<()> {
    let folder = target(root).join("try");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let image = folder.join("sample.xfs");
    Sample::Dirty.unpack(&image).with_context(|| format!("cannot make {}", image.display()))?;
    eprintln!("made {}: a volume that crashed, whose newest files lie in the log alone", image.display());
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", "xebec-cli"])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the build failed");
    let xebec = target(root).join("release/xebec");
    for arguments in [
        "info sample.xfs",
        "tree -L 2 sample.xfs",
        "ls -l sample.xfs /home/ada",
        "cat sample.xfs /etc/motd.old",
        "check sample.xfs",
        "extract sample.xfs --to out",
    ] {
        eprintln!("\n$ xebec {arguments}");
        let status = Command::new(&xebec)
            .args(arguments.split(' '))
            .current_dir(&folder)
            .status()
            .with_context(|| format!("cannot run {}", xebec.display()))?;
        // An ordinary user cannot make devices or give files away: `extract` says so and ends with 1.
        let partial = arguments.starts_with("extract") && status.code() == Some(1);
        ensure!(status.success() || partial, "xebec {arguments}: {status}");
    }
    eprintln!("\nLook around in {}", folder.display());
    Ok(())
}
