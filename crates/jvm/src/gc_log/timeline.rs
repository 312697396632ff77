//! Pauses over time, in a bounded number of steps.

use super::{Cpu, Pause};

/// Maximum number of steps; before it is exceeded, the width doubles.
const MAX_STEPS: usize = 512;
/// Initial width of a step.
const MIN_STEP_NS: u64 = 1_000_000;
/// Maximum number of JVM starts kept.
const MAX_JVM_STARTS: usize = 64;

/// Pauses over time. The JVMs of one log follow one another without a gap, because uptimes do not reveal the
/// time between two JVMs.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Width of a step.
    pub width_ns: u64,
    /// From the beginning of the log.
    pub steps: Vec<Step>,
    /// Start of each JVM from the second on.
    pub runs_ns: Vec<u64>,
    /// Whether the log has no timestamps; pauses are then placed one second apart.
    pub by_number: bool,
    run: u32,
    /// Timestamp of the current JVM at the position `base_ns`.
    origin_ns: Option<u64>,
    base_ns: u64,
    end_ns: u64,
    count: u64,
}

/// Aggregate of the pauses that began in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub pauses: u64,
    /// Longest pause.
    pub longest_ns: u64,
    /// Sum of the pauses.
    pub total_ns: u64,
    /// Sum of their CPU times, as far as logged.
    pub cpu: Cpu,
    /// Number of pauses with sys > user.
    pub sys_heavy_pauses: u64,
}

impl Step {
    /// Merges steps into one.
    fn sum(steps: &[Step]) -> Step {
        let mut sum = Step::default();
        steps.iter().for_each(|step| sum.add(step));
        sum
    }

    /// Merges another step into this one.
    pub fn add(&mut self, other: &Step) {
        self.pauses += other.pauses;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.cpu.add(other.cpu);
        self.sys_heavy_pauses += other.sys_heavy_pauses;
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            width_ns: MIN_STEP_NS,
            steps: Vec::new(),
            runs_ns: Vec::new(),
            by_number: false,
            run: 0,
            origin_ns: None,
            base_ns: 0,
            end_ns: 0,
            count: 0,
        }
    }
}

impl Timeline {
    /// Aggregate of all pauses.
    pub fn total(&self) -> Step {
        Step::sum(&self.steps)
    }

    /// From the start of the first pause to the end of the last; `None` without timestamps.
    pub fn span_ns(&self) -> Option<u64> {
        (!self.by_number && self.count > 0).then_some(self.end_ns)
    }

    pub fn add(&mut self, pause: &Pause<'_>) {
        let stamp = pause.start.best_ns();
        if self.count == 0 {
            self.by_number = stamp.is_none();
        }
        if pause.run != self.run {
            self.run = pause.run;
            self.origin_ns = None;
            self.base_ns = self.end_ns;
            if self.count > 0 && self.runs_ns.len() < MAX_JVM_STARTS {
                self.runs_ns.push(self.base_ns);
            }
        }
        let at = if self.by_number {
            self.count.saturating_mul(1_000_000_000)
        } else {
            // A line without a timestamp, between lines with one, counts as simultaneous with the last.
            stamp.map_or(self.end_ns, |stamp| {
                let origin = *self.origin_ns.get_or_insert(stamp);
                self.base_ns.saturating_add(stamp.saturating_sub(origin))
            })
        };
        self.count += 1;
        self.end_ns = self.end_ns.max(at.saturating_add(pause.duration_ns));
        let cpu = pause.cpu.unwrap_or_default();
        self.step(at).add(&Step {
            pauses: 1,
            longest_ns: pause.duration_ns,
            total_ns: pause.duration_ns,
            cpu,
            sys_heavy_pauses: u64::from(cpu.sys_exceeds_user()),
        });
    }

    fn step(&mut self, at_ns: u64) -> &mut Step {
        while at_ns / self.width_ns >= MAX_STEPS as u64 {
            self.fold();
        }
        let step = usize::try_from(at_ns / self.width_ns).unwrap_or(MAX_STEPS - 1);
        if step >= self.steps.len() {
            self.steps.resize(step + 1, Step::default());
        }
        &mut self.steps[step]
    }

    /// Doubles the width: merges each two steps into one.
    fn fold(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        self.steps = self.steps.chunks(2).map(Step::sum).collect();
    }
}
