//! The terms of a report, explained.

/// Terms and their meanings, in the order in which a reader meets them.
pub const TERMS: &[(&str, &str)] = &[
    (
        "subject, peer",
        "A subject is who did a task: Xebec as a library, Xebec mounted, or another file system or program. A peer is \
         the subject that Xebec is compared with. All subjects ran in turns, on the same machine.",
    ),
    (
        "run",
        "One repetition of a task. Unless the run was quick, a first run of each subject is not counted.",
    ),
    ("median", "The middle of the values of all runs; of an even number, the mean of the two in the middle."),
    (
        "spread",
        "The lowest and the highest run. Where the spreads of two subjects overlap, the difference of their medians \
         may be chance.",
    ),
    (
        "ratio",
        "The median of the subject divided by the median of the peer. For rates, more than 1 is better; for times and \
         memory, less than 1 is better. Ratios depend less on the machine than the numbers themselves.",
    ),
    ("target", "What Xebec must reach. It was fixed before the measurement."),
    ("threads", "Number of threads that do the task at the same time. Rates are sums of all threads."),
    (
        "ideal scaling",
        "The rate with the fewest threads, multiplied by the number of threads. It is beyond reach with more threads \
         than CPUs.",
    ),
    (
        "latency, p50, p99, p99.9",
        "How long one call took. p50: half of the calls took at most this long. p99: 99 of 100 calls. p99.9: 999 of \
         1000 calls.",
    ),
    (
        "k, M, G",
        "Thousand, million, billion (10⁹). Numbers are rounded to four digits; the JSON file has all digits.",
    ),
];
