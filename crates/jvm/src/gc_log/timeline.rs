//! Pauses over time, in as many steps as a picture has room for.

use super::{Cpu, Pause, summary::is_suspect};

/// The most steps there are; where more would be needed, two become one.
const STEPS: usize = 512;
/// The width of the first steps.
const NARROWEST_NS: u64 = 1_000_000;
/// As many beginnings of JVMs are kept.
const MOST_RUNS: usize = 64;

/// Pauses over time. The JVMs of one log follow one another; time between them is left out, since
/// their own clocks do not tell it.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// How long a step is.
    pub width_ns: u64,
    /// From the beginning of the log.
    pub steps: Vec<Step>,
    /// Where a JVM begins, from the second on.
    pub runs_ns: Vec<u64>,
    /// The log has no stamps: a second stands for a pause.
    pub by_number: bool,
    run: u32,
    /// The stamp of the present JVM that lies at the point `base_ns`.
    origin_ns: Option<u64>,
    base_ns: u64,
    end_ns: u64,
    total_ns: u64,
    cpu: Cpu,
    count: u64,
}

/// What happened in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Pauses that began in it.
    pub pauses: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// All of them.
    pub total_ns: u64,
    /// Their CPU time, where it is known.
    pub cpu: Cpu,
    /// Those in which the kernel worked longer than the collector.
    pub suspects: u64,
}

impl Step {
    /// Makes one of two.
    pub fn add(&mut self, other: &Step) {
        self.pauses += other.pauses;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.cpu.add(other.cpu);
        self.suspects += other.suspects;
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            width_ns: NARROWEST_NS,
            steps: Vec::new(),
            runs_ns: Vec::new(),
            by_number: false,
            run: 0,
            origin_ns: None,
            base_ns: 0,
            end_ns: 0,
            total_ns: 0,
            cpu: Cpu::default(),
            count: 0,
        }
    }
}

impl Timeline {
    /// The sum of all pauses.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The sum of their CPU times.
    #[must_use]
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// From the beginning of the first pause to the end of the last; nothing without stamps.
    #[must_use]
    pub fn span_ns(&self) -> Option<u64> {
        (!self.by_number && self.count > 0).then_some(self.end_ns)
    }

    /// Takes a pause in.
    pub fn add(&mut self, pause: &Pause<'_>) {
        let stamp = pause.start.best_ns();
        if self.count == 0 {
            self.by_number = stamp.is_none();
        }
        if pause.run != self.run {
            self.run = pause.run;
            self.origin_ns = None;
            self.base_ns = self.end_ns;
            if self.count > 0 && self.runs_ns.len() < MOST_RUNS {
                self.runs_ns.push(self.base_ns);
            }
        }
        let at = if self.by_number {
            self.count.saturating_mul(1_000_000_000)
        } else {
            // A line without a stamp, between others that have one, is where the last one was.
            stamp.map_or(self.end_ns, |stamp| {
                let origin = *self.origin_ns.get_or_insert(stamp);
                self.base_ns.saturating_add(stamp.saturating_sub(origin))
            })
        };
        self.count += 1;
        self.end_ns = self.end_ns.max(at.saturating_add(pause.duration_ns));
        self.total_ns = self.total_ns.saturating_add(pause.duration_ns);
        let step = self.step(at);
        step.pauses += 1;
        step.longest_ns = step.longest_ns.max(pause.duration_ns);
        step.total_ns = step.total_ns.saturating_add(pause.duration_ns);
        if let Some(cpu) = pause.cpu {
            step.cpu.add(cpu);
            step.suspects += u64::from(is_suspect(cpu));
            self.cpu.add(cpu);
        }
    }

    fn step(&mut self, at_ns: u64) -> &mut Step {
        while at_ns / self.width_ns >= STEPS as u64 {
            self.fold();
        }
        let step = usize::try_from(at_ns / self.width_ns).unwrap_or(STEPS - 1);
        if step >= self.steps.len() {
            self.steps.resize(step + 1, Step::default());
        }
        &mut self.steps[step]
    }

    /// Makes one step of two.
    fn fold(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        self.steps = self
            .steps
            .chunks(2)
            .map(|pair| {
                pair.iter().fold(Step::default(), |mut both, step| {
                    both.add(step);
                    both
                })
            })
            .collect();
    }
}
