//! Where the dirty images come from, and what Linux makes of a copy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interop::needs;

/// What is made where `XEBEC_IMAGES` names no folder.
const RECIPES: &[&str] = &[
    "dirty-drop",
    "dirty-bs1k",
    "dirty-external-log",
    "dirty-intents",
    "dirty-intents-bare",
    "dirty-exchange*",
];

/// The dirty images.
///
/// # Errors
/// What keeps them from being made or mounted, for [`needs::skip`].
pub fn find() -> Result<Vec<PathBuf>, String> {
    needs::mounting().and_then(|()| needs::tools(&["xfs_db"]))?;
    if let Some(folder) = std::env::var_os("XEBEC_IMAGES") {
        return Ok(list(Path::new(&folder)));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recovery-images");
    std::fs::create_dir_all(&folder).unwrap();
    // Tests at the same time share the images.
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let make = Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images");
    let mut command = Command::new(make);
    command.arg(&folder).args(RECIPES).env("XEBEC_INTEROP", env!("CARGO_BIN_EXE_interop"));
    assert!(command.status().unwrap().success(), "make-images failed");
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

/// A copy of an image that Linux mounted and unmounted. Gone when dropped.
pub struct Recovered {
    /// The volume.
    pub image: PathBuf,
    /// Its external log.
    pub log: Option<PathBuf>,
    folder: PathBuf,
}

/// Mounts `$1`, with the log on `$2` where there is one, on `$3`, in a mount namespace of its own.
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
    /// Copies an image and lets Linux recover the copy. Images of crashed but healthy volumes only.
    pub fn new(image: &Path) -> Self {
        let name = image.file_stem().unwrap().to_string_lossy();
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let number = COPIES.fetch_add(1, Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recovered-{name}-{number}"));
        let mount = folder.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        let copy = |extension: &str| {
            let from = image.with_extension(extension);
            let to = folder.join(format!("copy.{extension}"));
            let run =
                || Command::new("cp").arg("--sparse=always").arg(&from).arg(&to).status().unwrap().success();
            from.exists().then(|| {
                assert!(run(), "cannot copy {}", from.display());
                to.clone()
            })
        };
        let recovered = Self { image: copy("xfs").unwrap(), log: copy("log"), folder: folder.clone() };
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-euc", MOUNT, "recover"]).arg(&recovered.image);
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
        // Left behind, it would only take room.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
