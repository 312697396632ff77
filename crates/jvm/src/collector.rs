//! HotSpot's collectors, and every name of each.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Collector {
    /// `UseSerialGC`.
    Serial,
    /// `UseParallelGC`.
    Parallel,
    /// `UseG1GC`.
    G1,
    /// `UseZGC`.
    #[serde(rename = "ZGC")]
    Z,
    /// `UseShenandoahGC`.
    Shenandoah,
    /// `UseEpsilonGC`.
    Epsilon,
    /// `UseConcMarkSweepGC`, removed in JDK 14.
    #[serde(rename = "CMS")]
    ConcurrentMarkSweep,
}

/// The flags that select a collector; the last two are older flags, which another flag can imply.
pub const SWITCHES: [(&str, Collector); 9] = [
    ("UseSerialGC", Collector::Serial),
    ("UseParallelGC", Collector::Parallel),
    ("UseG1GC", Collector::G1),
    ("UseZGC", Collector::Z),
    ("UseShenandoahGC", Collector::Shenandoah),
    ("UseEpsilonGC", Collector::Epsilon),
    ("UseConcMarkSweepGC", Collector::ConcurrentMarkSweep),
    ("UseParallelOldGC", Collector::Parallel),
    ("UseParNewGC", Collector::ConcurrentMarkSweep),
];
const CURRENT: usize = 7;

impl Collector {
    /// The collector whose flag is on; `None` if there is none.
    pub fn selected(is_on: impl Fn(&str) -> bool) -> Option<Collector> {
        SWITCHES[..CURRENT].iter().find(|(flag, _)| is_on(flag)).map(|(_, collector)| *collector)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collector::Serial => "Serial",
            Collector::Parallel => "Parallel",
            Collector::G1 => "G1",
            Collector::Z => "ZGC",
            Collector::Shenandoah => "Shenandoah",
            Collector::Epsilon => "Epsilon",
            Collector::ConcurrentMarkSweep => "CMS",
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
