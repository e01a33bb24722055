//! Linux as judge: what `xfs_repair -n` says of an image, and what the kernel shows of it, many images in one mount
//! namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use interop::damage::record;
use read::manifest::Record;

/// Mounts each image of `$1`'s list on `$2`, which replays its log if it is dirty, and writes the manifest beside it;
/// `$3` is the program that prints it. What fails for one image is written in the place of its manifest.
const SHOW: &str = r#"
while read -r image; do
    if ! mount -t xfs -o loop,nouuid,noatime "$image" "$2" 2> "$image.failed"; then
        dmesg 2>/dev/null | tail -n 3 >> "$image.failed" || true
        continue
    fi
    "$3" manifest "$2" > "$image.manifest" 2> "$image.failed" && rm "$image.failed"
    umount "$2"
done < "$1"
"#;

/// What the kernel shows of each image, in order, or why it shows nothing. Dirty logs are replayed in place.
pub fn show(images: &[PathBuf], work: &Path) -> Vec<Result<Vec<Record>, String>> {
    let (list, mount) = (work.join("list"), work.join("mnt"));
    let lines: Vec<String> = images.iter().map(|image| format!("{}\n", image.display())).collect();
    std::fs::write(&list, lines.concat()).unwrap();
    std::fs::create_dir_all(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-uc", SHOW, "show"]).args([&list, &mount]);
    command.arg(env!("CARGO_BIN_EXE_interop"));
    assert!(command.status().unwrap().success(), "the loop over the images failed");
    let beside = |image: &PathBuf, what: &str| PathBuf::from(format!("{}.{what}", image.display()));
    let result = |image: &PathBuf| {
        let (failed, manifest) = (beside(image, "failed"), beside(image, "manifest"));
        if let Ok(why) = std::fs::read_to_string(&failed) {
            std::fs::remove_file(&failed).unwrap();
            return Err(format!("the kernel does not mount it: {why}"));
        }
        let text = std::fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
        std::fs::remove_file(&manifest).unwrap();
        text.lines().map(|line| Record::from_line(line).map_err(|error| error.to_string())).collect()
    };
    images.iter().map(result).collect()
}

/// What `xfs_repair -n` complains of; nothing of a sound volume.
pub fn repair(image: &Path) -> Result<(), String> {
    let program = record::newer().join("xfs_repair");
    let mut command = Command::new(program);
    // A volume of one AG has no second superblock to compare with; xfs_repair then asks to be told to go on.
    command.args(["-n", "-f", "-o", "force_geometry"]).arg(image);
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.code() == Some(0) {
        return Ok(());
    }
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let chatter = |line: &&str| !line.trim_start().starts_with("- ") && !line.starts_with("Phase");
    let said: Vec<&str> = text.lines().filter(chatter).take(12).collect();
    Err(format!("xfs_repair -n exits {:?}: {}", output.status.code(), said.join("\n")))
}
