//! The example of the README compiles as it stands in a crate that depends on `xebec` alone, and runs.
#![expect(clippy::unwrap_used, reason = "a failing test reports the line")]

use std::path::{Path, PathBuf};

/// The library of this build: the newest, as older builds may remain beside it.
fn library(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libxebec-") && name.ends_with(".rlib")
    };
    files.filter(is_library).max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

#[test]
fn the_example_of_the_readme_compiles_and_runs() {
    let text = include_str!("../../README.md");
    let (_, rest) = text.split_once("\n```rust\n").unwrap();
    let (example, _) = rest.split_once("\n```\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.rs");
    std::fs::write(&main, example).unwrap();
    let own = std::env::current_exe().unwrap();
    let dependencies = own.parent().unwrap();
    let mut library_name = std::ffi::OsString::from("xebec=");
    library_name.push(library(dependencies));
    let mut search = std::ffi::OsString::from("dependency=");
    search.push(dependencies);
    let mut compiler = needs::own(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    compiler.args(["--edition", "2024"]).arg("--extern").arg(library_name).arg("-L").arg(search);
    let compiled = compiler.arg("-o").arg(folder.path().join("main")).arg(&main).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    std::fs::create_dir(folder.path().join("etc")).unwrap();
    std::fs::write(folder.path().join("etc/hostname"), "here\n").unwrap();
    let ran = needs::own(folder.path().join("main")).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(std::fs::read_to_string(folder.path().join("copy/motd")).unwrap(), "Welcome\n");
}
