//! What a pair shares, compared with what the table allows.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::lines::{CallChain, SharedLine};
use crate::observe::Observation;
use crate::pairs::Pair;
use crate::reasons::Reason;
use crate::symbols::{Symbols, owner};
use crate::target::COUNTED;

/// Lines that are written by the same function, and so are one thing: a lock, a counter, a list.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The functions that write the lines.
    pub writers: BTreeSet<String>,
    /// The functions that only read them.
    pub readers: BTreeSet<String>,
    /// Lines of which one is shared in each round on average.
    pub lines: f64,
    /// Transfers for each operation.
    pub transfers: f64,
    /// Counted rounds with a transfer.
    pub rounds: usize,
    /// The reasons of the table that explain it.
    pub reasons: Vec<Reason>,
    /// Chains of calls that no reason of the pair explains.
    pub unexplained: BTreeSet<String>,
}

/// The verdict on a pair.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Name of the pair.
    pub pair: String,
    /// Instructions of an operation of each side.
    pub instructions: [f64; 2],
    /// Lines of the trace.
    pub trace_lines: u64,
    /// What is shared.
    pub shared: Vec<Shared>,
    /// Reasons of the table that explain nothing.
    pub unneeded: Vec<Reason>,
}

/// What is shared in fewer rounds is not reported: it is the work of a batch, by which an operation avoids sharing, or
/// chance, such as two names in one bucket of a table.
const FEWEST_ROUNDS: usize = COUNTED / 2;
/// Functions of a chain that are printed.
const SHOWN: usize = 8;

impl Verdict {
    /// Judges what a trace shows of a pair.
    pub fn of(pair: &Pair, observation: &Observation, symbols: &Symbols) -> Self {
        let mut groups: BTreeMap<String, Vec<&SharedLine>> = BTreeMap::new();
        for line in &observation.lines {
            groups.entry(first_writer(line, symbols)).or_default().push(line);
        }
        let shared = groups.values().map(|lines| Shared::of(pair, lines, symbols));
        let shared: Vec<_> = shared.filter(|shared| shared.rounds >= FEWEST_ROUNDS).collect();
        let is_needed = |reason: &Reason| shared.iter().any(|shared| shared.reasons.contains(reason));
        Self {
            pair: pair.name(),
            instructions: observation.instructions.map(|all| all as f64 / COUNTED as f64),
            trace_lines: observation.trace_lines,
            unneeded: pair
                .reasons
                .iter()
                .copied()
                .filter(|reason| !reason.depends_on_chance() && !is_needed(reason))
                .collect(),
            shared,
        }
    }

    /// What is wrong: lines without a reason, and reasons without lines.
    pub fn complaints(&self) -> Vec<String> {
        let unexplained = self.shared.iter().filter(|shared| !shared.unexplained.is_empty()).map(|shared| {
            let chains: Vec<&str> = shared.unexplained.iter().map(String::as_str).collect();
            let lines = format!("{:.1} lines in {} of {COUNTED} rounds", shared.lines, shared.rounds);
            format!("{}: {lines} without a reason:\n    {}", self.pair, chains.join("\n    "))
        });
        let unneeded = self.unneeded.iter().map(|reason| {
            format!("{}: the reason {reason:?} explains no line: remove it from the table", self.pair)
        });
        unexplained.chain(unneeded).collect()
    }
}

/// What is wrong with the verdicts on all pairs together, beside their own complaints: reasons that no pair needs.
pub fn complaints_of_all(verdicts: &[Verdict]) -> Vec<String> {
    let is_needed = |reason: &Reason| {
        verdicts.iter().flat_map(|verdict| &verdict.shared).any(|shared| shared.reasons.contains(reason))
    };
    let unneeded = Reason::ALL.iter().filter(|reason| !is_needed(reason));
    unneeded.map(|reason| format!("the reason {reason:?} explains no line of any pair: remove it")).collect()
}

/// The function that a line is named after.
fn first_writer(line: &SharedLine, symbols: &Symbols) -> String {
    let mut writers = line.chains.iter().flatten().filter(|chain| chain.writes);
    writers.next().map_or_else(String::new, |chain| owner(&symbols.functions(chain)).to_owned())
}

impl Shared {
    fn of(pair: &Pair, lines: &[&SharedLine], symbols: &Symbols) -> Self {
        let mut rounds = [0; COUNTED];
        let (mut shared_lines, mut transfers) = (0, 0);
        for (round, count) in lines.iter().flat_map(|line| line.transfers.iter().enumerate()) {
            shared_lines += u32::from(*count > 0);
            transfers += count;
            rounds[round] += count;
        }
        let operations = (2 * COUNTED) as f64;
        let mut shared = Self {
            writers: BTreeSet::new(),
            readers: BTreeSet::new(),
            lines: f64::from(shared_lines) / COUNTED as f64,
            transfers: f64::from(transfers) / operations,
            rounds: rounds.iter().filter(|count| **count > 0).count(),
            reasons: Vec::new(),
            unexplained: BTreeSet::new(),
        };
        for (line, side) in lines.iter().flat_map(|line| [(line, 0), (line, 1)]) {
            for chain in &line.chains[side] {
                shared.add(pair, side, chain, &symbols.functions(chain));
            }
        }
        let writers = &shared.writers;
        shared.readers.retain(|reader| !writers.contains(reader));
        shared
    }

    /// Adds a place in the code.
    fn add(&mut self, pair: &Pair, side: usize, chain: &CallChain, functions: &[Rc<str>]) {
        let names = if chain.writes { &mut self.writers } else { &mut self.readers };
        names.insert(owner(functions).to_owned());
        if !chain.writes {
            return;
        }
        match pair.reasons.iter().find(|reason| reason.explains(functions)) {
            Some(reason) if self.reasons.contains(reason) => {}
            Some(reason) => self.reasons.push(*reason),
            None => {
                let chain: Vec<&str> = functions.iter().take(SHOWN).map(|name| &**name).collect();
                let operation = pair.operation(side).name;
                self.unexplained.insert(format!("{operation}: {}", chain.join(" < ")));
            }
        }
    }
}
