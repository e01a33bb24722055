//! `xebec status --watch`: what a mount does in each interval.

use crate::scripts::run;

/// Blocks of text and lines of JSON have what happened; both end with the mount, and with a signal.
#[test]
fn a_watch_shows_each_interval_and_ends_with_the_mount() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
"$xebec" status --watch 0.3 mnt > text 2> text.error & text=$!
"$xebec" status --watch=0.3 --json mnt > lines 2> lines.error & lines=$!
"$xebec" status --watch 0.3 mnt > stopped & stopped=$!
for n in $(seq 300); do echo $n > mnt/$n; done
sync mnt/300
for try in $(seq 100); do [ "$(wc -l < lines)" -ge 4 ] && break; sleep 0.1; done
kill -INT $stopped
wait $stopped || fail "the interrupted watch failed: $?"
grep -q '^operation ' stopped || fail "the interrupted watch has no block"
if "$xebec" status --watch 0 mnt > output 2>&1; then fail "an interval of 0"; fi
"$xebec" umount mnt
wait $text || fail "the text did not end well: $(cat text.error)"
wait $lines || fail "the lines did not end well: $(cat lines.error)"
grep -q 'the mount has ended' text.error || fail "no message: $(cat text.error)"
python3 - <<'END' || fail "wrong contents: $(cat text)"
import json, re
lines = [json.loads(line) for line in open("lines")]
assert len(lines) >= 4 and all(line["command"] == "status" for line in lines)
times = [float(line["time"]) for line in lines]
assert times == sorted(times) and times[0] + 0.25 < times[1], times
first, last = lines[0], lines[-1]
assert last["log"]["commits"] >= first["log"]["commits"], last
# The log is on the device; the contents may not be yet.
assert last["device"]["written_bytes"] >= last["log"]["written_bytes"] > 0, last
assert last["device"]["flushes"] > 0 and last["device"]["writes"] > 0
text = open("text").read()
blocks = text.split("\n\nmnt: ")
assert len(blocks) >= 2 and "\x1b" not in text, text
for block in blocks:
    for name in "memory", "cache", "reclaim", "writeback", "log", "reads", "writes", "flushes", "space":
        assert re.search(f"^{name} ", block, re.M), (name, block)
assert re.search(r"^(create|mknod) +[0-9.]+ ", text, re.M), text
END
judge image afterwards
"#;
    run("a_watch_shows_each_interval_and_ends_with_the_mount", &["python3"], script);
}
