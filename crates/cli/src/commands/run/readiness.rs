//! A program is ready for its report when its memory has stopped growing.

use std::time::Duration;

use hugewise_linux::units::Bytes;

/// Time without growth after which a program is ready.
pub const QUIET: Duration = Duration::from_secs(2);
/// An increase below 1/`TOLERANCE` is no growth.
const TOLERANCE: u64 = 50;
/// A smaller increase is no growth.
const LEAST: Bytes = Bytes(8 << 20);

#[derive(Debug, Default)]
pub struct Readiness {
    /// Time of the last growth, and the resident bytes then.
    grown: Option<(Duration, Bytes)>,
}

impl Readiness {
    /// Adds a sample of `resident` bytes at the time `at`; true if the program is ready.
    pub fn look(&mut self, at: Duration, resident: Bytes) -> bool {
        match self.grown {
            Some((since, then)) if resident <= then + LEAST.max(Bytes(then.0 / TOLERANCE)) => {
                // Allocating released memory again counts as growth.
                if resident < then.saturating_sub(LEAST) {
                    self.grown = Some((since, resident));
                }
                at.saturating_sub(since) >= QUIET
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
        let looks = (0u64..).zip(memory);
        looks
            .map(|(n, mib)| readiness.look(Duration::from_millis(500 * n), Bytes(mib << 20)))
            .position(|ready| ready)
    }

    #[test]
    fn it_is_ready_when_it_no_longer_grows() {
        assert_eq!(ready_at(&[10, 200, 400, 400, 401, 402, 403, 404]), Some(6));
        // Steady growth: not ready within these samples.
        assert_eq!(ready_at(&[100, 109, 118, 127, 136, 145, 154, 163]), None);
        assert_eq!(ready_at(&[]), None);
        // A decrease is no growth; an increase after it is.
        assert_eq!(ready_at(&[400, 100, 100, 400, 400, 400, 400, 400]), Some(7));
    }
}
