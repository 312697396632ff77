//! Roles of a JVM's threads, by thread name, of which the kernel keeps 15 bytes.
//!
//! Source: the names in HotSpot's `WorkerThreads`, `ConcurrentGCThread` and `CompileBroker`, JDK 9 to 25; JDK
//! 8 gives its threads kernel-visible names from 8u40 on.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Collects garbage in pauses. Includes the VM thread, in which Serial collects.
    Collector,
    /// Collects garbage concurrently with the application, and in pauses.
    ConcurrentCollector,
    Compiler,
    /// Application threads and helper threads of the JVM.
    Application,
}

/// Beginnings of HotSpot's names, as long as possible: an application may have threads with similar names.
const CONCURRENT: [&str; 18] = [
    "G1 Conc#",
    "G1 Main",
    "G1 Refine#",
    "G1 Service",
    "G1 Young Ref",
    "ZWorker",
    "ZDirector",
    "ZDriver",
    "ZUnmapper",
    "ZUncommitter",
    "ZStat",
    "ZServiceability",
    "Shenandoah GC",
    "Shenandoah Cont",
    "Shenandoah Reg",
    "Concurrent Mark",
    "CMS Thread",
    "CMS Main",
];

impl Role {
    pub fn of(name: &str) -> Role {
        let begins = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
        if begins(&["GC Thread#", "ParGC Thread#", "VM Thread"]) {
            Role::Collector
        } else if begins(&CONCURRENT) {
            Role::ConcurrentCollector
        } else if begins(&["C1 Compiler", "C2 Compiler", "JVMCI", "Graal"]) {
            Role::Compiler
        } else {
            Role::Application
        }
    }

    pub fn collects(self) -> bool {
        matches!(self, Role::Collector | Role::ConcurrentCollector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cut_off_at_15_bytes_are_known() {
        for (name, role) in [
            ("GC Thread#0", Role::Collector),
            ("VM Thread", Role::Collector),
            ("G1 Conc#0", Role::ConcurrentCollector),
            ("G1 Main Marker", Role::ConcurrentCollector),
            ("ZWorkerYoung#1", Role::ConcurrentCollector),
            ("Shenandoah GC T", Role::ConcurrentCollector),
            ("C2 CompilerThre", Role::Compiler),
            ("VM Periodic Tas", Role::Application),
            ("Zookeeper-1", Role::Application),
            ("main", Role::Application),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}
