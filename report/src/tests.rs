use super::charts::{Palette, latencies, scaling};
use super::compare::compare;
use super::figures::{Runs, fill};
use super::number::{NONE, value};
use super::sharing::{Pair, SharedLines, Sharing};
use super::tasks::tasks;
use super::*;
use crate::record::{Comparison, Latency, Measurement, Paired, Published, Target};

const OURS: &str = "Xebec, as a library";
const PEER: &str = "the kernel's XFS on a loop mount";

fn machine() -> Machine {
    Machine {
        processor: "Example 3000".into(),
        cores: 8,
        memory_bytes: 16 << 30,
        kernel: "Linux 6.18".into(),
        system: "Debian 12".into(),
        load: 0.1,
        date: "2026-01-02 03:04 UTC".into(),
        commit: "0123456789ab".into(),
        profile: "release".into(),
        versions: vec![("tar".into(), "tar (GNU tar) 1.34".into())],
    }
}

fn measurement(task: &str, unit: &str, subject: &str, threads: Option<u32>, runs: &[f64]) -> Measurement {
    Measurement {
        task: task.into(),
        subject: subject.into(),
        unit: unit.into(),
        less_is_better: !unit.ends_with("/s"),
        threads,
        runs: runs.into(),
        latency: None,
    }
}

fn comparison(task: &str, unit: &str, threads: Option<u32>, target: Option<Target>) -> Comparison {
    Comparison {
        task: task.into(),
        unit: unit.into(),
        threads,
        subject: OURS.into(),
        peer: Some(PEER.into()),
        target,
        paired: None,
    }
}

fn latency() -> Latency {
    let histogram = vec![(1.0, 0), (2.0, 700), (4.0, 290), (8.0, 9), (16.0, 1)];
    Latency { p50_us: 1.8, p99_us: 3.9, p999_us: 7.5, histogram }
}

/// Creates by 1, 2 and 4 threads, of which the last is a loss; and a time that misses its target.
fn report() -> Report {
    let mut results = Results {
        experiment: "file-ops".into(),
        summary: "Creates and lists files".into(),
        source: "Someone, https://example.org/a?b=1&c=2, 2010".into(),
        seconds: 61.0,
        ..Results::default()
    };
    results.published.push(Published {
        what: "creates".into(),
        figures: "119 by one thread".into(),
        comparable: "the growth".into(),
    });
    let rates = [
        (1, [735_432.0, 731_000.5, 785_123.0], [55_010.0, 50_100.0, 55_300.0]),
        (2, [1_402_000.0, 1_390_000.0, 1_431_000.0], [104_000.0, 101_000.0, 109_000.0]),
        (4, [180_000.0, 179_000.0, 181_000.0], [205_000.0, 199_000.0, 209_000.0]),
    ];
    for (threads, ours, peers) in rates {
        let mut measured = measurement("create", "files/s", OURS, Some(threads), &ours);
        measured.latency = Some(latency());
        results.measurements.push(measured);
        results.measurements.push(measurement("create", "files/s", PEER, Some(threads), &peers));
        results.comparisons.push(comparison("create", "files/s", Some(threads), None));
    }
    results.measurements.push(measurement("list", "s", OURS, None, &[0.1523, 0.1441, 0.159]));
    results.measurements.push(measurement("list", "s", PEER, None, &[0.2, 0.19, 0.21]));
    results.comparisons.push(comparison("list", "s", None, Some(Target::RatioAtMost(0.5))));
    let mut report = Report::new("xebec bench file-ops".into(), false, machine());
    report.experiments.push(results);
    report.finished = true;
    report
}

/// An experiment as the terminal shows it.
fn in_text(results: &Results) -> String {
    text::opening(results) + &text::blocks(results, None) + &text::closing(results)
}

/// The numbers of a page: exact and as shown.
fn data_cells(page: &str) -> Vec<(f64, String)> {
    let cells = page.split("<data value=\"").skip(1).map(|rest| {
        let (exact, rest) = rest.split_once('"').expect("the end of the attribute");
        let (_, rest) = rest.split_once('>').expect("the end of the tag");
        let (shown, _) = rest.split_once("</data>").expect("the end of the element");
        (exact.parse().expect("a number"), shown.to_string())
    });
    cells.collect()
}

#[test]
fn json_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("results.json");
    let report = report();
    report.write_json(&path).expect("it can be written");
    report.write_json(&path).expect("it can be replaced");
    assert_eq!(Report::read(&path).expect("it can be read"), report);
    let files: Vec<_> = std::fs::read_dir(folder.path()).expect("a directory").collect();
    assert_eq!(files.len(), 1, "no temporary file is left");
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("results.json");
    let message = |content: Option<&str>| {
        if let Some(content) = content {
            std::fs::write(&path, content).expect("it can be written");
        }
        format!("{:#}", Report::read(&path).expect_err("no report"))
    };
    for (content, what) in [
        (None, "--results FILE"),
        (Some("{}"), "is not a report"),
        (Some("no JSON"), "is not a report"),
        (Some("{\"format\": 2, \"smoke\": true}"), "version 2, but this program reads version 3"),
        (Some("{\"format\": 3}"), "damaged"),
    ] {
        let message = message(content);
        assert!(message.contains("results.json") && message.contains(what), "{message}");
    }
    let unwritable = folder.path().join("missing/results.json");
    let message = format!("{:#}", report().write_json(&unwritable).expect_err("no directory"));
    assert!(message.contains("missing/results.json") && message.contains("name another file"), "{message}");
}

/// JSON has no NaN: it becomes `null`, which must be readable.
#[test]
fn a_value_that_is_no_number_survives() {
    let mut report = report();
    report.machine.load = f64::NAN;
    let results = report.experiments.first_mut().expect("one experiment");
    for measurement in &mut results.measurements {
        measurement.runs.fill(f64::NAN);
    }
    if let Some(latency) = results.measurements.first_mut().and_then(|first| first.latency.as_mut()) {
        latency.p99_us = f64::NAN;
    }
    let json = report.to_json().expect("it can be written");
    let again: Report = serde_json::from_str(&json).expect("it can be read");
    assert!(again.machine.load.is_nan());
    let page = html::page(&again).expect("it can be drawn");
    assert!(!page.contains("NaN") && page.contains(NONE));
    assert!(!in_text(&again.experiments[0]).contains("NaN"));
    assert_eq!(compare(&again, &again).changes.len(), 8);
}

#[test]
fn numbers_of_html_text_and_json_are_equal() {
    let report = report();
    let json = serde_json::from_str::<Report>(&report.to_json().expect("JSON")).expect("JSON");
    let page = html::page(&report).expect("it can be drawn");
    let cells = data_cells(&page);
    for measurement in &json.experiments[0].measurements {
        let shown = value(measurement.median(), &measurement.unit);
        let is_it = |(exact, text): &&(f64, String)| *exact == measurement.median() && *text == shown;
        assert!(cells.iter().any(|cell| is_it(&cell)), "{shown} of {} is missing", measurement.subject);
        let (low, high) = measurement.spread();
        for end in [low, high].map(|end| value(end, &measurement.unit)) {
            assert!(page.contains(&end), "{end} is missing");
            assert!(in_text(&report.experiments[0]).contains(&end));
        }
        assert!(in_text(&report.experiments[0]).contains(&shown), "{shown} is missing in the text");
    }
    for (exact, shown) in cells {
        let digits: String = shown.chars().filter(char::is_ascii_digit).collect();
        let expected: String =
            format!("{exact:.3e}").chars().take_while(|c| *c != 'e').filter(char::is_ascii_digit).collect();
        assert!(
            expected.starts_with(digits.trim_start_matches('0').trim_end_matches('0')),
            "{shown} is not {exact}"
        );
    }
}

#[test]
fn losses_come_first_and_missed_targets_before_them() {
    let page = html::page(&report()).expect("it can be drawn");
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    let missed = at("ratio at most 0.5: MISSED");
    let lost = at("file-ops, 4 threads");
    assert!(at("Where Xebec loses") < missed && missed < lost && lost < at("id=\"experiment-file-ops\""));
    assert!(!page.contains("file-ops, 2 threads"), "a gain is no loss");
    let foot = text::foot(&report());
    assert!(foot.contains("MISSED") && foot.contains("WORSE"), "{foot}");
}

#[test]
fn names_are_escaped() {
    let mut report = report();
    let evil = "Xebec <script>alert(1)</script> \"#010100\" & '";
    for measurement in &mut report.experiments[0].measurements {
        measurement.task = evil.into();
        measurement.unit = evil.into();
        if measurement.subject == OURS {
            measurement.subject = evil.into();
        }
    }
    report.experiments[0].experiment = evil.into();
    report.experiments[0].notes.push(evil.into());
    report.experiments[0].source = format!("https://{evil}");
    report.command = evil.into();
    report.machine.processor = evil.into();
    let page = html::page(&report).expect("it can be drawn");
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;"));
    // No attribute ends at a quote of a name.
    for attribute in page.split("aria-label=\"").skip(1) {
        let (label, rest) = attribute.split_once('"').expect("the end of the attribute");
        assert!(
            !label.contains('<') && (rest.starts_with(" viewBox") || rest.starts_with('>')),
            "{rest:.40}"
        );
    }
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html::page(&report()).expect("it can be drawn");
    let page = page.replace("http://www.w3.org/2000/svg", "").replace("<a href=\"https://example.org", "");
    for absent in ["<script", "<link", "<img", "@import", "url(", "src=", "https://e"] {
        assert!(!page.contains(absent) || absent == "https://e", "{absent}");
    }
    assert!(!page.contains("#01"), "a placeholder is left");
}

#[test]
fn a_report_without_peers_or_results_has_a_page() {
    let mut report = report();
    let results = &mut report.experiments[0];
    results.measurements.retain(|measurement| measurement.subject == OURS);
    results.measurements[0].runs.clear();
    let page = html::page(&report).expect("it can be drawn");
    assert!(page.contains("Nothing was compared") && page.contains("lack a measurement"), "{page}");
    assert!(text::foot(&report).contains("Nothing was compared"));
    assert!(in_text(&report.experiments[0]).contains("not measured"));

    report.experiments[0].measurements.clear();
    assert!(html::page(&report).expect("it can be drawn").contains("Nothing was measured."));
    report.experiments.clear();
    let page = html::page(&report).expect("it can be drawn");
    assert!(page.contains("Nothing was compared"));
}

#[test]
fn warnings_are_visible() {
    let mut report = report();
    assert!(report.warnings().is_empty());
    report.quick = true;
    report.finished = false;
    report.machine.load = 3.5;
    report.machine.profile = "debug: not a measurement".into();
    assert_eq!(report.warnings().len(), 4);
    let page = html::page(&report).expect("it can be drawn");
    let head = text::head(&report);
    for what in ["quick run", "unoptimized build", "load of 3.5"] {
        assert!(page.contains(what) && head.contains(what), "{what}");
    }
    assert!(page.contains("did not finish") && !head.contains("did not finish"), "the head is printed first");
}

#[test]
fn charts_are_drawn_where_they_say_something() {
    let report = report();
    let tasks = tasks(&report.experiments[0]);
    let palette = Palette::of(&tasks);
    let [create, list] = &tasks[..] else { panic!("two tasks") };
    let chart = scaling::draw(create, &palette).expect("it can be drawn").expect("three numbers of threads");
    let names: Vec<_> = chart.legend.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, [PEER, OURS, "ideal scaling of Xebec, as a library"], "by the values at the right end");
    for text in ["files per second; more is better", "number of threads", "var(--series-1)", "viewBox"] {
        assert!(chart.svg.contains(text), "{text}");
    }
    assert!(!chart.svg.contains(" width=\"960\""), "the page sets the width");
    assert!(scaling::draw(list, &palette).expect("it can be drawn").is_none());
    assert_eq!(latencies::shown_threads(create), [Some(1), Some(4)]);
    assert!(latencies::draw(list, None, &palette).expect("it can be drawn").is_none());
    let chart =
        latencies::draw(create, Some(4), &palette).expect("it can be drawn").expect("it has latencies");
    for text in ["1 µs", "0.1 %", "share of calls that took longer, 4 threads"] {
        assert!(chart.svg.contains(text), "{text}");
    }
}

#[test]
fn compare_finds_what_differs() {
    let before = report();
    let mut after = before.clone();
    let measurements = &mut after.experiments[0].measurements;
    // Better, worse, and worse within the spread.
    measurements[0].runs = vec![900_000.0, 910_000.0, 920_000.0];
    measurements[1].runs = vec![40_000.0, 41_000.0, 42_000.0];
    measurements[2].runs = vec![1_395_000.0, 1_380_000.0, 1_410_000.0];
    measurements[3].subject = "another".into();
    after.machine.commit = "ba9876543210".into();
    after.quick = true;
    let changes = compare(&before, &after);
    let order: Vec<_> =
        changes.changes.iter().take(3).map(|change| (change.is_beyond_spread(), change.is_worse())).collect();
    assert_eq!(order, [(true, true), (true, false), (false, true)]);
    assert_eq!(changes.changes[0].before.subject, PEER);
    assert_eq!((changes.only_before, changes.only_after), (1, 1));
    let text = changes.to_text();
    for what in
        ["the commit differs: 0123456789ab; ba9876543210", "the size differs", "1 worse, 1 better", "0.7453"]
    {
        assert!(text.contains(what), "{what}: {text}");
    }
    assert!(!text.contains("the machine differs"));
    assert!(compare(&before, &before).changes.iter().all(|change| !change.is_beyond_spread()));
}

#[test]
fn text_fits_the_terminal() {
    let mut report = report();
    let results = &mut report.experiments[0];
    for number in 0..6 {
        let more = results.measurements[..6].to_vec();
        let subject = format!("peer number {number} with a long name");
        let of_peer = |measurement| Measurement { subject: subject.clone(), ..measurement };
        results.measurements.extend(more.into_iter().map(of_peer));
    }
    let text = in_text(results) + &text::foot(&report) + &text::head(&report);
    for line in text.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

fn pair(name: &str, shared: &[&str], rates: [f64; 2]) -> Pair {
    let lines = |reason: &&str| SharedLines {
        writers: vec!["journal/src/engine/grant.rs take".into()],
        readers: Vec::new(),
        lines: 1.0,
        transfers: 2.0,
        rounds: 1.0,
        reasons: vec![(*reason).into()],
    };
    Pair {
        name: name.into(),
        instructions: [1000.0, 1200.0],
        trace_lines: 9000,
        shared: shared.iter().map(lines).collect(),
        predicted: vec![(1, rates[0]), (256, rates[1])],
        complaints: Vec::new(),
    }
}

fn with_sharing() -> Report {
    let mut report = report();
    let pairs = vec![
        pair("stat / stat: one file", &[], [4e6, 1e9]),
        pair("chmod / chmod: two AGs", &["LogOrder"], [1e6, 8e6]),
        pair("create / create: one AG", &["OneAg", "LogOrder"], [0.5e6, 7e6]),
    ];
    report.experiments[0].sharing =
        Some(Sharing { machine: Some(machine()), transfer_ns: 60.0, instructions_per_ns: 4.0, pairs });
    report
}

#[test]
fn what_operations_share_is_shown_everywhere() {
    let report = with_sharing();
    let again: Report = serde_json::from_str(&report.to_json().expect("JSON")).expect("JSON");
    assert_eq!(again, report);
    let page = html::page(&report).expect("it can be drawn");
    let text = in_text(&report.experiments[0]);
    let markdown = markdown::experiment(&report, &report.experiments[0]);
    for what in ["log order, one ag", "2 pairs share cache lines", "1 pairs share none", "1.000 G"] {
        assert!(page.contains(what) && text.contains(what) && markdown.contains(what), "{what}: {markdown}");
    }
    assert!(page.contains("number of CPUs, logarithmic") && page.contains("no shared line (1 pairs)"));
}

#[test]
fn documents_get_the_figures_of_the_latest_full_run() {
    let mut runs = Runs::default();
    let mut old = report();
    old.machine.date = "2025-12-31 23:59 UTC".into();
    old.experiments[0].measurements[0].runs = vec![1.0];
    let mut quick = report();
    quick.machine.date = "2026-12-31 23:59 UTC".into();
    quick.quick = true;
    quick.experiments[0].measurements[0].runs = vec![2.0];
    let kept = [("docs/runs/b.json", report()), ("docs/runs/a.json", old), ("docs/runs/c.json", quick)];
    for (path, report) in kept {
        runs.add(path, &report.to_json().expect("JSON")).expect("a report");
    }
    let one = "Creates <!-- figure: file-ops; create; Xebec, as a library -->x<!-- end -->,\n\
        <!-- figure: file-ops; create; Xebec, as a library; the kernel's XFS on a loop mount --><!-- end --> times.";
    let filled = fill(one, &runs).expect("figures");
    assert!(
        filled.contains("-->740 k files/s<!-- end -->") && filled.contains("-->13<!-- end --> times."),
        "{filled}"
    );
    assert_eq!(fill(&filled, &runs).expect("figures"), filled, "a second time changes nothing");
    let block = fill("a\n<!-- figures: file-ops -->\nold\n<!-- end -->\nb\n", &runs).expect("figures");
    for row in [
        "| task | beside | 1 thread | 2 threads | 4 threads | target |",
        "| create | the kernel's XFS on a loop mount | 13.37 (735.4 k files/s; 55.01 k files/s) |",
        "| list | 152.3 ms (144.1 ms to 159.0 ms) | 200.0 ms, the kernel's XFS on a loop mount",
        "| 0.7615 | ratio at most 0.5: missed |",
        "| creates | 119 by one thread | the growth |",
        "<!-- figures: file-ops -->\nSomeone,",
        "|\n<!-- end -->\nb\n",
    ] {
        assert!(block.contains(row), "{row}: {block}");
    }
    for quoted in
        ["write `<!-- figures: gone -->`", "`a <!-- figures: gone -->`", "```\n<!-- figure: a -->\n\n```"]
    {
        assert_eq!(fill(quoted, &runs).expect("no marker"), quoted);
    }
    let marker = "<!-- figure: file-ops; create; Xebec, as a library -->";
    let after_a_span = fill(&format!("`create`{marker}<!-- end -->"), &runs).expect("figures");
    assert_eq!(after_a_span, format!("`create`{marker}740 k files/s<!-- end -->"));
    let listed = fill("<!-- figures: runs -->\n<!-- end -->", &runs).expect("figures");
    assert!(
        ["a", "b", "c"].iter().all(|run| listed.contains(&format!("- `docs/runs/{run}.json`: "))),
        "{listed}"
    );
    let mut part = report();
    part.machine.date = "2026-02-01 00:00 UTC".into();
    part.experiments[0].measurements.retain(|measurement| measurement.task == "list");
    part.experiments[0].measurements[0].runs = vec![0.1];
    runs.add("docs/runs/part.json", &part.to_json().expect("JSON")).expect("a report");
    let merged = fill("<!-- figures: file-ops -->\n<!-- end -->", &runs).expect("figures");
    assert!(merged.contains("| list | 100.0 ms |") && !merged.contains("152.3 ms"), "{merged}");
    assert!(
        merged.contains("| create | the kernel's XFS") && merged.matches("Someone").count() == 1,
        "{merged}"
    );
    for wrong in [
        "<!-- figures: gone -->\n<!-- end -->",
        "<!-- figures: file-ops -->",
        "<!-- figure: file-ops; create; nobody --><!-- end -->",
        "<!-- figure: file-ops; create --><!-- end -->",
        "<!-- figured --><!-- end -->",
        // The prose between them would be lost.
        "<!-- figures: file-ops -->\nprose\n<!-- figures: file-ops -->\n<!-- end -->",
    ] {
        assert!(fill(wrong, &runs).is_err(), "{wrong}");
    }
}

#[test]
fn a_sentence_has_no_figures_of_quick_or_debug_runs() {
    let query =
        "<!-- figure: file-ops; list; Xebec, as a library; the kernel's XFS on a loop mount --><!-- end -->";
    let table = "<!-- figures: file-ops -->\n<!-- end -->";
    let filled = |report: &Report, text: &str| {
        let mut runs = Runs::default();
        runs.add("docs/runs/a.json", &report.to_json().expect("JSON")).expect("a report");
        fill(text, &runs)
    };
    assert!(filled(&report(), query).expect("a figure").contains("-->0.76<!--"));
    let (mut quick, mut debug, mut units, mut notes) = (report(), report(), report(), report());
    quick.quick = true;
    debug.machine.profile = "debug: not a measurement".into();
    for (report, says) in [(&quick, "a quick run"), (&debug, "not a measurement")] {
        let text = filled(report, table).expect("a table");
        assert!(text.contains(says), "the table says what it is of: {text}");
    }
    let results = &mut units.experiments[0];
    results.measurements.push(measurement("list", "MiB", OURS, None, &[1.0]));
    results.measurements.push(measurement("list", "MiB", PEER, None, &[1.0]));
    results.comparisons.push(comparison("list", "MiB", None, None));
    for wrong in [&quick, &debug, &units] {
        assert!(filled(wrong, query).is_err());
    }
    // A run that was interrupted before the first task hid the figures of the others.
    notes.experiments[0].measurements.clear();
    notes.experiments[0].notes.push("not measured".into());
    notes.machine.date = "2026-12-31 23:59 UTC".into();
    assert!(filled(&notes, table).is_err(), "an empty block");
    let mut runs = Runs::default();
    for (path, report) in [("docs/runs/a.json", report()), ("docs/runs/b.json", notes)] {
        runs.add(path, &report.to_json().expect("JSON")).expect("a report");
    }
    assert!(fill(table, &runs).expect("figures").contains("| list | 152.3 ms"));
}

#[test]
fn documents_mark_runs_that_are_not_to_be_trusted() {
    let mut report = report();
    report.finished = false;
    report.machine.load = 3.5;
    let listed = markdown::machine("docs/runs/a.json", &report).replace("\n  ", " ");
    assert!(listed.contains("did not finish") && listed.contains("load of 3.5"), "{listed}");
}

/// Runs beside one peer do not change the ratio to another one.
#[test]
fn a_ratio_is_that_of_runs_made_in_turns() {
    let mut report = report();
    let results = &mut report.experiments[0];
    results.measurements.push(measurement("make", "s", OURS, None, &[2.0, 8.0]));
    results.measurements.push(measurement("make", "s", PEER, None, &[4.0]));
    let paired = Some(Paired { subject: vec![2.0], peer: vec![4.0] });
    results.comparisons.push(Comparison { paired, ..comparison("make", "s", None, None) });
    let again: Report = serde_json::from_str(&report.to_json().expect("JSON")).expect("JSON");
    assert_eq!(again, report);
    let text = in_text(&report.experiments[0]);
    assert!(text.contains("0.5000") && text.contains("5.000 s"), "the median of all runs stays: {text}");
    let table = markdown::experiment(&report, &report.experiments[0]);
    assert!(
        table.contains("| make | 2.000 s | 4.000 s, the kernel's XFS on a loop mount | 0.5000 |"),
        "{table}"
    );
}
