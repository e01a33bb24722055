//! `touch -d` compared with GNU date: the same time, to the nanosecond, in three time zones.
//!
//! Not compared: dates that GNU refuses and xebec accepts (times skipped in spring, `10:00 + 90 minutes`), and the hour
//! that occurs twice in autumn, of which GNU uses the second, xebec the first.

use samples::Sample;

use crate::Scene;

/// Dates that do not depend on the current time.
const FIXED: &[&str] = &[
    "@0",
    "@1",
    "@-1",
    "@-1.5",
    "@1234567890.5",
    "@1234567890.123456789",
    "@0.000000001",
    "@4000000000",
    "@-2000000000",
    "2024-01-15",
    "2024-02-29",
    "2024-02-30",
    "2023-02-29",
    "2024-13-01",
    "2024-00-10",
    "1969-12-31",
    "1950-06-01",
    "2024-01-15 10:30",
    "2024-01-15 10:30:45",
    "2024-01-15 10:30:45.5",
    "2024-01-15 10:30:45.123456789",
    "2024-01-15T10:30:45",
    "2024-01-15T10:30:45Z",
    "2024-01-15T10:30:45+02:00",
    "2024-01-15T10:30:45.25-05:30",
    "2024-01-15 10:30:45 UTC",
    "2024-01-15 10:30 +0530",
    "2024-01-15 10:30:45 -08",
    "2024-01-15 24:00",
    "2024-01-15 10:60",
    "2024-01-15 25:00",
    "20240115",
    "20240115 1030",
    "01/15/2024",
    "1/2/2024",
    "15 Jan 2024",
    "Jan 15 2024",
    "January 15, 2024",
    "15 January 2024 10:30",
    "15-Jan-2024",
    "Mon, 15 Jan 2024 10:30:45 +0000",
    "Mon Jan 15 10:30:45 UTC 2024",
    "2024-01-15 10:30 PM",
    "2024-01-15 10:30 am",
    "2024-01-15 12 AM",
    "2024-01-15 + 3 days",
    "2024-01-15 3 days",
    "2024-01-15 -1 week",
    "2024-01-31 + 1 month",
    "2024-02-29 + 1 year",
    "2024-01-15 10:00 2 hours ago",
    "2024-01-15 10:30 1 day ago",
    "2024-01-15 tomorrow",
    "2038-01-19 03:14:08",
    "2200-01-01",
    "gestern",
    "@x",
    "2024-01-15x",
    "10:30 10:40",
    "2024-01-15 2024-01-16",
];

/// Dates relative to the current time or day.
const RELATIVE: &[&str] = &[
    "",
    "now",
    "today",
    "yesterday",
    "tomorrow",
    "yesterday 10:00",
    "tomorrow 23:59:59",
    "2 days ago",
    "1 week ago",
    "3 weeks",
    "next month",
    "last year",
    "next friday",
    "last monday",
    "monday",
    "10:30",
    "10:30 PM",
    "noon",
    "-1 hour",
    "+90 minutes",
    "5 minutes ago",
    "a day ago",
    "1 fortnight ago",
    "next week 12:00",
    "30 seconds ago",
];

/// Seconds and nanoseconds of GNU date; `None` if it refuses the text.
fn gnu(zone: &str, words: &str) -> Option<(i64, u32)> {
    let output = needs::command("date").env("TZ", zone).args(["+%s %N", "-d", words]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (seconds, nanos) = text.trim().split_once(' ')?;
    Some((seconds.parse().unwrap(), nanos.parse().unwrap()))
}

/// Times that one session sets on the files `/t/N`; `None` if it refuses the text.
fn ours(scene: &Scene, zone: &str, all: &[&str]) -> Vec<Option<(i64, u32)>> {
    let lines = all.iter().enumerate().map(|(n, words)| format!("touch -d '{words}' /t/{n}\n"));
    let lines = format!("rm -rf /t\nmkdir /t\n{}", lines.collect::<String>());
    let mut session = scene.xebec("sh", &["-q"]);
    session.env("TZ", zone).write_stdin(lines).output().unwrap();
    let listed = scene.json("ls", &["-l", "/t"]);
    let mut times = vec![None; all.len()];
    for entry in listed["entries"].as_array().unwrap() {
        let place: usize = entry["path"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
        let (seconds, nanos) = entry["mtime"].as_str().unwrap().split_once('.').unwrap();
        times[place] = Some((seconds.parse().unwrap(), nanos.parse().unwrap()));
    }
    times
}

#[test]
fn touch_parses_dates_as_gnu_touch_does() {
    let Some(()) = needs::met(needs::tools(&["date"])) else { return };
    let scene = Scene::new(Sample::Clean);
    let mut differ = Vec::new();
    for zone in ["UTC", "Europe/Berlin", "America/New_York"] {
        for (words, own) in FIXED.iter().zip(ours(&scene, zone, FIXED)) {
            let theirs = gnu(zone, words);
            if own != theirs {
                differ.push(format!("{zone}: {words:?}: GNU {theirs:?}, Xebec {own:?}"));
            }
        }
        // GNU date runs before and after xebec: the result is between both.
        let before: Vec<_> = RELATIVE.iter().map(|words| gnu(zone, words)).collect();
        let own = ours(&scene, zone, RELATIVE);
        for ((words, before), own) in RELATIVE.iter().zip(before).zip(own) {
            let after = gnu(zone, words);
            let lies_between = match (before, own, after) {
                (Some(before), Some(own), Some(after)) => {
                    // Midnight or a new week may be between the runs.
                    (before..=after).contains(&own)
                }
                (before, own, _) => before.is_none() && own.is_none(),
            };
            if !lies_between {
                differ.push(format!("{zone}: {words:?}: GNU {before:?} to {after:?}, Xebec {own:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let message = scene.xebec("touch", &["-d", "gestern", "/x"]).assert().code(2).get_output().stderr.clone();
    let message = String::from_utf8(message).unwrap();
    assert!(message.contains("invalid date `gestern`") && message.contains("'2 days ago'"), "{message}");
}
