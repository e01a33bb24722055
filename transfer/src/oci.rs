//! OCI image layouts: directories with an `oci-layout`, an `index.json` and `blobs`, whose layers are archives
//! (OCI image specification 1.1, "Image Layout").
//!
//! # Invariants
//! A blob is used only as its descriptor promises it: size and digest are verified whenever it is read.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::digest::{Expected, Verified};
use crate::{Archive, Error, Result};

/// Images within images that are followed: an index, an index in it, a manifest.
const DEPTH_MAX: u32 = 4;
/// Largest document: a manifest of thousands of layers is below a MiB.
const DOCUMENT_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    /// Of an index.
    #[serde(default)]
    manifests: Vec<Descriptor>,
    /// Of a manifest.
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Descriptor {
    fn expected(&self, layout: &Path) -> Result<Expected> {
        Expected::new(&self.digest, self.size).map_err(|why| bad(layout, why))
    }

    /// What users call an image of a layout.
    fn name(&self) -> Option<&str> {
        self.annotations.get("org.opencontainers.image.ref.name").map(String::as_str)
    }

    /// Whether it runs on a machine as this one. What says nothing of it does.
    fn fits(&self) -> bool {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        self.platform
            .as_ref()
            .is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture)
    }
}

/// The layers of an image, the lowest first, with their whiteouts. `name` chooses among several.
///
/// # Errors
/// What cannot be read or is no layout, and where it is not clear which image is meant.
pub fn layers(layout: &Path, name: Option<&str>) -> Result<Vec<Archive>> {
    if !layout.join("oci-layout").is_file() {
        return Err(bad(layout, "is no OCI image layout: it has no file `oci-layout`"));
    }
    let mut document: Document = parsed(&layout.join("index.json"), None)?;
    let mut wanted = name;
    for _ in 0..DEPTH_MAX {
        if document.manifests.is_empty() {
            let layers = document.layers.iter();
            return layers
                .map(|layer| {
                    let expected = layer.expected(layout)?;
                    Ok(Archive::new(&blob(layout, &expected)).verified(expected).whiteouts(true))
                })
                .collect();
        }
        let chosen = choose(layout, &document.manifests, wanted.take())?;
        let expected = chosen.expected(layout)?;
        document = parsed(&blob(layout, &expected), Some(expected))?;
    }
    Err(bad(layout, "has an index of indexes of indexes"))
}

fn choose<'d>(layout: &Path, images: &'d [Descriptor], name: Option<&str>) -> Result<&'d Descriptor> {
    let named = images.iter().filter(|image| name.is_none_or(|name| image.name() == Some(name)));
    let mut fitting = named.filter(|image| image.fits());
    let names = || images.iter().filter_map(Descriptor::name).collect::<Vec<_>>().join(", ");
    match (fitting.next(), fitting.next()) {
        (Some(image), None) => Ok(image),
        (None, _) => Err(bad(layout, format!("has no such image for this machine (it has: {})", names()))),
        (Some(_), Some(_)) => Err(bad(layout, format!("has several images: name one of them: {}", names()))),
    }
}

/// Where a blob is.
fn blob(layout: &Path, expected: &Expected) -> PathBuf {
    layout.join("blobs").join(expected.place().iter().collect::<PathBuf>())
}

/// A document, which is as expected where that is known.
fn parsed<T: DeserializeOwned>(path: &Path, expected: Option<Expected>) -> Result<T> {
    let failed = |source| Error::Source { path: path.into(), doing: "read it", source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > DOCUMENT_MAX {
        return Err(bad(path, "is larger than any such document"));
    }
    let mut bytes = Vec::new();
    let file = file.take(DOCUMENT_MAX);
    let read = match expected {
        Some(expected) => Verified::new(file, expected).read_to_end(&mut bytes),
        None => { file }.read_to_end(&mut bytes),
    };
    read.map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| bad(path, error.to_string()))
}

fn bad(path: &Path, why: impl Into<String>) -> Error {
    Error::Bad { path: path.into(), why: why.into() }
}
