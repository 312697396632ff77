//! The rate limit of a collapse.

use std::time::Duration;

use hugewise_linux::units::Bytes;

/// A rate limit. After a pause the rate does not exceed it to make up for lost time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_second: Option<f64>,
    next: Duration,
}

impl Pace {
    /// `bytes_per_second` is the maximum rate; `None` for no limit.
    #[must_use]
    pub fn new(bytes_per_second: Option<f64>) -> Pace {
        Pace { bytes_per_second, next: Duration::ZERO }
    }

    /// Time to wait at `end` after `bytes` were collapsed from `begin` on.
    pub fn wait(&mut self, bytes: Bytes, begin: Duration, end: Duration) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let takes = Duration::try_from_secs_f64(bytes.0 as f64 / rate).unwrap_or(Duration::MAX);
        self.next = self.next.max(begin).saturating_add(takes);
        self.next.saturating_sub(end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_rate_holds_over_every_stretch(calls in prop::collection::vec((0u64..5000, 0u64..5000), 1..100)) {
            // 1 MiB in 1000 µs.
            let mut pace = Pace::new(Some(f64::from(1 << 20) * 1000.0));
            let (mut now, mut begins) = (Duration::ZERO, Vec::new());
            for (idle, takes) in calls {
                now += Duration::from_micros(idle);
                begins.push(now);
                let end = now + Duration::from_micros(takes);
                now = end + pace.wait(Bytes(1 << 20), now, end);
            }
            begins.push(now);
            for (first, begin) in begins.iter().enumerate() {
                for (last, end) in begins.iter().enumerate().skip(first) {
                    let least = Duration::from_micros(1000) * (last - first) as u32;
                    prop_assert!(*end - *begin + Duration::from_micros(1) >= least, "{begins:?}");
                }
            }
        }

        #[test]
        fn no_rate_makes_it_panic(rate in any::<f64>(), bytes in any::<u64>(), now in any::<u64>()) {
            let now = Duration::from_nanos(now);
            let _ = Pace::new(Some(rate)).wait(Bytes(bytes), now, now);
            prop_assert_eq!(Pace::new(None).wait(Bytes(bytes), now, now), Duration::ZERO);
        }
    }
}
