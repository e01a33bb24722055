//! Memory pressure: a budget becomes smaller while the machine, or the process's control group, is short of memory.
//!
//! Linux measures how long threads wait for memory (pressure stall information). While some do so for a tenth of the
//! time, the limit of the budget falls by an eighth of it each time that is noticed, down to an eighth. When there is
//! no pressure, it rises again by a thirty-second every ten seconds. It is also at most a part of the memory that the
//! process may use, whose limit may change.
//!
//! | the system | notices pressure |
//! |---|---|
//! | reports its beginning through a file descriptor | within two seconds |
//! | only has averages, which are read every ten seconds | after some tens of seconds |
//!
//! Nothing depends on the moment at which pressure is noticed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Budget, machine};
use crate::thread;

/// Percent of the time at which memory is short.
const SHORT_PERCENT: u32 = 10;
/// Percent of the time below which the limit rises.
const CALM_PERCENT: u32 = 1;
/// The limit does not fall below this, nor below an eighth of the budget.
const LIMIT_LEAST: u64 = 16 << 20;
/// Time between two steps of the limit upwards, and between two looks at the averages.
const STEP: Duration = Duration::from_secs(10);
/// Time between two looks at the limit of the control group, while the system reports pressure by itself.
const LOOK: Duration = Duration::from_secs(60);

/// The state of memory outside of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Percent of the last seconds in which some thread waited for memory.
    pub some_percent: u32,
    /// Memory that the process may use, in bytes; `None` if it is not known.
    pub memory: Option<u64>,
}

/// Why a [source](PressureSource) has woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PressureEvent {
    /// Memory is short.
    Short,
    /// The time has passed.
    Time,
    /// The source reports nothing more.
    End,
}

/// Where a budget learns of memory pressure: the system, or a test.
pub trait PressureSource: Send {
    /// Whether [`wait`](Self::wait) ends when memory becomes short.
    fn notices(&self) -> bool;

    /// Waits so long, or until memory becomes short.
    fn wait(&mut self, time: Duration) -> PressureEvent;

    /// The state now.
    fn read(&mut self) -> Pressure;
}

impl Budget {
    /// Lowers the limit of the budget while memory is short, as the system reports. A thread waits for that; it ends
    /// with the budget. Does nothing if the budget has such a thread, or the system measures no pressure.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow_pressure(self: &Arc<Self>) -> io::Result<()> {
        match SystemPressure::find() {
            Some(source) => self.follow(source),
            None => Ok(()),
        }
    }

    /// Like [`follow_pressure`](Self::follow_pressure), with another source.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow(self: &Arc<Self>, source: impl PressureSource + 'static) -> io::Result<()> {
        if self.is_followed.swap(true, Relaxed) {
            return Ok(());
        }
        let budget = Arc::downgrade(self);
        thread::spawn("xebec-memory", move || follow(&budget, source)).map(drop)
    }

    /// Takes a step of the limit. Returns whether it is as high as it may be.
    fn regulate(&self, event: PressureEvent, now: Pressure) -> bool {
        if let (Some(part), Some(memory)) = (self.part_of_memory, now.memory) {
            self.bytes.store(memory / part, Relaxed);
        }
        let highest = now.memory.map_or(self.bytes(), |memory| self.bytes().min(memory / 2));
        let next = step(self.limit(), self.bytes(), highest, event == PressureEvent::Short, now.some_percent);
        self.set_limit(next);
        next >= highest
    }
}

/// The next limit.
fn step(limit: u64, bytes: u64, highest: u64, became_short: bool, some_percent: u32) -> u64 {
    let lowest = (bytes / 8).max(LIMIT_LEAST).min(highest);
    let next = if became_short || some_percent >= SHORT_PERCENT {
        limit.saturating_sub(bytes / 8)
    } else if some_percent < CALM_PERCENT {
        limit.saturating_add(bytes / 32)
    } else {
        limit
    };
    next.clamp(lowest, highest)
}

/// The loop of the thread.
fn follow(budget: &Weak<Budget>, mut source: impl PressureSource) {
    let mut is_highest = true;
    loop {
        let time = if is_highest && source.notices() { LOOK } else { STEP };
        let event = source.wait(time);
        let Some(budget) = budget.upgrade().filter(|_| event != PressureEvent::End) else { return };
        let now = source.read();
        is_highest = budget.regulate(event, now);
        budget.make_all_room();
    }
}

/// The pressure that the system measures for the control group of the process, or the machine.
struct SystemPressure {
    path: PathBuf,
    /// Becomes readable when pressure begins; `None` if the system does not offer that.
    trigger: Option<File>,
}

impl SystemPressure {
    fn find() -> Option<Self> {
        let group = machine::own_group().map(|group| group.join("memory.pressure"));
        let paths = group.into_iter().chain([PathBuf::from("/proc/pressure/memory")]);
        let path = paths
            .into_iter()
            .find(|path| fs::read_to_string(path).is_ok_and(|text| some_percent(&text).is_some()))?;
        Some(Self { trigger: trigger(&path).ok(), path })
    }
}

/// A descriptor that reports when threads waited for memory for a tenth of two seconds. Unprivileged processes may wait
/// for multiples of two seconds only.
fn trigger(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all(b"some 200000 2000000\0")?;
    Ok(file)
}

/// The average of the last ten seconds in a file with pressure, in percent: `some avg10=1.23 avg60=...`.
fn some_percent(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    average.split('.').next()?.parse().ok()
}

impl PressureSource for SystemPressure {
    fn notices(&self) -> bool {
        self.trigger.is_some()
    }

    fn wait(&mut self, time: Duration) -> PressureEvent {
        let Some(trigger) = &self.trigger else {
            thread::sleep(time);
            return PressureEvent::Time;
        };
        let mut waiting = [PollFd::new(trigger, PollFlags::PRI)];
        let timeout = Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
        match poll(&mut waiting, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => PressureEvent::Time,
            Ok(_) if !waiting.iter().any(|one| one.revents().contains(PollFlags::ERR)) => {
                PressureEvent::Short
            }
            // The control group was removed, or the system has no such descriptors.
            _ => {
                self.trigger = None;
                PressureEvent::Time
            }
        }
    }

    fn read(&mut self) -> Pressure {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        Pressure { some_percent: some_percent(&text).unwrap_or(0), memory: machine::memory() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    #[test]
    fn the_limit_falls_in_steps_and_rises_slowly() {
        let bytes = 1 << 30;
        let mut limit = bytes;
        for _ in 0..20 {
            limit = step(limit, bytes, bytes, false, SHORT_PERCENT);
        }
        assert_eq!(limit, bytes / 8);
        assert_eq!(step(limit, bytes, bytes, false, CALM_PERCENT), limit);
        assert_eq!(step(limit, bytes, bytes, false, 0), bytes / 8 + bytes / 32);
        for _ in 0..40 {
            limit = step(limit, bytes, bytes, false, 0);
        }
        assert_eq!(limit, bytes);
        assert_eq!(step(limit, bytes, bytes, true, 0), bytes / 8 * 7);
        assert_eq!(
            step(limit, bytes, bytes / 2, false, 0),
            bytes / 2,
            "the memory of the process became less"
        );
        // Small budgets stay, and none exceeds what the process may have.
        assert_eq!(step(16 << 20, 16 << 20, 16 << 20, true, 100), 16 << 20);
        assert_eq!(step(16 << 20, 16 << 20, 1 << 20, true, 100), 1 << 20);
    }

    #[test]
    fn averages_are_read() {
        let text =
            "some avg10=12.50 avg60=3.10 avg300=0.00 total=1234\nfull avg10=1.00 avg60=0 avg300=0 total=4\n";
        assert_eq!(some_percent(text), Some(12));
        assert_eq!(some_percent("full avg10=1.00"), None);
        assert_eq!(some_percent("some avg10=x"), None);
    }

    #[test]
    fn the_system_is_asked() {
        if let Some(mut system) = SystemPressure::find() {
            assert!(system.read().memory.is_some_and(|bytes| bytes > 1 << 20));
            system.wait(Duration::ZERO);
        }
    }

    struct FakePressure(Receiver<(PressureEvent, Pressure)>, Pressure, Sender<()>);

    impl PressureSource for FakePressure {
        fn notices(&self) -> bool {
            true
        }

        fn wait(&mut self, _: Duration) -> PressureEvent {
            let _ = self.2.send(());
            let Ok((event, now)) = self.0.recv() else { return PressureEvent::End };
            self.1 = now;
            event
        }

        fn read(&mut self) -> Pressure {
            self.1
        }
    }

    #[test]
    fn pressure_makes_idle_caches_drop_memory() {
        use super::super::tests::fake;
        let bytes = 1 << 30;
        let budget = Budget::new(bytes);
        let (first, second) = (fake(&budget, 1, 0), fake(&budget, 3, 0));
        first.memory.add(bytes / 4);
        second.memory.add(bytes / 2);
        let ((tell, told), (waits, waiting)) = (channel(), channel());
        budget.follow(FakePressure(told, Pressure::default(), waits)).unwrap();
        let step = |event, some_percent, memory| {
            tell.send((event, Pressure { some_percent, memory })).unwrap();
            waiting.recv().unwrap();
        };
        waiting.recv().unwrap();
        for _ in 0..20 {
            step(PressureEvent::Short, 0, None);
        }
        assert_eq!((budget.limit(), budget.bytes()), (bytes / 8, bytes));
        assert!(budget.used() <= bytes / 4, "{budget:?}");
        assert!(!budget.is_exceeded());
        step(PressureEvent::Time, 0, None);
        assert_eq!(budget.limit(), bytes / 8 + bytes / 32);
        step(PressureEvent::Time, 0, Some(bytes / 4));
        assert_eq!(budget.limit(), bytes / 8);
        for _ in 0..40 {
            step(PressureEvent::Time, 0, None);
        }
        assert_eq!(budget.limit(), bytes);
    }
}
