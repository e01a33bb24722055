//! Edits a disk image in place: adds a user's file as that user, changes a line of a configuration file, and lists what
//! the image holds. Paths from outside are confined to a directory.
//!
//! `cargo run --example edit_image -- IMAGE`

use std::path::Path;

use xebec::errno::{EACCES, EXDEV};
use xebec::{Credentials, Dir, FileType, ImageBuilder, Resolve, Scope, SetMetadata, Volume};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Replaces the line of a configuration file that begins with `key`, in a new file that takes the place of the old one.
fn set_line(dir: &Dir<'_>, path: &str, key: &str, line: &str) -> Result<()> {
    let old = dir.read_to_string(path)?;
    let lines = old.lines().map(|old| if old.starts_with(key) { line } else { old });
    let new: String = lines.flat_map(|line| [line, "\n"]).collect();
    let known = dir.metadata(path)?;
    let temporary = format!("{path}.new");
    dir.write(&temporary, new)?;
    let owner = SetMetadata { uid: Some(known.uid), gid: Some(known.gid), ..SetMetadata::default() };
    dir.set_metadata(&temporary, &owner)?;
    dir.set_permissions(&temporary, known.permissions)?;
    Ok(dir.rename(&temporary, dir, path)?)
}

fn list(dir: &Dir<'_>, path: &str) -> Result<()> {
    for entry in dir.read_dir(path)?.with_metadata() {
        let entry = entry?;
        let path = format!("{path}/{}", entry.name.escape_ascii());
        let metadata = entry.metadata.ok_or("no metadata")?;
        println!("{:04o} {:>5} {:>9} {path}", metadata.permissions, metadata.uid, metadata.size);
        if metadata.file_type == FileType::Directory {
            list(dir, &path)?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let image = std::env::args().nth(1).ok_or("usage: edit_image IMAGE")?;
    if !Path::new(&image).exists() {
        ImageBuilder::new(&image).size(512 << 20).build()?;
    }
    let volume = Volume::open_path(&image)?;
    let root = Dir::root(&volume)?;
    root.create_dir_all("etc/ssh")?;
    if !root.try_exists("etc/ssh/sshd_config")? {
        root.write("etc/ssh/sshd_config", "Port 22\nPasswordAuthentication yes\n")?;
    }
    set_line(&root, "etc/ssh/sshd_config", "PasswordAuthentication", "PasswordAuthentication no")?;
    assert!(root.read_to_string("etc/ssh/sshd_config")?.contains("PasswordAuthentication no"));

    // The user's files belong to the user, and other files cannot be changed in the user's name.
    root.create_dir_all("home/alice")?;
    let owner = SetMetadata { uid: Some(1000), gid: Some(1000), ..SetMetadata::default() };
    root.set_metadata("home/alice", &owner)?;
    let alice = root.open_dir("home/alice")?.with_credentials(Credentials::new(1000, 1000));
    alice.write("notes", "Remember the milk.\n")?;
    assert!(matches!(alice.write("/etc/ssh/sshd_config", ""), Err(error) if error.errno() == EACCES));

    // A path that someone else provides stays within the directory.
    let confined = alice.with_resolve(Resolve { scope: Scope::Beneath, ..Resolve::default() });
    assert!(matches!(confined.read("../../etc/ssh/sshd_config"), Err(error) if error.errno() == EXDEV));

    list(&root, ".")?;
    drop((root, confined));
    volume.unmount()?;
    Ok(())
}
