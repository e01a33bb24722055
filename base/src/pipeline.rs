//! Parallel work with ordered results.
//!
//! A tree walk, a tar stream and an extraction have the same structure: a *task* (a directory, a batch of files, a
//! range of a large file) produces a sequence of *items*, which are further tasks or results. The sequence replaces its
//! task, so that the queue is always in final order. Workers claim the first unclaimed task; the worker that completes
//! the front of the queue passes the results there to the sink, one after the other.
//!
//! | part | subject |
//! |---|---|
//! | [`PipelineWork`] | the tasks, and how a worker performs one |
//! | [`PipelineSink`] | receives the results in order; may replace a result by further items |
//! | `Line` | the queue: a linked list of slots |
//! | [`run`] | the threads |
//!
//! # Invariants
//! - The sink receives the results in the order of a single-threaded run, for any number of threads.
//! - The first slot of the queue is always in progress: the work terminates for any budget.
//! - The weight of queued results is at most [`PipelineWork::budget`], plus what each thread is completing; a task is
//!   only claimed within `WINDOW` slots of the front, so that finding one is cheap.
//!
//! # Locking
//! One mutex around the queue, held for a scan of at most `WINDOW` slots, never while a task is performed or the sink
//! is called.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Default limit of the total [`PipelineWork::weight`] of queued results, in bytes.
const BUDGET: usize = 64 << 20;
/// Maximum distance in slots of a claimed task from the front of the queue.
const WINDOW: usize = 512;

/// An item produced by a task.
#[derive(Debug)]
pub enum PipelineItem<T, R> {
    /// A further task, whose items will replace it.
    Task(T),
    /// A result for the sink.
    Result(R),
}

/// The items of a [`PipelineWork`].
pub type PipelineItemOf<W> = PipelineItem<<W as PipelineWork>::Task, <W as PipelineWork>::Result>;

/// A type of work.
pub trait PipelineWork: Sync {
    /// A task, which any thread may perform.
    type Task: Send;
    /// A result, which is passed on in order.
    type Result: Send;
    /// Per-thread state such as readers and buffers.
    type Worker;

    /// Creates the state of a thread; called once by each.
    fn worker(&self) -> Self::Worker;

    /// Performs a task: appends to `pieces` the items that replace it.
    fn perform(&self, worker: &mut Self::Worker, task: Self::Task, pieces: &mut Vec<PipelineItemOf<Self>>);

    /// Size in bytes of a queued result.
    fn weight(&self, result: &Self::Result) -> usize;

    /// Maximum total size in bytes of queued results.
    fn budget(&self) -> usize {
        BUDGET
    }
}

/// The receiver of the results.
pub trait PipelineSink<W: PipelineWork + ?Sized> {
    /// An error, which stops the work.
    type Error: Send;

    /// Receives the next result; appends to `pieces` the items that replace it.
    ///
    /// # Errors
    /// An error stops the work.
    fn take(&mut self, result: W::Result, pieces: &mut Vec<PipelineItemOf<W>>) -> Result<(), Self::Error>;
}

/// Performs the tasks `first` and all that they produce, on `threads` threads including the caller.
///
/// # Errors
/// The first error of the sink.
pub fn run<W: PipelineWork, S: PipelineSink<W> + Send>(
    work: &W,
    first: Vec<W::Task>,
    sink: &mut S,
    threads: usize,
) -> Result<(), S::Error> {
    let mut line = Line::new();
    line.replace(NONE, first.into_iter().map(PipelineItem::Task).collect(), |result| work.weight(result));
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

struct Pool<'a, W: PipelineWork, S: PipelineSink<W>> {
    work: &'a W,
    state: Mutex<State<'a, W, S>>,
    changed: Condvar,
}

struct State<'a, W: PipelineWork, S: PipelineSink<W>> {
    line: Line<W::Task, W::Result>,
    /// The sink, unless a thread is passing results to it.
    sink: Option<&'a mut S>,
    failed: Option<S::Error>,
    /// The work is complete or has failed.
    stopped: bool,
    /// Number of threads waiting for `changed`.
    sleepers: usize,
}

impl<'a, W: PipelineWork, S: PipelineSink<W>> Pool<'a, W, S> {
    fn lock(&self) -> MutexGuard<'_, State<'a, W, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of each thread.
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

    /// Passes results from the front of the queue to the sink while there are any.
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
            // Wake the threads that wait for budget only when half of it is free: a wakeup per result would cost more
            // than the work.
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

/// Stops all threads if one panics: otherwise they would wait for its task forever.
struct StopOnPanic<'p, 'a, W: PipelineWork, S: PipelineSink<W>> {
    pool: &'p Pool<'a, W, S>,
}

impl<W: PipelineWork, S: PipelineSink<W>> Drop for StopOnPanic<'_, '_, W, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.lock().stopped = true;
            self.pool.changed.notify_all();
        }
    }
}

/// Index of a slot, or `NONE`.
type Slot = usize;
const NONE: Slot = usize::MAX;

/// The queue: a singly linked list of slots in a vector, with a free list.
struct Line<T, R> {
    slots: Vec<(Slot, Content<T, R>)>,
    front: Slot,
    free: Slot,
    /// Total weight of queued results.
    waiting: usize,
}

enum Content<T, R> {
    /// An unclaimed task.
    Task(T),
    /// A claimed task, or a result passed to the sink.
    Busy,
    /// A result and its weight.
    Result(R, usize),
    /// Completed, or not in the queue.
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

    /// Claims the first unclaimed task: at the front always, elsewhere within the budget and the window.
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

    /// Replaces a claimed slot (`NONE`: the front of an empty queue) by items, and removes completed slots from the
    /// front.
    fn replace(&mut self, slot: Slot, pieces: Vec<PipelineItem<T, R>>, weigh: impl Fn(&R) -> usize) {
        if let Some((_, content)) = self.slots.get_mut(slot) {
            *content = Content::Empty;
        }
        let mut last = slot;
        for piece in pieces {
            let content = match piece {
                PipelineItem::Task(task) => Content::Task(task),
                PipelineItem::Result(result) => {
                    let weight = weigh(&result);
                    self.waiting += weight;
                    Content::Result(result, weight)
                }
            };
            match self.slots.get_mut(last) {
                // The first item reuses the slot.
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

    /// Numbers below a limit, each with its multiples by 2 and 3: a tree of uneven shape.
    struct Numbers {
        limit: u64,
        weight: usize,
    }

    impl PipelineWork for Numbers {
        type Task = u64;
        type Result = u64;
        type Worker = ();

        fn worker(&self) {}

        fn perform(&self, (): &mut (), task: u64, pieces: &mut Vec<PipelineItemOf<Self>>) {
            pieces.push(PipelineItem::Result(task));
            for factor in [2, 3] {
                if task * factor < self.limit {
                    pieces.push(PipelineItem::Task(task * factor));
                    pieces.push(PipelineItem::Result(task * 10 + factor));
                }
            }
        }

        fn weight(&self, _: &u64) -> usize {
            self.weight
        }
    }

    /// Collects all results; adds a task after one of them.
    struct Keep(Vec<u64>, Option<usize>);

    impl PipelineSink<Numbers> for Keep {
        type Error = &'static str;

        fn take(
            &mut self,
            result: u64,
            pieces: &mut Vec<PipelineItemOf<Numbers>>,
        ) -> Result<(), &'static str> {
            self.0.push(result);
            if result == 24 {
                pieces.push(PipelineItem::Task(1000));
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
            // Every result fills the budget: only the front of the queue is worked on.
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
                // No panic message.
                std::panic::resume_unwind(Box::new(()));
            }
        }
    }

    impl PipelineWork for Panics {
        type Task = u64;
        type Result = u64;
        type Worker = ();

        fn worker(&self) {
            self.in_call("worker");
        }

        fn perform(&self, (): &mut (), task: u64, pieces: &mut Vec<PipelineItemOf<Self>>) {
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

    impl PipelineSink<Panics> for &Panics {
        type Error = ();

        fn take(&mut self, result: u64, _: &mut Vec<PipelineItemOf<Panics>>) -> Result<(), ()> {
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
    fn an_empty_pipeline_ends_at_once() {
        let mut sink = Keep(Vec::new(), None);
        run(&Numbers { limit: 1, weight: 1 }, vec![], &mut sink, 3).unwrap();
        assert!(sink.0.is_empty());
    }
}
