//! Changes of volumes in qcow2 images: qemu-img finds no errors, and the volume is the same as in a raw file.

use std::path::Path;

use samples::Sample;

use crate::{Scene, stderr, xebec};

/// Runs `qemu-img`, which must succeed.
fn qemu_img(words: &[&str]) {
    let output = needs::command("qemu-img").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that the image has no errors and leaks, and that its volume is valid, has `existing` and lacks `missing`.
fn verify(scene: &Scene, image: &Path, existing: &[(&str, &str)], missing: &[&str]) {
    let raw = scene.beside("converted");
    let [image, converted] = [image, &raw].map(|path| path.display().to_string());
    qemu_img(&["check", "-q", &image]);
    qemu_img(&["convert", "-O", "raw", &image, &converted]);
    xebec().args(["check", "-q", &converted]).assert().success();
    if needs::met(needs::tools(&["xfs_repair"])).is_some() {
        let repair = needs::command("xfs_repair").arg("-n").arg(&converted).output().unwrap();
        assert!(repair.status.success(), "{}", String::from_utf8_lossy(&repair.stderr));
    }
    for shown in [&image, &converted] {
        for (path, text) in existing {
            let found = xebec().args(["cat", shown, path]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), format!("{text}\n"), "{shown}:{path}");
        }
        for path in missing {
            xebec().args(["stat", shown, path]).assert().failure();
        }
    }
}

#[test]
fn commands_change_volumes_in_qcow2_images() {
    let Some(()) = needs::met(needs::tools(&["qemu-img"])) else { return };
    let scene = Scene::new(Sample::Clean);
    let (image, tree) = (scene.beside("disk.qcow2"), scene.beside("tree"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("synced"), "from the tree\n").unwrap();
    let [text, tree] = [&image, &tree].map(|path| path.display().to_string());
    xebec().args(["create", "--format", "qcow2", "--size", "64m", "--from", &tree, &text]).assert().success();
    // Small clusters, compressed clusters, and an older version of the format.
    for (options, compress) in [("cluster_size=4k", "-c"), ("compat=0.10", "-c"), ("cluster_size=64k", "-q")]
    {
        let made = scene.beside("variant.qcow2");
        qemu_img(&["convert", compress, "-O", "qcow2", "-o", options, &text, made.to_str().unwrap()]);
        let (image, name) = (&made, made.display().to_string());
        let inside = format!("{name}:/in/copied");
        let source = format!("{tree}/synced");
        for words in [
            &["mkdir", "-p", &name, "/in/deep", "/in/gone"][..],
            &["write", "--text", "hello", &name, "/in/deep/file"],
            &["cp", &source, &inside],
            &["rm", "-r", &name, "/in/gone"],
            &["mv", &name, "/in/deep/file", "/in/file"],
            &["label", &name, "inside"],
            &["sync", "--no-delete", &tree, &format!("{name}:/in/deep")],
            &["trim", &name],
            &["replay", &name],
        ] {
            xebec().args(words).assert().success();
            qemu_img(&["check", "-q", &name]);
        }
        let existing =
            [("/in/file", "hello"), ("/in/copied", "from the tree"), ("/in/deep/synced", "from the tree")];
        verify(&scene, image, &existing, &["/in/gone", "/in/deep/file"]);
    }
    let refused = stderr(xebec().args(["grow", &text, "80m"]));
    assert!(refused.contains("qemu-img resize"), "{refused}");
    qemu_img(&["resize", "-q", &text, "100M"]);
    xebec().args(["grow", &text, "max"]).assert().success();
    verify(&scene, &image, &[("/synced", "from the tree")], &[]);
}

/// Regression: `mkfs -f` overwrote the container with a raw volume of the size of the file, and `shrink` reported that
/// the device or partition keeps its size.
#[test]
fn refusals_for_qcow2_name_the_right_command() {
    let Some(()) = needs::met(needs::tools(&["qemu-img"])) else { return };
    let scene = Scene::new(Sample::Clean);
    let (image, tree) = (scene.beside("disk.qcow2"), scene.beside("tree"));
    std::fs::create_dir(&tree).unwrap();
    let [name, tree] = [&image, &tree].map(|path| path.display().to_string());
    let made = ["create", "--format", "qcow2", "--size", "400m", "--from", &tree, &name];
    xebec().args(made).assert().success();
    let before = std::fs::read(&image).unwrap();
    for words in [&["mkfs", "-f", &name][..], &["mkfs", "-f", "--size", "1g", &name], &["mkfs", &name]] {
        let message = stderr(xebec().args(words));
        assert!(message.contains("`xebec create --format qcow2 -f --from DIR`"), "{words:?}: {message}");
        assert!(before == std::fs::read(&image).unwrap(), "{words:?}");
    }
    let message = stderr(xebec().args(["minimize", &name]));
    assert!(message.contains("`qemu-img resize --shrink`"), "{message}");
    verify(&scene, &image, &[], &[]);
}

/// The backing image is opened read-only and locked.
#[test]
fn changes_go_to_the_overlay_of_a_backing_image() {
    let Some(()) = needs::met(needs::tools(&["qemu-img"])) else { return };
    let scene = Scene::new(Sample::Clean);
    let (base, top) = (scene.image(), scene.beside("top.qcow2"));
    let before = std::fs::read(base).unwrap();
    let name = top.display().to_string();
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.to_str().unwrap(), &name]);
    let refused = stderr(xebec().args(["mkdir", &name, "/new"]));
    assert!(refused.contains("--backing"), "{refused}");
    xebec().args(["--backing", "write", "--text", "on top", &name, "/new"]).assert().success();
    assert!(before == std::fs::read(base).unwrap());
    qemu_img(&["check", "-q", &name]);
    let shown = xebec().args(["--backing", "cat", &name, "/new"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "on top\n");
    xebec().args(["--backing", "check", "-q", &name]).assert().success();
}
