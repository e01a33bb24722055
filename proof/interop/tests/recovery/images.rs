//! Dirty images, and their recovery by Linux.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interop::built;

/// Images that are created if `XEBEC_IMAGES` is not set.
const RECIPES: &[&str] = &[
    "dirty-drop",
    "dirty-bs1k",
    "dirty-external-log",
    "dirty-intents",
    "dirty-intents-bare",
    "dirty-exchange*",
];

/// Returns the dirty images.
///
/// # Errors
/// A program or privilege is missing, or the images cannot be created.
pub fn find() -> Result<Vec<PathBuf>, String> {
    needs::mounting()?;
    if let Some(folder) = std::env::var_os("XEBEC_IMAGES") {
        return Ok(list(Path::new(&folder)));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recovery-images");
    std::fs::create_dir_all(&folder).unwrap();
    // Concurrent tests share the images.
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    built::images(&folder, RECIPES, Some(env!("CARGO_BIN_EXE_interop")))?;
    Ok(list(&folder))
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_dirty = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("dirty") && name.ends_with(".xfs")
    };
    let mut images: Vec<_> = entries.filter(is_dirty).collect();
    images.sort();
    images
}

/// Copies a sparse file.
pub fn copy(from: &Path, to: &Path) {
    let status = needs::command("cp").arg("--sparse=always").args([from, to]).status();
    assert!(status.unwrap().success(), "cannot copy {}", from.display());
}

/// A copy of an image that Linux mounted and unmounted; removed when dropped.
pub struct Recovered {
    /// The volume.
    pub image: PathBuf,
    /// External log.
    pub log: Option<PathBuf>,
    folder: PathBuf,
}

/// Mounts `$1`, with the external log `$2` unless it is empty, on `$3`.
const MOUNT: &str = r#"
options=nouuid,noatime
if [ -n "$2" ]; then
    log=$(losetup --find --show "$2")
    trap 'losetup --detach "$log"' EXIT
    options=$options,logdev=$log
fi
mount -t xfs -o loop,$options "$1" "$3"
umount "$3"
"#;

impl Recovered {
    /// Copies an image and lets Linux recover the copy. The volume must not be damaged.
    pub fn new(image: &Path) -> Self {
        let name = image.file_stem().unwrap().to_string_lossy();
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let number = COPIES.fetch_add(1, Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recovered-{name}-{number}"));
        let mount = folder.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        let copied = |extension: &str| {
            let from = image.with_extension(extension);
            let to = folder.join(format!("copy.{extension}"));
            from.exists().then(|| {
                copy(&from, &to);
                to
            })
        };
        let recovered = Self { image: copied("xfs").unwrap(), log: copied("log"), folder: folder.clone() };
        let mut command = needs::script("-eu", MOUNT, "recover");
        command.arg(&recovered.image);
        command.arg(recovered.log.as_deref().unwrap_or(Path::new(""))).arg(&mount);
        assert!(
            command.status().unwrap().success(),
            "the kernel does not mount a copy of {}",
            image.display()
        );
        recovered
    }
}

impl Drop for Recovered {
    fn drop(&mut self) {
        // A failure only wastes space.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
