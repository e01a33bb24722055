//! Images of OCI layouts: which layers they have, and that nothing else is read than their descriptors promise.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tar::EntryType;
use xebec_transfer::Overrides;

mod scene;

use scene::{Made, archive, member};

/// A layout in a folder.
struct Layout(tempfile::TempDir);

impl Layout {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
        std::fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts a blob there, and gives its descriptor's digest and size, as JSON.
    fn put(&self, bytes: &[u8]) -> String {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(self.path().join("blobs/sha256").join(&hex), bytes).unwrap();
        format!(r#""digest":"sha256:{hex}","size":{}"#, bytes.len())
    }

    /// The file of a blob with such a descriptor.
    fn blob(&self, descriptor: &str) -> PathBuf {
        let hex = descriptor.split(':').nth(2).unwrap().split('"').next().unwrap();
        self.path().join("blobs/sha256").join(hex)
    }

    fn manifest(&self, layers: &[&str]) -> String {
        let layers: Vec<_> = layers.iter().map(|layer| format!("{{{layer}}}")).collect();
        self.put(format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, layers.join(",")).as_bytes())
    }

    /// Names images by their manifests.
    fn index(&self, images: &[(&str, &str)]) {
        let image = |(name, manifest): &(&str, &str)| {
            format!(r#"{{{manifest},"annotations":{{"org.opencontainers.image.ref.name":"{name}"}}}}"#)
        };
        let images: Vec<_> = images.iter().map(image).collect();
        std::fs::write(self.path().join("index.json"), format!(r#"{{"manifests":[{}]}}"#, images.join(",")))
            .unwrap();
    }

    fn make(&self, name: Option<&str>) -> xebec_transfer::Result<Made> {
        let made = Made::new();
        for layer in xebec_transfer::oci::layers(self.path(), name)? {
            made.write(&layer, Overrides::default())?;
        }
        Ok(made)
    }

    #[track_caller]
    fn refused(&self, name: Option<&str>) -> String {
        self.make(name).map(drop).unwrap_err().to_string()
    }
}

fn layer(path: &str) -> Vec<u8> {
    archive(|builder| member(builder, EntryType::Regular, path, "", b"contents"))
}

#[test]
fn layers_of_an_image_are_put_on_top_of_each_other() {
    let layout = Layout::new();
    let (below, above) = (layout.put(&layer("etc/old")), layout.put(&layer("etc/.wh.old")));
    let (new, old) = (layout.manifest(&[&below, &above]), layout.manifest(&[&below]));
    let bad = layout.manifest(&[r#""digest":"sha256:../../secret","size":3"#]);
    layout.index(&[("new", &new), ("old", &old), ("bad", &bad)]);
    for (name, there) in [("old", true), ("new", false)] {
        let made = layout.make(Some(name)).unwrap();
        assert_eq!(made.has("/etc/old"), there);
        assert!(made.has("/etc"));
    }
    assert!(layout.refused(None).contains("new, old"));
    assert!(layout.refused(Some("other")).contains("no such image"));
    assert!(layout.refused(Some("bad")).contains("digest"));
    std::fs::remove_file(layout.path().join("oci-layout")).unwrap();
    assert!(layout.refused(None).contains("oci-layout"));
}

/// Digests and sizes were not looked at: whatever lay under a blob's name was taken.
#[test]
fn a_blob_that_is_not_as_its_descriptor_says_is_refused() {
    let layout = Layout::new();
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, bytes).unwrap();
        gzip.finish().unwrap()
    };
    let layers = [layout.put(&layer("plain")), layout.put(&gzip(&layer("packed")))];
    let manifest = layout.manifest(&[&layers[0], &layers[1]]);
    layout.index(&[("image", &manifest)]);
    assert!(layout.make(None).unwrap().has("/packed"));
    for descriptor in [&layers[0], &layers[1], &manifest] {
        let path = layout.blob(descriptor);
        let whole = std::fs::read(&path).unwrap();
        // Other archives, and documents, that are whole in themselves.
        let other = match descriptor == &manifest {
            true => br#"{"schemaVersion":2,"layers":[]}"#.to_vec(),
            false => layer("other"),
        };
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 0x10;
        for bytes in [other, flipped, [&whole[..], b"\n"].concat(), whole[..whole.len() - 1].to_vec()] {
            std::fs::write(&path, bytes).unwrap();
            let error = layout.refused(None);
            assert!(error.contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
        }
        std::fs::write(&path, whole).unwrap();
    }
    let (digest, _) = layers[0].rsplit_once(',').unwrap();
    for (descriptor, says) in [
        (format!(r#"{digest},"size":7"#), "size"),
        (digest.to_string(), "size"),
        (r#""digest":"md5:d41d8cd98f00b204e9800998ecf8427e","size":0"#.to_string(), "SHA-256"),
    ] {
        layout.index(&[("image", &layout.manifest(&[&descriptor]))]);
        let error = layout.refused(None);
        assert!(error.contains(says), "{error}");
    }
}

/// Tools that convert old images write layers of nothing but zeros.
#[test]
fn an_empty_layer_that_is_as_promised_is_taken() {
    let layout = Layout::new();
    let layers = [layout.put(&[0; 1024]), layout.put(&layer("file"))];
    layout.index(&[("image", &layout.manifest(&[&layers[0], &layers[1]]))]);
    assert!(layout.make(None).unwrap().has("/file"));
}
