//! The examples run, and their images are without errors. They check their results themselves.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

/// The program of an example, which `cargo test` builds with the tests.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

fn run(name: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.xfs");
    let mut output = String::new();
    // The second run opens the image of the first.
    for _ in 0..2 {
        let ran = needs::own(program(name)).arg(&image).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
        output = String::from_utf8(ran.stdout).unwrap();
    }
    let report = xebec::check::check_path(&image).unwrap();
    assert!(report.is_clean(), "{name}: {:?}", report.findings);
    output
}

#[test]
fn store() {
    assert!(run("store", &["3000"]).contains("3000 values"));
}

#[test]
fn build_cache() {
    let output = run("build_cache", &[]);
    assert!(output.contains("4 results were removed"), "{output}");
}

#[test]
fn edit_image() {
    let output = run("edit_image", &[]);
    assert!(output.contains("0644  1000        19 ./home/alice/notes"), "{output}");
}
