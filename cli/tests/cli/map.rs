//! map.

use samples::Sample;
use serde_json::Value;

use crate::{Scene, xebec};

/// The names of uses in JSON.
const USES: [&str; 10] =
    ["data", "shared", "staging", "directories", "inodes", "maps", "headers", "log", "other", "free"];

fn sum(uses: &Value) -> u64 {
    USES.iter().map(|name| uses[name].as_u64().unwrap()).sum()
}

#[test]
fn every_block_has_one_use() {
    for sample in [Sample::Clean, Sample::Dirty] {
        let scene = Scene::new(sample);
        let map = scene.json("map", &["-q"]);
        let uses = &map["uses"];
        assert_eq!(sum(uses), 64 << 20, "{uses}");
        assert_eq!(uses["other"], 0, "{uses}");
        let info = scene.json("info", &["-q"]);
        // The trees of free space are free blocks by the counters of a volume.
        let (free, counted) = (uses["free"].as_u64().unwrap(), info["usage"]["free_bytes"].as_u64().unwrap());
        assert!(free <= counted && counted < free + (1 << 20), "{free} {counted}");
        assert_eq!(map["inodes"], info["usage"]["inodes_used"]);
        let ags = map["ags"].as_array().unwrap();
        assert!(ags.len() == 4 && ags.iter().all(|ag| sum(ag) == ag["bytes"].as_u64().unwrap()), "{ags:?}");
        let runs = map["free_runs"].as_array().unwrap();
        assert_eq!(runs.iter().map(|run| run["bytes"].as_u64().unwrap()).sum::<u64>(), free);
        let du = scene.json("du", &["-sq"]);
        assert_eq!(map["directories"]["allocated"], du["total"]["allocated"]);
        assert_eq!(map["directories"]["files"], du["total"]["inodes"]);
    }
}

#[test]
fn shared_data_counts_once() {
    let scene = Scene::new(Sample::Clean);
    let uses = |name: &str| scene.json("map", &[])["uses"][name].as_u64().unwrap();
    let before = uses("data");
    let mut write = scene.xebec("write", &["/large"]);
    write.write_stdin("0123456789abcdef".repeat(1 << 14)).assert().success();
    assert_eq!(uses("data"), before + (256 << 10));
    let shared = uses("shared");
    scene.xebec("reflink", &["/large", "/copy"]).assert().success();
    assert_eq!((uses("data"), uses("shared")), (before, shared + (256 << 10)));
    assert_eq!(uses("other"), 0);
}

#[test]
fn the_page_needs_nothing_else_and_names_are_escaped() {
    let scene = Scene::new(Sample::Clean);
    scene.xebec("mkdir", &["/<b>&"]).assert().success();
    let mut write = scene.xebec("write", &["/<b>&/file"]);
    write.write_stdin("x".repeat(4 << 20)).assert().success();
    let (html, png) = (scene.beside("map.html"), scene.beside("map.png"));
    scene.xebec("map", &["--html"]).arg(&html).assert().success().stdout("");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{page}");
    assert!(page.contains("&lt;b&gt;&amp; 4.0 MiB") && !page.contains("<b>"), "{page}");
    for absent in ["src=", "href=", "url(", "<script", "@import"] {
        assert!(!page.contains(absent), "{absent}");
    }
    for present in
        ["prefers-color-scheme:dark", "fill=\"var(--data)\"", "viewBox=\"0 0 360 ", "width=device-width"]
    {
        assert!(page.contains(present), "{present}");
    }
    scene.xebec("map", &["--html"]).arg(&html).assert().code(1);
    scene.xebec("map", &["--overwrite", "--html"]).arg(&html).assert().success();
    let image = scene.image().to_owned();
    scene.xebec("map", &["--overwrite", "--html"]).arg(&image).assert().code(1);
    scene.xebec("map", &["--font", "/none", "--png"]).arg(&png).assert().code(1);
    assert!(!png.exists());
}

#[test]
fn the_terminal_decides_about_the_characters() {
    let scene = Scene::new(Sample::Clean);
    let shown = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut map = scene.xebec("map", arguments);
        map.env_remove("LC_ALL").env_remove("LC_CTYPE").env_remove("LANG").envs(variables.iter().copied());
        String::from_utf8(map.assert().success().get_output().stdout.clone()).unwrap()
    };
    let plain = shown(&[("COLUMNS", "60")], &[]);
    assert!(plain.is_ascii() && plain.contains("\nAG 0 "), "{plain}");
    assert!(plain.lines().filter(|line| line.starts_with("AG ")).all(|line| line.len() <= 60), "{plain}");
    let unicode = shown(&[("LANG", "C.UTF-8")], &[]);
    assert!(unicode.contains('\u{2591}') && !unicode.contains('\x1b'), "{unicode}");
    assert!(shown(&[], &["--color", "always"]).contains("\x1b[38;5;"));
}

#[test]
fn damage_is_reported_and_the_rest_is_shown() {
    let scene = Scene::new(Sample::Clean);
    let at = scene.inode_offset("/etc/motd");
    let image = std::fs::OpenOptions::new().write(true).open(scene.image()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0xff; 100], at + 100).unwrap();
    let output = scene.xebec("map", &[]).assert().code(1).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stdout).contains("Where the space is"));
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(messages.contains("/etc/motd") && messages.contains("inode "), "{messages}");
    xebec().args(["map", "/none"]).assert().code(1);
}
