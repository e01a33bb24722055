//! Unpacks the sample images of `proof/samples`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use samples::Sample;

/// `sample clean|dirty FILE`: unpacks a sample image.
pub fn sample(arguments: &[String]) -> Result<()> {
    let [kind, file] = arguments else { bail!("usage: cargo xtask sample clean|dirty FILE") };
    let sample = Sample::ALL.into_iter().find(|sample| sample.name() == kind);
    let sample = sample.with_context(|| format!("no sample is called {kind}: choose clean or dirty"))?;
    sample.unpack(Path::new(file)).with_context(|| format!("cannot create {file}"))?;
    eprintln!("created {file}");
    Ok(())
}
