//! A model of many CPUs: each shared line is a server that serves one CPU at a time.
//!
//! An operation computes for a time that its instructions take, and visits each line that it shares as often as the
//! trace shows transfers; a visit takes the time of a transfer. CPUs that want the same line queue. The throughput of
//! such a network is computed exactly by mean value analysis: with `n` CPUs, one that arrives at a line finds the queue
//! that `n - 1` CPUs have on average.
//!
//! What is not modelled: locks are held for more than the transfer of their line, memory has a bandwidth, and sockets
//! have distances. So the model is an upper bound: it says what sharing alone costs.

use crate::verdict::{Shared, Verdict};

/// Parameters of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Nanoseconds that the transfer of a line between two CPUs takes.
    pub transfer_ns: f64,
    /// Instructions that a CPU executes in a nanosecond if nothing is shared.
    pub instructions_per_ns: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self { transfer_ns: 60.0, instructions_per_ns: 4.0 }
    }
}

/// Numbers of CPUs of a prediction.
pub const CPUS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// What an operation needs: the mean of both sides of a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Instructions.
    pub instructions: f64,
    /// Transfers of each line.
    pub transfers: Vec<f64>,
}

impl Demand {
    /// The demand of a pair.
    pub fn of(verdict: &Verdict) -> Self {
        let each_line = |shared: &Shared| {
            // Lines that are written by the same function are alike.
            let lines = shared.lines.ceil().max(1.0);
            std::iter::repeat_n(shared.transfers / lines, lines as usize)
        };
        Self {
            instructions: verdict.instructions.iter().sum::<f64>() / 2.0,
            transfers: verdict.shared.iter().flat_map(each_line).collect(),
        }
    }

    /// Operations per second of a number of CPUs. One CPU transfers nothing.
    pub fn throughput(&self, machine: &Machine, cpus: u32) -> f64 {
        const NS: f64 = 1e9;
        let computing = self.instructions / machine.instructions_per_ns;
        if cpus < 2 {
            return NS / computing;
        }
        let service: Vec<f64> = self.transfers.iter().map(|count| count * machine.transfer_ns).collect();
        let mut queues = vec![0.0; service.len()];
        let mut per_ns = 0.0;
        for customers in 1..=cpus {
            let waits: Vec<f64> =
                service.iter().zip(&queues).map(|(time, queue)| time * (1.0 + queue)).collect();
            per_ns = f64::from(customers) / (computing + waits.iter().sum::<f64>());
            queues = waits.iter().map(|wait| per_ns * wait).collect();
        }
        NS * per_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { transfer_ns: 50.0, instructions_per_ns: 2.0 };

    fn close(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.01
    }

    #[test]
    fn without_shared_lines_the_throughput_grows_with_the_cpus() {
        let alone = Demand { instructions: 1000.0, transfers: vec![] };
        for cpus in CPUS {
            assert!(close(alone.throughput(&MACHINE, cpus), 2e6 * f64::from(cpus)));
        }
    }

    #[test]
    fn a_shared_line_limits_the_throughput_to_one_transfer_at_a_time() {
        let counter = Demand { instructions: 1000.0, transfers: vec![1.0] };
        assert!(close(counter.throughput(&MACHINE, 1), 2e6), "no transfer");
        assert!(close(counter.throughput(&MACHINE, 256), 1e9 / 50.0));
        let lines = Demand { instructions: 1000.0, transfers: vec![1.0, 1.0] };
        assert!(close(lines.throughput(&MACHINE, 256), 1e9 / 50.0), "lines are transferred at the same time");
        assert!(lines.throughput(&MACHINE, 4) < counter.throughput(&MACHINE, 4));
    }

    /// Two customers, one server, no computing: the server is always busy. With computing as long as the service, the
    /// exact result is 4/5 of its rate for the model's (exponential) times.
    #[test]
    fn a_small_network_has_its_exact_throughput() {
        let busy = Demand { instructions: 0.0, transfers: vec![1.0] };
        assert!(close(busy.throughput(&MACHINE, 2), 1e9 / 50.0));
        let half = Demand { instructions: 100.0, transfers: vec![1.0] };
        assert!(close(half.throughput(&MACHINE, 2), 0.8 * 1e9 / 50.0));
    }
}
