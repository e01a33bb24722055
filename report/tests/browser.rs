//! The page of a report in a browser: it is complete, fits a telephone, and follows the color scheme.
//!
//! The reports are the kept runs, or the results that `XEBEC_BENCH_RESULTS` names. Pages and screenshots stay in the
//! directory of these results, or in that of temporary files of Cargo.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use xebec_report::Report;

/// Width of a small telephone, in CSS pixels.
const PHONE: u32 = 390;
const DESKTOP: u32 = 1280;
/// The pages' colors, as a browser reports them.
const LIGHT: &str = "rgb(255, 255, 255)";
const DARK: &str = "rgb(21, 24, 28)";

/// What a browser says about a page.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Width of the window, and of the contents.
    width: u32,
    needed: u32,
    background: String,
    /// All numbers, in order.
    values: Vec<f64>,
    /// Charts, and those of them that have a size.
    charts: usize,
    visible: usize,
}

/// A page that shows another one in a frame, and prints what [`Seen`] has. The function is defined before the frame,
/// which may be loaded before the browser parses what follows it.
const FRAME: &str = r#"<!DOCTYPE html><meta charset="utf-8"><style>body{margin:0}</style>
<output id="seen" hidden></output>
<script>
const look = frame => {
    const page = frame.contentDocument, root = page.documentElement;
    // A chart within closed details has no size.
    page.querySelectorAll("details").forEach(details => details.open = true);
    const charts = [...page.querySelectorAll("svg.chart")];
    seen.textContent = JSON.stringify({
        width: root.clientWidth,
        needed: root.scrollWidth,
        background: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
        values: [...page.querySelectorAll("data")].map(data => Number(data.value)),
        charts: charts.length,
        visible: charts.filter(chart => chart.getBoundingClientRect().height > 20).length,
    });
};
</script>
<iframe src="PAGE" onload="look(this)" style="display:block;border:0;width:WIDTHpx;height:4000px"></iframe>
"#;

/// A directory with pages.
struct Pages<'f> {
    folder: &'f Path,
    /// The browser's own files.
    profile: tempfile::TempDir,
}

impl<'f> Pages<'f> {
    fn new(folder: &'f Path) -> anyhow::Result<Self> {
        Ok(Self { folder, profile: tempfile::tempdir()? })
    }

    /// The browser on a page. Returns what it printed; fails if the page wrote to the console.
    fn browse(&self, page: &str, options: &[String]) -> anyhow::Result<String> {
        let mut browser = needs::command("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]);
        browser.args([
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
        ]);
        // Where the home directory or shared memory is missing or small, as in a container, the browser may not start.
        browser.args(["--disable-dev-shm-usage", "--disable-breakpad"]).env("HOME", self.profile.path());
        browser.env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME");
        browser.arg(format!("--user-data-dir={}", self.profile.path().display()));
        browser.args(options).arg(format!("file://{}", self.folder.join(page).display()));
        let output = browser.output().context("chromium")?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "chromium: {}\n{messages}", output.status);
        let console: Vec<&str> = messages.lines().filter(|line| line.contains(":CONSOLE")).collect();
        ensure!(console.is_empty(), "{page}: {}", console.join("\n"));
        String::from_utf8(output.stdout).context("the page as text")
    }

    /// Opens a page in a frame of a width.
    fn see(&self, page: &str, width: u32, options: &[String]) -> anyhow::Result<Seen> {
        let frame = format!("frame-{page}");
        let text = FRAME.replace("PAGE", page).replace("WIDTH", &width.to_string());
        std::fs::write(self.folder.join(&frame), text)?;
        let mut all = vec!["--dump-dom".to_string()];
        all.extend_from_slice(options);
        let dom = self.browse(&frame, &all)?;
        std::fs::remove_file(self.folder.join(&frame))?;
        let (_, rest) =
            dom.split_once("<output id=\"seen\" hidden=\"\">").context("the page has no output")?;
        let (seen, _) = rest.split_once("</output>").context("the output has no end")?;
        serde_json::from_str(seen).with_context(|| format!("{page}: {seen}"))
    }

    /// Keeps a picture of a page.
    fn shoot(&self, page: &str, name: &str, (width, height): (u32, u32), dark: bool) -> anyhow::Result<()> {
        let picture = self.folder.join(name);
        let options = [
            format!("--screenshot={}", picture.display()),
            format!("--window-size={width},{height}"),
            scheme(dark),
        ];
        self.browse(page, &options)?;
        let bytes = std::fs::read(&picture).with_context(|| picture.display().to_string())?;
        ensure!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{} is no picture", picture.display());
        Ok(())
    }
}

/// The color scheme that the user prefers.
fn scheme(dark: bool) -> String {
    format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 })
}

/// The results of the environment, or all kept runs; and where pages are written.
fn reports() -> anyhow::Result<(Vec<PathBuf>, PathBuf)> {
    if let Some(path) = std::env::var_os("XEBEC_BENCH_RESULTS") {
        let path = PathBuf::from(path).canonicalize()?;
        let folder = path.parent().context("a directory")?.to_path_buf();
        return Ok((vec![path], folder));
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runs");
    let files = std::fs::read_dir(&kept).with_context(|| kept.display().to_string())?;
    let files = files.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let files: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension().is_some_and(|found| found == "json")).collect();
    ensure!(!files.is_empty(), "no run is kept in {}", kept.display());
    Ok((files, env!("CARGO_TARGET_TMPDIR").into()))
}

/// Every median of the results is a number of the page.
fn has_all_medians(report: &Report, seen: &Seen) -> anyhow::Result<()> {
    let measured = report.experiments.iter().flat_map(|results| &results.measurements);
    for measurement in measured.filter(|measurement| measurement.median().is_finite()) {
        let median = measurement.median();
        let is_shown = seen.values.contains(&median);
        ensure!(is_shown, "{median} of {} in {} is missing", measurement.subject, measurement.task);
    }
    Ok(())
}

fn check(path: &Path, folder: &Path) -> anyhow::Result<()> {
    let report = Report::read(path)?;
    let name = path.file_stem().context("a file name")?.to_string_lossy();
    let page = format!("{name}-page.html");
    report.write_html(&folder.join(&page))?;
    let pages = Pages::new(folder)?;
    for (width, dark) in [(DESKTOP, false), (DESKTOP, true), (PHONE, false)] {
        let seen = pages.see(&page, width, &[scheme(dark)])?;
        has_all_medians(&report, &seen)?;
        ensure!(seen.width == width && seen.needed <= width, "{width} pixels are too few: {}", seen.needed);
        ensure!(seen.visible == seen.charts, "{} of {} charts are visible", seen.visible, seen.charts);
        ensure!(seen.background == if dark { DARK } else { LIGHT }, "{}", seen.background);
    }
    pages.shoot(&page, &format!("{name}-light.png"), (DESKTOP, 4000), false)?;
    pages.shoot(&page, &format!("{name}-dark.png"), (DESKTOP, 4000), true)?;
    let frame = format!("{name}-phone.html");
    let text = FRAME.replace("PAGE", &page).replace("WIDTH", &PHONE.to_string());
    std::fs::write(folder.join(&frame), text)?;
    pages.shoot(&frame, &format!("{name}-phone.png"), (PHONE, 4000), false)
}

#[test]
fn a_browser_shows_all_numbers_and_charts_at_any_width() {
    let Some(()) = needs::met(needs::tools(&["chromium"])) else { return };
    let (reports, folder) = reports().expect("there are reports");
    for path in reports {
        check(&path, &folder).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
    }
}

/// The test above would pass if the browser reported nothing.
#[test]
fn what_is_wrong_with_a_page_is_seen() {
    let Some(()) = needs::met(needs::tools(&["chromium"])) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let pages = Pages::new(folder.path()).expect("a profile");
    let write = |name: &str, body: &str| {
        std::fs::write(folder.path().join(name), format!("<!DOCTYPE html>{body}"))
            .expect("it can be written");
    };
    write(
        "wide.html",
        "<div style='width:700px'><data value='2.5'>2.5</data></div><svg class='chart' height='0'></svg>",
    );
    let seen = pages.see("wide.html", PHONE, &[]).expect("it is shown");
    assert!(seen.width == PHONE && seen.needed >= 700, "{seen:?}");
    assert_eq!((seen.values, seen.charts, seen.visible), (vec![2.5], 1, 0));
    write("wrong.html", "<script>console.error('something is wrong')</script>");
    let error = pages.see("wrong.html", PHONE, &[]).expect_err("the console says so").to_string();
    assert!(error.contains("something is wrong"), "{error}");
}
