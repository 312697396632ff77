//! A program is ready for its report when its memory has stopped growing.

use std::time::Duration;

use hugewise_linux::units::Bytes;

/// Time without growth after which a program is ready.
pub const MIN_QUIET_TIME: Duration = Duration::from_secs(2);
/// Smallest increase that counts as growth, as a fraction of the resident bytes: 1/`MIN_GROWTH_DIVISOR`.
const MIN_GROWTH_DIVISOR: u64 = 50;
/// Smallest increase that counts as growth, in bytes.
const MIN_GROWTH_BYTES: Bytes = Bytes(8 << 20);

/// Relative growth between two readings above which memory grows fast, as a fraction: 1/`FAST_GROWTH_DIVISOR`.
const FAST_GROWTH_DIVISOR: u64 = 8;
/// Relative growth since a report after which it no longer describes the program, as a fraction.
const MIN_GROWTH_OF_REPORT: u64 = 2;

/// Whether memory grows fast; the last reading was `before`.
pub fn grows_fast(resident: Bytes, before: Bytes) -> bool {
    resident > before + Bytes(before.0 / FAST_GROWTH_DIVISOR)
}

/// Whether a program with `resident` bytes needs a new sample; the fullest one has `sampled` bytes. While memory grows
/// fast, only a sample of much less is replaced.
pub fn is_sample_due(resident: Bytes, sampled: Bytes, grows_fast: bool) -> bool {
    if grows_fast {
        return sampled == Bytes::ZERO || is_outgrown(resident, sampled);
    }
    resident > sampled + Bytes(sampled.0 / MIN_GROWTH_DIVISOR)
}

/// Whether memory of `resident` bytes outgrew a report of `reported` bytes.
pub fn is_outgrown(resident: Bytes, reported: Bytes) -> bool {
    resident > reported + MIN_GROWTH_BYTES.max(Bytes(reported.0 / MIN_GROWTH_OF_REPORT))
}

#[derive(Debug, Default)]
pub struct Readiness {
    /// Time of the last growth, and the resident bytes then.
    grown: Option<(Duration, Bytes)>,
}

impl Readiness {
    /// Adds a sample of `resident` bytes at the time `at`; true if the program is ready.
    pub fn add_sample(&mut self, at: Duration, resident: Bytes) -> bool {
        match self.grown {
            Some((since, then))
                if resident <= then + MIN_GROWTH_BYTES.max(Bytes(then.0 / MIN_GROWTH_DIVISOR)) =>
            {
                // Allocating released memory again counts as growth.
                if resident < then.saturating_sub(MIN_GROWTH_BYTES) {
                    self.grown = Some((since, resident));
                }
                at.saturating_sub(since) >= MIN_QUIET_TIME
            }
            _ => {
                self.grown = Some((at, resident));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_at(memory: &[u64]) -> Option<usize> {
        let mut readiness = Readiness::default();
        let samples = (0u64..).zip(memory);
        samples
            .map(|(n, mib)| readiness.add_sample(Duration::from_millis(500 * n), Bytes(mib << 20)))
            .position(|ready| ready)
    }

    #[test]
    fn a_report_of_a_lull_is_outgrown() {
        let mib = |mib: u64| Bytes(mib << 20);
        assert!(is_outgrown(mib(600), mib(100)) && !is_outgrown(mib(140), mib(100)));
        assert!(!is_outgrown(mib(9), mib(2)) && is_outgrown(mib(11), mib(2)));
        assert!(
            grows_fast(mib(1), mib(0)) && grows_fast(mib(114), mib(100)) && !grows_fast(mib(110), mib(100))
        );
        assert!(is_sample_due(mib(1), mib(0), true) && is_sample_due(mib(103), mib(100), false));
        assert!(!is_sample_due(mib(101), mib(100), false) && !is_sample_due(mib(130), mib(100), true));
    }

    #[test]
    fn it_is_ready_when_it_no_longer_grows() {
        assert_eq!(ready_at(&[10, 200, 400, 400, 401, 402, 403, 404]), Some(6));
        // Steady growth: not ready within these samples.
        assert_eq!(ready_at(&[100, 109, 118, 127, 136, 145, 154, 163]), None);
        assert_eq!(ready_at(&[]), None);
        // A decrease does not count as growth; an increase after it does.
        assert_eq!(ready_at(&[400, 100, 100, 400, 400, 400, 400, 400]), Some(7));
    }
}
