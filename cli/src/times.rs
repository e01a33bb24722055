//! Formatting of times as in `ls` and `stat`, in local time, fast enough for millions of files.
//!
//! The UTC offset is constant between two transitions of a time zone, and the files of a volume fall into few such
//! spans: the span and the day of the last time are cached.

use format::timestamp::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// Format of times in listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeStyle {
    /// `Nov 21 05:54`, or `Nov 21  2025` if older than six months or in the future.
    Locale,
    /// `2026-11-21 05:54:01.000000000 +0000`.
    FullIso,
    /// `2026-11-21 05:54`.
    LongIso,
    /// `11-21 05:54`, or `2025-11-21 ` if older than six months or in the future.
    Iso,
    /// A format of `strftime`.
    Format(String),
}

impl TimeStyle {
    /// Parses the value of `--time-style`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "locale" => Ok(Self::Locale),
            "full-iso" => Ok(Self::FullIso),
            "long-iso" => Ok(Self::LongIso),
            "iso" => Ok(Self::Iso),
            _ => match text.strip_prefix('+') {
                Some(format) => Self::checked_format(format),
                None => Err("expected full-iso, long-iso, iso, locale or +FORMAT".into()),
            },
        }
    }

    fn checked_format(format: &str) -> Result<Self, String> {
        let epoch = jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        match jiff::fmt::strtime::format(format, &epoch) {
            Ok(_) => Ok(Self::Format(format.into())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Parses a time as GNU `touch -d` does: a date with optional time and zone, `@` and seconds since 1970, or relative
/// words such as `yesterday 10:00` and `2 days ago`. The default zone is local time.
pub fn parse_date(text: &str) -> Result<xebec::Time, String> {
    // In GNU touch, an empty text is the start of today.
    let words = if text.trim().is_empty() { "today 00:00" } else { text };
    let time = parse_datetime::parse_datetime(words).map_err(|_| {
        format!(
            "invalid date `{text}`; examples: 2026-11-21, '2026-11-21 16:30:00.5 +0200', 2026-11-21T16:30:00Z, \
             @1234567890, 'yesterday 10:00', '2 days ago'"
        )
    })?;
    let (seconds, nanos) = (time.unix_epoch_second(), time.subsec_nanosecond());
    // Before 1970 the fraction may be negative.
    let (seconds, nanos) = if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) };
    Ok(xebec::Time { seconds, nanos: nanos.unsigned_abs() })
}

/// Half of the mean Gregorian year in seconds: recent times, as in `ls`.
const RECENT: i64 = 31_556_952 / 2;

/// Formats times in the user's time zone. One per thread.
#[derive(Clone, Debug)]
pub struct TimeFormatter {
    zone: TimeZone,
    now: i64,
    /// Cached spans of constant offset, the last used one first.
    spans: Vec<OffsetSpan>,
    /// The last local day.
    day: Day,
}

/// Seconds from `start` up to `end`, and their UTC offset.
#[derive(Clone, Copy, Debug)]
struct OffsetSpan {
    start: i64,
    end: i64,
    offset: Offset,
}

/// A calendar day.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// Days since 1970-01-01.
    number: i64,
    year: i16,
    month: u8,
    day: u8,
}

/// A broken-down local time.
struct LocalTime {
    year: i16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    offset: i32,
}

const DAY: i64 = 24 * 60 * 60;
const EPOCH: Day = Day { number: 0, year: 1970, month: 1, day: 1 };

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl TimeFormatter {
    /// Uses the zone of `TZ` or of the system, and the current time.
    pub fn new() -> Self {
        Self::at(TimeZone::system(), jiff::Timestamp::now().as_second())
    }

    /// Uses the given zone and current time.
    pub fn at(zone: TimeZone, now: i64) -> Self {
        Self { zone, now, spans: Vec::new(), day: EPOCH }
    }

    /// Appends a time.
    pub fn push(&mut self, out: &mut Vec<u8>, time: Timestamp, style: &TimeStyle) {
        let Some(local) = self.local(time.seconds) else {
            // Beyond the years that the calendar supports, seconds are written, as GNU tools do.
            out.extend_from_slice(time.seconds.to_string().as_bytes());
            return;
        };
        let recent = time.seconds <= self.now && time.seconds > self.now - RECENT;
        match style {
            TimeStyle::Locale => local.push_locale(out, recent),
            TimeStyle::LongIso => {
                local.push_date(out);
                out.push(b' ');
                local.push_minute(out);
            }
            TimeStyle::Iso if recent => {
                push_two(out, local.month);
                out.push(b'-');
                push_two(out, local.day);
                out.push(b' ');
                local.push_minute(out);
            }
            TimeStyle::Iso => {
                local.push_date(out);
                out.push(b' ');
            }
            TimeStyle::FullIso => local.push_full(out, time.nanoseconds),
            TimeStyle::Format(format) => self.push_format(out, time, format),
        }
    }

    /// A time as in `stat`: `2026-11-21 05:54:01.000000000 +0000`.
    pub fn full(&mut self, time: Timestamp) -> String {
        let mut out = Vec::with_capacity(35);
        self.push(&mut out, time, &TimeStyle::FullIso);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn push_format(&self, out: &mut Vec<u8>, time: Timestamp, format: &str) {
        let stamp = jiff::Timestamp::new(time.seconds, time.nanoseconds as i32);
        let text = stamp.map(|stamp| jiff::fmt::strtime::format(format, &stamp.to_zoned(self.zone.clone())));
        // The format was validated; if it fails for this time alone, seconds are written.
        let text = text.and_then(|text| text).unwrap_or_else(|_| time.seconds.to_string());
        out.extend_from_slice(text.as_bytes());
    }

    fn local(&mut self, seconds: i64) -> Option<LocalTime> {
        let offset = self.offset(seconds)?;
        let local = seconds.checked_add(offset.seconds().into())?;
        let (number, second_of_day) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if self.day.number != number {
            let date = offset.to_datetime(jiff::Timestamp::from_second(seconds).ok()?).date();
            let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
            self.day = Day { number, year: date.year(), month, day };
        }
        let Day { year, month, day, .. } = self.day;
        let field = |unit: i64, count: i64| (second_of_day / unit % count) as u8;
        let (hour, minute, second) = (field(3600, 24), field(60, 60), field(1, 60));
        Some(LocalTime { year, month, day, hour, minute, second, offset: offset.seconds() })
    }

    fn offset(&mut self, seconds: i64) -> Option<Offset> {
        let index = match self.spans.iter().position(|span| (span.start..span.end).contains(&seconds)) {
            Some(index) => index,
            None => {
                self.spans.push(self.span(seconds)?);
                self.spans.len() - 1
            }
        };
        self.spans.swap(0, index);
        self.spans.first().map(|span| span.offset)
    }

    /// The span of constant offset around a time, between two transitions.
    fn span(&self, seconds: i64) -> Option<OffsetSpan> {
        let stamp = jiff::Timestamp::from_second(seconds).ok()?;
        // `preceding` excludes the time itself, which may be a transition that starts its span.
        let after = stamp.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
        let start = self.zone.preceding(after).next().map_or(i64::MIN, |t| t.timestamp().as_second());
        let end = self.zone.following(stamp).next().map_or(i64::MAX, |t| t.timestamp().as_second());
        Some(OffsetSpan { start, end, offset: self.zone.to_offset(stamp) })
    }
}

impl LocalTime {
    fn push_date(&self, out: &mut Vec<u8>) {
        push_year(out, self.year);
        out.push(b'-');
        push_two(out, self.month);
        out.push(b'-');
        push_two(out, self.day);
    }

    fn push_minute(&self, out: &mut Vec<u8>) {
        push_two(out, self.hour);
        out.push(b':');
        push_two(out, self.minute);
    }

    fn push_locale(&self, out: &mut Vec<u8>, recent: bool) {
        let month = MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or(b"???");
        out.extend_from_slice(month);
        out.push(b' ');
        crate::sizes::push_number(out, self.day.into(), 2);
        out.push(b' ');
        if recent {
            self.push_minute(out);
        } else {
            out.push(b' ');
            push_year(out, self.year);
        }
    }

    fn push_full(&self, out: &mut Vec<u8>, nanoseconds: u32) {
        self.push_date(out);
        out.push(b' ');
        self.push_minute(out);
        out.push(b':');
        push_two(out, self.second);
        out.push(b'.');
        push_two(out, (nanoseconds / 10_000_000) as u8);
        push_two(out, (nanoseconds / 100_000 % 100) as u8);
        push_two(out, (nanoseconds / 1000 % 100) as u8);
        push_two(out, (nanoseconds / 10 % 100) as u8);
        out.push(b'0' + (nanoseconds % 10) as u8);
        out.extend_from_slice(if self.offset < 0 { b" -" } else { b" +" });
        let minutes = self.offset.unsigned_abs() / 60;
        push_two(out, (minutes / 60) as u8);
        push_two(out, (minutes % 60) as u8);
    }
}

fn push_two(out: &mut Vec<u8>, number: u8) {
    out.extend([b'0' + number / 10 % 10, b'0' + number % 10]);
}

fn push_year(out: &mut Vec<u8>, year: i16) {
    if (0..=9999).contains(&year) {
        push_two(out, (year / 100) as u8);
        push_two(out, (year % 100) as u8);
    } else {
        out.extend_from_slice(year.to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_240_441; // 2026-11-21 05:54:01 UTC

    fn text(times: &mut TimeFormatter, seconds: i64, nanoseconds: u32, style: &TimeStyle) -> String {
        let mut out = Vec::new();
        times.push(&mut out, Timestamp { seconds, nanoseconds }, style);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn formats_times_in_the_styles_of_ls() {
        let mut times = TimeFormatter::at(TimeZone::UTC, NOW);
        for (seconds, style, expected) in [
            (NOW, TimeStyle::Locale, "Nov 21 05:54"),
            (NOW + 1, TimeStyle::Locale, "Nov 21  2026"),
            (NOW - RECENT, TimeStyle::Locale, "May 22  2026"),
            (NOW - RECENT + 1, TimeStyle::Iso, "05-22 14:59"),
            (0, TimeStyle::Iso, "1970-01-01 "),
            (-1, TimeStyle::LongIso, "1969-12-31 23:59"),
            (-1, TimeStyle::FullIso, "1969-12-31 23:59:59.123456789 +0000"),
            (0, TimeStyle::Format("%F at %H".into()), "1970-01-01 at 00"),
        ] {
            assert_eq!(text(&mut times, seconds, 123_456_789, &style), expected);
        }
    }

    #[test]
    fn uses_the_offset_of_the_time_in_any_order_of_calls() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        // 2026-10-25 01:00 UTC: from +02:00 to +01:00; then times in the far future and the past.
        let end_of_summer = 1_792_890_000;
        let expected = [
            (end_of_summer - 1, "2026-10-25 02:59:59.000000000 +0200"),
            (end_of_summer, "2026-10-25 02:00:00.000000000 +0100"),
            (16_299_260_425, "2486-07-02 22:20:25.000000000 +0200"),
            (-2_147_483_648, "1901-12-13 21:45:52.000000000 +0100"),
        ];
        for first in 0..expected.len() {
            let mut times = TimeFormatter::at(zone.clone(), NOW);
            for n in 0..expected.len() {
                let (seconds, time) = expected[(n + first) % expected.len()];
                assert_eq!(text(&mut times, seconds, 0, &TimeStyle::FullIso), time);
            }
        }
    }

    #[test]
    fn refuses_an_invalid_format() {
        assert!(TimeStyle::parse("+%").is_err());
        assert!(TimeStyle::parse("yesterday").is_err());
        assert_eq!(TimeStyle::parse("+%F"), Ok(TimeStyle::Format("%F".into())));
    }
}
