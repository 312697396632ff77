//! How often something is done that costs CPU time.

use std::time::{Duration, Instant};

use hugewise_linux::sys::process::thread_cpu;

/// A thing may take this fraction of the time until it is done again.
const BUDGET: u32 = 200;
/// The time between the first two; it doubles from then on.
const SHORTEST: Duration = Duration::from_millis(50);
/// The time between two that cost little, in the end.
const USUAL: Duration = Duration::from_secs(1);

/// Often at first, then once a second; more rarely where it is dear.
#[derive(Debug)]
pub struct Pace {
    due: Instant,
    gap: Duration,
}

impl Pace {
    /// The first is due now.
    pub fn new() -> Pace {
        Pace { due: Instant::now(), gap: SHORTEST / 2 }
    }

    /// Does it, if it is due.
    pub fn keep<T>(&mut self, what: impl FnOnce() -> T) -> Option<T> {
        let begin = Instant::now();
        if begin < self.due {
            return None;
        }
        // Time on the CPU, not time that passed: on a busy machine nothing would ever be cheap.
        let before = thread_cpu();
        let done = what();
        let cost = thread_cpu().saturating_sub(before);
        self.gap = (self.gap * 2).min(USUAL).max(cost * BUDGET);
        self.due = begin + self.gap;
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_is_done_rarely() {
        let mut pace = Pace::new();
        let work = || {
            let begin = thread_cpu();
            while thread_cpu() - begin < Duration::from_millis(20) {}
        };
        assert_eq!(pace.keep(work), Some(()));
        assert!(pace.gap >= Duration::from_secs(4), "{pace:?}");
        pace.due = Instant::now() + Duration::from_secs(3600);
        assert_eq!(pace.keep(work), None, "it is not due");
        pace.due = Instant::now();
        assert_eq!(pace.keep(|| 7), Some(7));
        assert!(pace.gap >= SHORTEST && pace.gap <= Duration::from_secs(4), "{pace:?}");
    }
}
