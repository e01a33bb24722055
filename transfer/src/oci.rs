//! OCI image layouts: directories with an `oci-layout`, an `index.json` and `blobs`, whose layers are archives
//! (OCI image specification 1.1, "Image Layout").
//!
//! # Invariants
//! Size and digest of a blob are verified against its descriptor whenever it is read.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::digest::{Expected, Verified};
use crate::{Archive, Error, Result};

/// Maximum depth of indexes: an index, an index in it, a manifest.
const DEPTH_MAX: u32 = 4;
/// Maximum size of a document: a manifest of thousands of layers is below a MiB.
const DOCUMENT_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    /// In an index.
    #[serde(default)]
    manifests: Vec<Descriptor>,
    /// In a manifest.
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
        Expected::new(&self.digest, self.size).map_err(|problem| bad(layout, problem))
    }

    /// The name of an image of a layout.
    fn name(&self) -> Option<&str> {
        self.annotations.get("org.opencontainers.image.ref.name").map(String::as_str)
    }

    /// Whether it is for the architecture of this machine, or for none.
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

/// Returns the layers of an image, lowest first, with whiteouts. `name` selects one of several images.
///
/// # Errors
/// Unreadable or invalid layouts, and an ambiguous image.
pub fn layers(layout: &Path, name: Option<&str>) -> Result<Vec<Archive>> {
    if !layout.join("oci-layout").is_file() {
        return Err(bad(layout, "not an OCI image layout: it has no file `oci-layout`"));
    }
    let mut document: Document = parsed(&layout.join("index.json"), None)?;
    let mut wanted = name;
    for _ in 0..DEPTH_MAX {
        if document.manifests.is_empty() {
            let layers = document.layers.iter();
            return layers
                .map(|layer| {
                    let expected = layer.expected(layout)?;
                    Ok(Archive::new(blob(layout, &expected)).verified(expected).whiteouts(true))
                })
                .collect();
        }
        let chosen = choose(layout, &document.manifests, wanted.take())?;
        let expected = chosen.expected(layout)?;
        document = parsed(&blob(layout, &expected), Some(expected))?;
    }
    Err(bad(layout, "its indexes are nested too deeply"))
}

fn choose<'d>(layout: &Path, images: &'d [Descriptor], name: Option<&str>) -> Result<&'d Descriptor> {
    let named = images.iter().filter(|image| name.is_none_or(|name| image.name() == Some(name)));
    let mut fitting = named.filter(|image| image.fits());
    let names = || images.iter().filter_map(Descriptor::name).collect::<Vec<_>>().join(", ");
    match (fitting.next(), fitting.next()) {
        (Some(image), None) => Ok(image),
        (None, _) => Err(bad(layout, format!("no such image for this machine (images: {})", names()))),
        (Some(_), Some(_)) => Err(bad(layout, format!("several images: name one of {}", names()))),
    }
}

/// The path of a blob.
fn blob(layout: &Path, expected: &Expected) -> PathBuf {
    layout.join("blobs").join(expected.place().iter().collect::<PathBuf>())
}

/// Reads a document, and verifies it if its descriptor is known.
fn parsed<T: DeserializeOwned>(path: &Path, expected: Option<Expected>) -> Result<T> {
    let failed = |error| Error::source(path, "read it", error);
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > DOCUMENT_MAX {
        return Err(bad(path, "too large for an index or a manifest"));
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

fn bad(path: &Path, problem: impl Into<String>) -> Error {
    Error::Invalid { path: path.into(), problem: problem.into() }
}
