//! From a trace to the lines that the two sides of each pair share.
//!
//! The trace is read as a stream and not kept. Accesses count between the marks of a thread, and by that thread only.
//! So these are excluded:
//!
//! - setting up, warm rounds, and the harness's turns, as they are outside of the marks;
//! - threads that the engine starts;
//! - the start and the end of threads;
//! - stacks and thread-local memory, which only their thread touches: if another one does, that is sharing;
//! - the memory allocator: it gives each allocation lines of its own and no memory twice ([`base::line_alloc`]).

use std::io::BufRead;

use anyhow::{Context, bail, ensure};

use crate::calls::Calls;
use crate::lines::{Lines, SharedLine};
use crate::marks::Mark;
use crate::target::ROUNDS;
use crate::trace::{Event, Kind, parse};

/// What a trace shows of a pair.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Instructions of each side in the counted rounds.
    pub instructions: [u64; 2],
    /// Lines of the trace since the pair before, with those of warm rounds.
    pub trace_lines: u64,
    /// Lines that were transferred between the sides.
    pub lines: Vec<SharedLine>,
}

/// Reads a trace.
#[derive(Debug, Default)]
pub struct Observer {
    /// The thread that runs.
    thread: u32,
    /// The operation that is traced.
    window: Option<Window>,
    /// Operations of each side that have begun.
    begun: [usize; 2],
    /// Whether the rounds of a pair have begun and have not ended.
    in_pair: bool,
    current: Observation,
    lines: Lines,
    /// Lines read, in all and before the current pair.
    read: u64,
    read_before: u64,
    /// The last output of the traced program.
    messages: Vec<String>,
}

/// An operation between its marks.
#[derive(Debug)]
struct Window {
    thread: u32,
    side: usize,
    /// `None` in the first round, which is not counted.
    round: Option<usize>,
    calls: Calls,
}

/// Messages of the traced program that are kept.
const MESSAGES: usize = 20;

impl Observer {
    /// Reads the whole trace. `marks` returns the address of the first mark as soon as it is known; `found` gets what
    /// was seen of each pair.
    ///
    /// # Errors
    /// The trace cannot be read, is torn, or has marks in another order.
    pub fn read(
        &mut self,
        mut trace: impl BufRead,
        marks: impl Fn() -> Option<u64>,
        mut found: impl FnMut(Observation) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut line = Vec::new();
        while trace.read_until(b'\n', &mut line).context("the trace cannot be read")? != 0 {
            self.read += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let event = parse(text).with_context(|| format!("line {} of the trace", self.read))?;
            if let Some(observation) = self.event(event, marks().unwrap_or(u64::MAX))? {
                found(observation)?;
            }
            line.clear();
        }
        ensure!(!self.in_pair && self.window.is_none(), "the trace ends within a pair{}", self.said());
        Ok(())
    }

    /// Lines of the trace so far.
    pub fn lines_read(&self) -> u64 {
        self.read
    }

    /// What the traced program said, for an error message.
    pub fn said(&self) -> String {
        if self.messages.is_empty() { String::new() } else { format!(": {}", self.messages.join("\n")) }
    }

    fn event(&mut self, event: Event<'_>, marks: u64) -> anyhow::Result<Option<Observation>> {
        match event {
            Event::Thread(thread) => self.thread = thread,
            Event::Instruction { at, len } => {
                if let Some(window) = self.window.as_mut().filter(|window| window.thread == self.thread) {
                    window.calls.instruction(at, len);
                    self.current.instructions[window.side] += u64::from(window.round.is_some());
                }
            }
            Event::Access { kind, at, len } => {
                if kind == Kind::Store
                    && let Some(mark) = Mark::at(at, marks)
                {
                    return self.mark(mark);
                }
                if let Some(window) = self.window.as_mut().filter(|window| window.thread == self.thread) {
                    self.lines.access(window.side, window.round, (kind, at, len), &window.calls);
                    window.calls.access(kind, at, len);
                }
            }
            Event::Message(text) => {
                self.messages.truncate(MESSAGES - 1);
                self.messages.push(String::from_utf8_lossy(text).into_owned());
            }
            Event::Valgrind => {}
        }
        Ok(None)
    }

    fn mark(&mut self, mark: Mark) -> anyhow::Result<Option<Observation>> {
        match mark {
            Mark::Pair if !self.in_pair => {
                (self.in_pair, self.begun) = (true, [0, 0]);
                self.lines = Lines::default();
                self.current = Observation::default();
            }
            Mark::BeginFirst | Mark::BeginSecond if self.in_pair && self.window.is_none() => {
                let side = usize::from(mark == Mark::BeginSecond);
                let round = self.begun[side].checked_sub(1);
                self.begun[side] += 1;
                self.window = Some(Window { thread: self.thread, side, round, calls: Calls::default() });
            }
            Mark::End if self.window.as_ref().is_some_and(|window| window.thread == self.thread) => {
                self.window = None;
            }
            Mark::Done if self.in_pair && self.window.is_none() && self.begun == [ROUNDS; 2] => {
                self.in_pair = false;
                let lines = self.lines.take_shared();
                let trace_lines = self.read - std::mem::replace(&mut self.read_before, self.read);
                return Ok(Some(Observation { lines, trace_lines, ..std::mem::take(&mut self.current) }));
            }
            _ => bail!(
                "line {} of the trace: the mark {mark:?} of thread {} is out of order: rounds {:?}{}",
                self.read,
                self.thread,
                self.begun,
                self.said()
            ),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address of the first mark.
    const MARKS: u64 = 0x1000;

    fn mark(mark: Mark) -> String {
        format!(" S {:x},1\n", MARKS + mark as u64)
    }

    /// The rounds of a pair whose operations have these lines.
    fn pair(operations: [&str; 2]) -> String {
        let of_side = |side: usize| {
            let thread = format!("--1--   SCHED[{}]:  acquired lock (timeslice)\n", side + 2);
            thread + &mark(Mark::begin(side)) + operations[side] + &mark(Mark::End)
        };
        mark(Mark::Pair) + &(of_side(0) + &of_side(1)).repeat(ROUNDS) + &mark(Mark::Done)
    }

    fn observe(trace: &str) -> anyhow::Result<Vec<Observation>> {
        let mut found = Vec::new();
        Observer::default().read(
            trace.as_bytes(),
            || Some(MARKS),
            |observation| {
                found.push(observation);
                Ok(())
            },
        )?;
        Ok(found)
    }

    #[test]
    fn accesses_count_between_the_marks_of_their_thread() {
        let other_thread =
            "--1--   SCHED[9]:  acquired lock (x)\n S 2000,8\n--1--   SCHED[2]:  acquired lock (x)\n";
        let first = format!("I  10,4\n S 2000,8\nI  14,4\n{other_thread}");
        let trace =
            pair([&first, "I  20,4\n L 2008,8\n"]) + " S 2000,8\n" + &pair(["I  10,4\n", "I  20,4\n"]);
        let [shared, alone] = &observe(&trace).unwrap()[..] else { panic!("two pairs") };
        let counted = ROUNDS as u64 - 1;
        assert_eq!(shared.instructions, [2 * counted, counted]);
        assert_eq!(shared.lines.len(), 1);
        assert_eq!((shared.lines[0].address, &shared.lines[0].transfers), (0x2000, &vec![2; ROUNDS - 1]));
        assert_eq!(alone.lines.len(), 0, "what was before is forgotten");
    }

    #[test]
    fn torn_traces_are_refused() {
        let whole = pair(["I  10,4\n", "I  20,4\n"]);
        let refused = |trace: &str, why: &str| {
            let error = format!("{:#}", observe(trace).expect_err(trace));
            assert!(error.contains(why), "{error}");
        };
        refused(&whole[..whole.len() - mark(Mark::Done).len()], "the trace ends within a pair");
        refused(&whole.replacen("I  10,4\n", "I  10", 1), "line 4 of the trace: the trace is torn");
        refused(&whole.replacen(&mark(Mark::End), "a panic\n", 1), "out of order: rounds [1, 0]: a panic");
        refused(&mark(Mark::Done), "the mark Done of thread 0 is out of order");
    }
}
