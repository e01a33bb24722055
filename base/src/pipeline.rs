//! Work done ahead of its turn by many threads, given out in order.
//!
//! A tree walk, a tar stream and an extraction are the same shape: a *task* (a directory, a batch of files, a piece
//! of a large file) turns into a row of *pieces*: further tasks, and results. The row takes the place of its task, so
//! that the whole is always one line-up in final order. Workers take the first task that nobody has; whoever
//! completes the front of the line gives out results from there, one after the other, in order.
//!
//! | part | does |
//! |---|---|
//! | [`Work`] | what the tasks are, and how one is done by a worker |
//! | [`Sink`] | takes the results in order; may put further pieces in a result's place |
//! | `Line` | the line-up: a linked list of slots |
//! | [`run`] | the threads |
//!
//! # Invariants
//! - Results reach the sink in the order that one thread would give, whatever the number of threads.
//! - The first slot of the line is always being worked on or given out: the work ends whatever the budget.
//! - Results that wait weigh at most [`Work::budget`], plus what each thread completes at that moment; and a task is
//!   only taken within `WINDOW` slots of the front, so that finding it is cheap.
//!
//! # Locking
//! One mutex around the line, held for a walk over at most `WINDOW` slots, never while a task is done or a result
//! given out.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How much may wait for its turn, as weighed by [`Work::weight`], in bytes, unless the work says otherwise.
const BUDGET: usize = 64 << 20;
/// How far from the front of the line a task may be taken, in slots.
const WINDOW: usize = 512;

/// A part of what a task turned into.
#[derive(Debug)]
pub enum Piece<T, R> {
    /// More work, whose pieces take its place.
    Task(T),
    /// Something for the sink.
    Result(R),
}

/// What the pieces of a [`Work`] are.
pub type PieceOf<W> = Piece<<W as Work>::Task, <W as Work>::Result>;

/// What is to be done.
pub trait Work: Sync {
    /// Something that any thread may do at any time.
    type Task: Send;
    /// What is given out in order.
    type Result: Send;
    /// What a thread keeps between tasks: readers and buffers.
    type Worker;

    /// Made once per thread, by that thread.
    fn worker(&self) -> Self::Worker;

    /// Does a task: appends to `pieces` what takes its place.
    fn perform(&self, worker: &mut Self::Worker, task: Self::Task, pieces: &mut Vec<PieceOf<Self>>);

    /// How many bytes a result holds while it waits.
    fn weight(&self, result: &Self::Result) -> usize;

    /// How many bytes of results may wait.
    fn budget(&self) -> usize {
        BUDGET
    }
}

/// Where results go.
pub trait Sink<W: Work + ?Sized> {
    /// What ends the whole work.
    type Error: Send;

    /// Takes the next result; appends to `pieces` what is to come in its place.
    ///
    /// # Errors
    /// An error ends the whole work.
    fn take(&mut self, result: W::Result, pieces: &mut Vec<PieceOf<W>>) -> Result<(), Self::Error>;
}

/// Does everything that follows from `first`, on `threads` threads including this one.
///
/// # Errors
/// The first of the sink.
pub fn run<W: Work, S: Sink<W> + Send>(
    work: &W,
    first: Vec<W::Task>,
    sink: &mut S,
    threads: usize,
) -> Result<(), S::Error> {
    let mut line = Line::new();
    line.replace(NONE, first.into_iter().map(Piece::Task).collect(), |result| work.weight(result));
    let pool = Pool {
        work,
        state: Mutex::new(State { line, sink: Some(sink), failed: None, stopped: false, sleepers: 0 }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| pool.serve());
        }
        pool.serve();
    });
    let state = pool.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failed.map_or(Ok(()), Err)
}

struct Pool<'a, W: Work, S: Sink<W>> {
    work: &'a W,
    state: Mutex<State<'a, W, S>>,
    changed: Condvar,
}

struct State<'a, W: Work, S: Sink<W>> {
    line: Line<W::Task, W::Result>,
    /// The sink, unless a thread is giving out results with it.
    sink: Option<&'a mut S>,
    failed: Option<S::Error>,
    /// Everything is done, or something failed.
    stopped: bool,
    /// Threads that wait for `changed`.
    sleepers: usize,
}

impl<'a, W: Work, S: Sink<W>> Pool<'a, W, S> {
    fn lock(&self) -> MutexGuard<'_, State<'a, W, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does until nothing is left.
    fn serve(&self) {
        let _stop = StopOnPanic { pool: self };
        let mut worker = self.work.worker();
        let mut state = self.lock();
        while !state.stopped {
            if state.line.front_is_result() && state.sink.is_some() {
                state = self.give_out(state);
            } else if let Some((slot, task)) = state.line.claim(self.work.budget()) {
                drop(state);
                let mut pieces = Vec::new();
                self.work.perform(&mut worker, task, &mut pieces);
                state = self.lock();
                state.line.replace(slot, pieces, |result| self.work.weight(result));
                self.wake(&state);
            } else if state.line.is_empty() && state.sink.is_some() {
                state.stopped = true;
                self.wake(&state);
            } else {
                state.sleepers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleepers -= 1;
            }
        }
    }

    /// Gives out results from the front as long as there are any.
    fn give_out<'s>(&'s self, mut state: MutexGuard<'s, State<'a, W, S>>) -> MutexGuard<'s, State<'a, W, S>> {
        let Some(sink) = state.sink.take() else { return state };
        while let Some((slot, result)) = state.line.take_front() {
            drop(state);
            let mut pieces = Vec::new();
            let taken = sink.take(result, &mut pieces);
            state = self.lock();
            state.line.replace(slot, pieces, |result| self.work.weight(result));
            if let Err(error) = taken {
                state.failed.get_or_insert(error);
                state.stopped = true;
                break;
            }
            // Who waits for room shall find some: to be woken for each result takes longer than the work.
            if state.line.waiting <= self.work.budget() / 2 {
                self.wake(&state);
            }
        }
        state.sink = Some(sink);
        self.wake(&state);
        state
    }

    fn wake(&self, state: &State<'a, W, S>) {
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }
}

/// A thread that panics takes the others with it: they would wait for its task for ever.
struct StopOnPanic<'p, 'a, W: Work, S: Sink<W>> {
    pool: &'p Pool<'a, W, S>,
}

impl<W: Work, S: Sink<W>> Drop for StopOnPanic<'_, '_, W, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.lock().stopped = true;
            self.pool.changed.notify_all();
        }
    }
}

/// Index of a slot; `NONE` for none.
type Slot = usize;
const NONE: Slot = usize::MAX;

/// The line-up: a list of slots, singly linked, in a vector whose free slots are linked too.
struct Line<T, R> {
    slots: Vec<(Slot, Content<T, R>)>,
    front: Slot,
    free: Slot,
    /// The weight of results that wait.
    waiting: usize,
}

enum Content<T, R> {
    /// A task that nobody has taken.
    Task(T),
    /// A task that a thread is doing, or a result that is being given out.
    Busy,
    /// A result, and its weight.
    Result(R, usize),
    /// Nothing any more, or not in the line.
    Empty,
}

impl<T, R> Line<T, R> {
    fn new() -> Self {
        Self { slots: Vec::new(), front: NONE, free: NONE, waiting: 0 }
    }

    fn is_empty(&self) -> bool {
        self.front == NONE
    }

    fn content(&self, slot: Slot) -> Option<&Content<T, R>> {
        self.slots.get(slot).map(|(_, content)| content)
    }

    fn next(&self, slot: Slot) -> Slot {
        self.slots.get(slot).map_or(NONE, |(next, _)| *next)
    }

    fn front_is_result(&self) -> bool {
        matches!(self.content(self.front), Some(Content::Result(..)))
    }

    /// Takes the first task that nobody has: at the front in any case, behind it within the budget and the window.
    fn claim(&mut self, budget: usize) -> Option<(Slot, T)> {
        let mut slot = self.front;
        for _ in 0..WINDOW {
            if slot == NONE || (slot != self.front && self.waiting > budget) {
                return None;
            }
            let (next, content) = self.slots.get_mut(slot)?;
            if matches!(content, Content::Task(_)) {
                let Content::Task(task) = std::mem::replace(content, Content::Busy) else { return None };
                return Some((slot, task));
            }
            slot = *next;
        }
        None
    }

    /// Takes the result at the front; its slot stays until it is replaced.
    fn take_front(&mut self) -> Option<(Slot, R)> {
        let (_, content) = self.slots.get_mut(self.front)?;
        if !matches!(content, Content::Result(..)) {
            return None;
        }
        let Content::Result(result, weight) = std::mem::replace(content, Content::Busy) else { return None };
        self.waiting -= weight;
        Some((self.front, result))
    }

    /// Puts pieces in the place of a busy slot (`NONE`: the front of an empty line), and drops what is done from the
    /// front.
    fn replace(&mut self, slot: Slot, pieces: Vec<Piece<T, R>>, weigh: impl Fn(&R) -> usize) {
        if let Some((_, content)) = self.slots.get_mut(slot) {
            *content = Content::Empty;
        }
        let mut last = slot;
        for piece in pieces {
            let content = match piece {
                Piece::Task(task) => Content::Task(task),
                Piece::Result(result) => {
                    let weight = weigh(&result);
                    self.waiting += weight;
                    Content::Result(result, weight)
                }
            };
            match self.slots.get_mut(last) {
                // The first piece takes the slot itself.
                Some((_, place @ Content::Empty)) => *place = content,
                _ => last = self.insert_after(last, content),
            }
        }
        while matches!(self.content(self.front), Some(Content::Empty)) {
            let done = self.front;
            self.front = self.next(done);
            self.set_next(done, self.free);
            self.free = done;
        }
    }

    fn insert_after(&mut self, slot: Slot, content: Content<T, R>) -> Slot {
        let next = if slot == NONE { self.front } else { self.next(slot) };
        let new = match self.free {
            NONE => {
                self.slots.push((next, content));
                self.slots.len() - 1
            }
            free => {
                self.free = self.next(free);
                if let Some(place) = self.slots.get_mut(free) {
                    *place = (next, content);
                }
                free
            }
        };
        match slot {
            NONE => self.front = new,
            _ => self.set_next(slot, new),
        }
        new
    }

    fn set_next(&mut self, slot: Slot, next: Slot) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.0 = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below a limit, each with its multiples by 2 and 3 below it: a tree of uneven shape.
    struct Numbers {
        limit: u64,
        weight: usize,
    }

    impl Work for Numbers {
        type Task = u64;
        type Result = u64;
        type Worker = ();

        fn worker(&self) {}

        fn perform(&self, (): &mut (), task: u64, pieces: &mut Vec<PieceOf<Self>>) {
            pieces.push(Piece::Result(task));
            for factor in [2, 3] {
                if task * factor < self.limit {
                    pieces.push(Piece::Task(task * factor));
                    pieces.push(Piece::Result(task * 10 + factor));
                }
            }
        }

        fn weight(&self, _: &u64) -> usize {
            self.weight
        }
    }

    /// Keeps all results; each multiple of 7 is followed by a task that the sink put there.
    struct Keep(Vec<u64>, Option<usize>);

    impl Sink<Numbers> for Keep {
        type Error = &'static str;

        fn take(&mut self, result: u64, pieces: &mut Vec<PieceOf<Numbers>>) -> Result<(), &'static str> {
            self.0.push(result);
            if result == 24 {
                pieces.push(Piece::Task(1000));
            }
            match self.1 {
                Some(most) if self.0.len() >= most => Err("enough"),
                _ => Ok(()),
            }
        }
    }

    fn results(threads: usize, weight: usize) -> Vec<u64> {
        let mut sink = Keep(Vec::new(), None);
        run(&Numbers { limit: 5000, weight }, vec![1, 5], &mut sink, threads).unwrap();
        sink.0
    }

    #[test]
    fn the_order_does_not_depend_on_threads_or_budget() {
        let expected = results(1, 0);
        assert!(expected.len() > 500 && expected.contains(&1000));
        for threads in [2, 3, 16] {
            assert_eq!(results(threads, 0), expected);
            // Every result fills the budget: only the front of the line is worked on.
            assert_eq!(results(threads, BUDGET + 1), expected);
        }
    }

    #[test]
    fn an_error_of_the_sink_ends_the_work() {
        let mut sink = Keep(Vec::new(), Some(10));
        let error = run(&Numbers { limit: 1 << 40, weight: 1 }, vec![1], &mut sink, 4).unwrap_err();
        assert_eq!(error, "enough");
        assert_eq!(sink.0.len(), 10);
    }

    /// Panics in one of the calls: `perform` of task 24, `weight` of result 24, `worker`, or the sink's `take`.
    struct Panics(&'static str);

    impl Panics {
        fn in_call(&self, name: &str) {
            if self.0 == name {
                // Without the message of a panic.
                std::panic::resume_unwind(Box::new(()));
            }
        }
    }

    impl Work for Panics {
        type Task = u64;
        type Result = u64;
        type Worker = ();

        fn worker(&self) {
            self.in_call("worker");
        }

        fn perform(&self, (): &mut (), task: u64, pieces: &mut Vec<PieceOf<Self>>) {
            if task == 24 {
                self.in_call("perform");
            }
            Numbers { limit: 5000, weight: 1 }.perform(&mut (), task, pieces);
        }

        fn weight(&self, result: &u64) -> usize {
            if *result == 24 {
                self.in_call("weight");
            }
            1
        }
    }

    impl Sink<Panics> for &Panics {
        type Error = ();

        fn take(&mut self, result: u64, _: &mut Vec<PieceOf<Panics>>) -> Result<(), ()> {
            if result == 24 {
                self.in_call("take");
            }
            Ok(())
        }
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_work() {
        for call in ["worker", "perform", "weight", "take"] {
            for threads in [1, 2, 5] {
                let work = Panics(call);
                let run = || run(&work, vec![1, 5], &mut &work, threads);
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                assert!(ended.is_err(), "{call}, {threads} threads");
            }
        }
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        let mut sink = Keep(Vec::new(), None);
        run(&Numbers { limit: 1, weight: 1 }, vec![], &mut sink, 3).unwrap();
        assert!(sink.0.is_empty());
    }
}
