//! OCI image layouts: directories with an `oci-layout`, an `index.json` and `blobs`, whose layers are archives
//! (OCI image specification 1.1, "Image Layout").

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

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
    let mut document: Document = read(&layout.join("index.json"))?;
    let mut wanted = name;
    for _ in 0..DEPTH_MAX {
        if document.manifests.is_empty() {
            let layers = document.layers.iter();
            return layers
                .map(|layer| Ok(Archive::new(&blob(layout, &layer.digest)?).whiteouts(true)))
                .collect();
        }
        let chosen = choose(layout, &document.manifests, wanted.take())?;
        document = read(&blob(layout, &chosen.digest)?)?;
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

/// Where the blob of a digest is.
fn blob(layout: &Path, digest: &str) -> Result<PathBuf> {
    let (algorithm, hex) = digest.split_once(':').unwrap_or(("", ""));
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_plain(algorithm) && is_plain(hex) {
        true => Ok(layout.join("blobs").join(algorithm).join(hex)),
        false => Err(bad(layout, format!("has a digest that is none: {digest:?}"))),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let failed = |source| Error::Source { path: path.into(), doing: "read it", source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > DOCUMENT_MAX {
        return Err(bad(path, "is larger than any such document"));
    }
    serde_json::from_reader(BufReader::new(file)).map_err(|error| bad(path, error.to_string()))
}

fn bad(path: &Path, why: impl Into<String>) -> Error {
    Error::Bad { path: path.into(), why: why.into() }
}
