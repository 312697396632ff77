//! Sampling intervals that grow with the CPU time of a sample.

use std::time::{Duration, Instant};

use hugewise_linux::sys::process::thread_cpu;

/// Least interval as a multiple of the CPU time of the sample, which limits the overhead to 0.5 %.
const MIN_INTERVAL_PER_COST: u32 = 200;
/// First interval; it doubles with each sample.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
/// Longest interval between cheap samples.
const MAX_CHEAP_INTERVAL: Duration = Duration::from_secs(1);

/// Schedules samples: often at first, then once a second, or less often if a sample is expensive.
#[derive(Debug)]
pub struct SamplingInterval {
    due: Instant,
    gap: Duration,
}

impl SamplingInterval {
    /// The first sample is due at once.
    pub fn new() -> SamplingInterval {
        SamplingInterval { due: Instant::now(), gap: FIRST_INTERVAL / 2 }
    }

    /// Takes the sample `what` if it is due; `None` if it is not.
    pub fn run_if_due<T>(&mut self, what: impl FnOnce() -> T) -> Option<T> {
        let begin = Instant::now();
        if begin < self.due {
            return None;
        }
        // CPU time, because elapsed time would make every sample expensive on a busy machine.
        let before = thread_cpu();
        let done = what();
        let cost = thread_cpu().saturating_sub(before);
        self.gap = (self.gap * 2).min(MAX_CHEAP_INTERVAL).max(cost * MIN_INTERVAL_PER_COST);
        self.due = begin + self.gap;
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expensive_sample_lengthens_the_interval() {
        let mut pace = SamplingInterval::new();
        let work = || {
            let begin = thread_cpu();
            while thread_cpu() - begin < Duration::from_millis(20) {}
        };
        assert_eq!(pace.run_if_due(work), Some(()));
        assert!(pace.gap >= Duration::from_secs(4), "{pace:?}");
        pace.due = Instant::now() + Duration::from_secs(3600);
        assert_eq!(pace.run_if_due(work), None, "it is not due");
        pace.due = Instant::now();
        assert_eq!(pace.run_if_due(|| 7), Some(7));
        assert!(pace.gap >= FIRST_INTERVAL && pace.gap <= Duration::from_secs(4), "{pace:?}");
    }
}
