//! The threads of a run, what each waits for, and the choice of the next.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{SchedulingStrategy, SimulationOptions, SimulationReport};
use crate::lock::Rank;
use crate::random::mix;

/// Virtual time of a step.
const STEP: u64 = 200;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// To be selected: it is runnable.
    Turn,
    /// The lock at this address.
    Lock(usize),
    /// A notification of the condition variable at this address, with an optional deadline.
    Notification(usize, Option<u64>),
    /// A point in time.
    Until(u64),
    /// The end of another thread.
    End(usize),
    /// Nothing: it has ended.
    Over,
}

struct Thread {
    name: String,
    wait: Wait,
    /// Ranks of the locks that it holds.
    held: Vec<Rank>,
    /// Its wait ended by a notification, not by the deadline.
    notified: bool,
    priority: u64,
    turn: Arc<Turn>,
}

/// Wakes a selected thread.
#[derive(Default)]
struct Turn {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Turn {
    fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn take(&self) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        while !*given {
            given = self.changed.wait(given).unwrap_or_else(PoisonError::into_inner);
        }
        *given = false;
    }
}

struct State {
    threads: Vec<Thread>,
    running: usize,
    /// Random numbers drawn so far.
    draws: u64,
    /// Virtual time in nanoseconds.
    now: u64,
    /// The next lowest priority.
    lowest: u64,
    report: SimulationReport,
    /// Small numbers for lock addresses, in the order of first use, so that reports are the same in each run.
    names: HashMap<usize, usize>,
    /// By lock address: the thread that last took it, and the rank of the lock.
    takers: HashMap<usize, (usize, Rank)>,
}

/// The scheduler of one run.
pub struct Scheduler {
    pub plan: SimulationOptions,
    state: Mutex<State>,
}

impl Scheduler {
    /// A run whose first thread executes.
    pub fn new(plan: SimulationOptions) -> Self {
        let state = State {
            threads: Vec::new(),
            running: 0,
            draws: 0,
            now: 0,
            lowest: 1 << 32,
            report: SimulationReport::default(),
            names: HashMap::new(),
            takers: HashMap::new(),
        };
        let world = Self { plan, state: Mutex::new(state) };
        world.add("main");
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread, which starts when first selected.
    pub fn add(&self, name: &str) -> usize {
        let mut state = self.state();
        let priority = (1 << 33) + state.draw(&self.plan) % (1 << 32);
        let (name, turn) = (name.to_owned(), Arc::default());
        let held = Vec::new();
        state.threads.push(Thread { name, wait: Wait::Turn, held, notified: false, priority, turn });
        state.threads.len() - 1
    }

    /// First call of a new thread: waits to be selected.
    pub fn begin(&self, me: usize) {
        let turn = Arc::clone(&self.state().threads[me].turn);
        turn.take();
    }

    /// Last call of a thread.
    pub fn end(&self, me: usize) {
        let mut state = self.state();
        state.wake(|wait| wait == Wait::End(me));
        state.threads[me].wait = Wait::Over;
        self.hand_over(state, me);
    }

    /// Removes a thread that was added but not started.
    pub fn forget(&self, thread: usize) {
        self.state().threads[thread].wait = Wait::Over;
    }

    /// Waits until a thread has ended.
    pub fn join(&self, me: usize, other: usize) {
        let mut state = self.state();
        while state.threads[other].wait != Wait::Over {
            state.threads[me].wait = Wait::End(other);
            self.hand_over(state, me);
            state = self.state();
        }
    }

    /// Waits until all other threads have ended, and returns the statistics.
    pub fn finish(&self, me: usize) -> SimulationReport {
        let threads = self.state().threads.len();
        // Threads may start threads, so read their number again.
        let mut other = 0;
        while other < self.state().threads.len().max(threads) {
            if other != me {
                self.join(me, other);
            }
            other += 1;
        }
        let state = self.state();
        SimulationReport {
            threads: state.threads.len(),
            elapsed: Duration::from_nanos(state.now),
            ..state.report
        }
    }

    /// A preemption point.
    pub fn preempt(&self, me: usize) {
        let mut state = self.state();
        self.step(&mut state);
        if state.chance(&self.plan, self.plan.stalls_per_million) {
            state.report.stalls += 1;
            let until = state.now + self.plan.stall.as_nanos() as u64;
            state.threads[me].wait = Wait::Until(until);
            return self.hand_over(state, me);
        }
        if state.chance(&self.plan, self.plan.spurious_per_million) {
            state.wake_spuriously(&self.plan);
        }
        let switches = match self.plan.strategy {
            SchedulingStrategy::Random { per_mille } => state.chance(&self.plan, per_mille * 1000),
            SchedulingStrategy::Priorities { changes_per_million } => {
                if state.chance(&self.plan, changes_per_million) {
                    state.demote(me);
                }
                true
            }
        };
        if switches {
            self.hand_over(state, me);
        }
    }

    /// Yields to any other runnable thread; otherwise time advances.
    pub fn yield_now(&self, me: usize) {
        let mut state = self.state();
        self.step(&mut state);
        state.demote(me);
        state.wake_due();
        let alone = state.threads.iter().enumerate().all(|(n, other)| n == me || other.wait != Wait::Turn);
        if alone && let Some(due) = state.next_due() {
            state.now = state.now.max(due);
            state.wake_due();
        }
        let others: Vec<_> = state.ready().filter(|other| *other != me).collect();
        match others.is_empty() {
            // It polls, and nobody else can act.
            true => drop(state),
            false => {
                let next = others[(state.draw(&self.plan) % others.len() as u64) as usize];
                self.switch(state, me, next);
            }
        }
    }

    /// Waits for a lock held by another thread.
    pub fn wait_for_lock(&self, me: usize, address: usize) {
        let mut state = self.state();
        self.step(&mut state);
        state.name(address);
        state.threads[me].wait = Wait::Lock(address);
        self.hand_over(state, me);
    }

    /// Records that a thread took a lock.
    pub fn on_lock(&self, me: usize, address: usize, rank: Rank) {
        let mut state = self.state();
        state.threads[me].held.push(rank);
        state.takers.insert(address, (me, rank));
    }

    /// Records that a thread released a lock of this rank.
    pub fn on_unlock(&self, me: usize, rank: Rank) {
        let held = &mut self.state().threads[me].held;
        if let Some(at) = held.iter().rposition(|held| *held == rank) {
            held.remove(at);
        }
    }

    /// Wakes the threads that wait for a released lock.
    pub fn on_release(&self, address: usize) {
        self.state().wake(|wait| wait == Wait::Lock(address));
    }

    /// Waits for a notification with an optional timeout, after a lock was released. Returns whether it was notified.
    pub fn wait(&self, me: usize, condvar: usize, lock: usize, timeout: Option<Duration>) -> bool {
        let mut state = self.state();
        self.step(&mut state);
        state.name(condvar);
        state.wake(|wait| wait == Wait::Lock(lock));
        let until = timeout.map(|timeout| state.now.saturating_add(timeout.as_nanos() as u64));
        state.threads[me].wait = Wait::Notification(condvar, until);
        state.threads[me].notified = false;
        self.hand_over(state, me);
        self.state().threads[me].notified
    }

    /// Wakes one or all threads that wait for a notification.
    pub fn notify(&self, condvar: usize, all: bool) {
        let mut state = self.state();
        let waits = |thread: &Thread| matches!(thread.wait, Wait::Notification(at, _) if at == condvar);
        let waiters: Vec<_> = (0..state.threads.len()).filter(|n| waits(&state.threads[*n])).collect();
        let chosen = match waiters.len() {
            0 => return,
            count if !all => {
                let one = (state.draw(&self.plan) % count as u64) as usize;
                &waiters[one..=one]
            }
            _ => &waiters[..],
        };
        for n in chosen {
            state.threads[*n].wait = Wait::Turn;
            state.threads[*n].notified = true;
        }
    }

    /// Sleeps in virtual time.
    pub fn sleep(&self, me: usize, time: Duration) {
        let mut state = self.state();
        self.step(&mut state);
        state.threads[me].wait = Wait::Until(state.now.saturating_add(time.as_nanos() as u64));
        self.hand_over(state, me);
    }

    /// Virtual time since the start of the run.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.state().now)
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.state().draw(&self.plan)
    }

    /// Ends a failed run.
    pub fn fail(&self, why: &str) -> ! {
        let text = self.state().describe(why);
        (self.plan.fail)(&text)
    }

    fn step(&self, state: &mut State) {
        state.report.steps += 1;
        state.now += STEP;
        if state.report.steps > self.plan.steps_max {
            let text = state.describe(&format!("livelock: no end after {} steps", state.report.steps));
            (self.plan.fail)(&text);
        }
    }

    /// Resumes the selected thread, and waits to be selected again.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, me: usize) {
        state.wake_due();
        let next = loop {
            if let Some(next) = state.choose(&self.plan) {
                break next;
            }
            match state.next_due() {
                Some(due) => {
                    state.now = state.now.max(due);
                    state.wake_due();
                }
                None if state.threads.iter().all(|thread| thread.wait == Wait::Over) => return,
                None => {
                    let text = state.describe("deadlock: no thread can run");
                    (self.plan.fail)(&text);
                }
            }
        };
        self.switch(state, me, next);
    }

    fn switch(&self, mut state: MutexGuard<'_, State>, me: usize, next: usize) {
        if next == me {
            return;
        }
        state.report.switches += 1;
        state.report.trace = mix(state.report.trace ^ (next as u64) ^ (state.now << 8));
        state.running = next;
        let (mine, other) = (Arc::clone(&state.threads[me].turn), Arc::clone(&state.threads[next].turn));
        let over = state.threads[me].wait == Wait::Over;
        drop(state);
        other.give();
        if !over {
            mine.take();
        }
    }
}

impl State {
    fn draw(&mut self, plan: &SimulationOptions) -> u64 {
        self.draws += 1;
        mix(plan.seed ^ mix(self.draws))
    }

    fn chance(&mut self, plan: &SimulationOptions, per_million: u32) -> bool {
        per_million > 0 && self.draw(plan) % 1_000_000 < u64::from(per_million)
    }

    fn ready(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.threads.len()).filter(|n| self.threads[*n].wait == Wait::Turn)
    }

    fn choose(&mut self, plan: &SimulationOptions) -> Option<usize> {
        if let SchedulingStrategy::Priorities { .. } = plan.strategy {
            return self.ready().max_by_key(|n| self.threads[*n].priority);
        }
        let count = self.ready().count() as u64;
        let at = if count > 1 { self.draw(plan) % count } else { 0 };
        self.ready().nth(at as usize)
    }

    fn demote(&mut self, thread: usize) {
        self.lowest -= 1;
        self.threads[thread].priority = self.lowest;
    }

    fn wake(&mut self, ends: impl Fn(Wait) -> bool) {
        self.threads
            .iter_mut()
            .filter(|thread| ends(thread.wait))
            .for_each(|thread| thread.wait = Wait::Turn);
    }

    /// Ends the waits whose deadline has passed.
    fn wake_due(&mut self) {
        let now = self.now;
        self.wake(|wait| due(wait).is_some_and(|moment| moment <= now));
    }

    fn next_due(&self) -> Option<u64> {
        self.threads.iter().filter_map(|thread| due(thread.wait)).min()
    }

    fn wake_spuriously(&mut self, plan: &SimulationOptions) {
        let waits = |thread: &Thread| matches!(thread.wait, Wait::Notification(..));
        let waiters: Vec<_> = (0..self.threads.len()).filter(|n| waits(&self.threads[*n])).collect();
        if !waiters.is_empty() {
            let one = waiters[(self.draw(plan) % waiters.len() as u64) as usize];
            self.threads[one].wait = Wait::Turn;
            self.threads[one].notified = true;
        }
    }

    fn name(&mut self, address: usize) -> usize {
        let next = self.names.len();
        *self.names.entry(address).or_insert(next)
    }

    /// The failure, and the state of every thread.
    fn describe(&self, why: &str) -> String {
        let mut text = format!("{why}\nafter {} steps, {} us:\n", self.report.steps, self.now / 1000);
        for (n, thread) in self.threads.iter().enumerate() {
            let number = |address| self.names.get(&address).copied().unwrap_or_default();
            let waits = match thread.wait {
                Wait::Turn if n == self.running => "runs".into(),
                Wait::Turn => "can run".into(),
                Wait::Lock(address) => {
                    let taker = self.takers.get(&address);
                    format!("waits for lock {} (last taken by, rank: {taker:?})", number(address))
                }
                Wait::Notification(address, None) => format!("waits for condition {}", number(address)),
                Wait::Notification(address, Some(until)) => {
                    format!("waits for condition {} until {} us", number(address), until / 1000)
                }
                Wait::Until(until) => format!("sleeps until {} us", until / 1000),
                Wait::End(other) => format!("waits for the end of thread {other}"),
                Wait::Over => continue,
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  thread {n} ({}) {waits}, holds {:?}", thread.name, thread.held);
        }
        text
    }
}

fn due(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Until(moment) | Wait::Notification(_, Some(moment)) => Some(moment),
        _ => None,
    }
}
