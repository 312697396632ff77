//! Identity of a running JVM: its release and the current values of its flags.

use std::collections::HashMap;

use hugewise_linux::{reading::Reading, units::Bytes};

use super::{Collector, JvmIdentity, vm_structs::Image};

const MOST_FLAGS: u64 = 10_000;

const COLLECTORS: [(&str, Collector); 7] = [
    ("UseSerialGC", Collector::Serial),
    ("UseParallelGC", Collector::Parallel),
    ("UseG1GC", Collector::G1),
    ("UseZGC", Collector::Z),
    ("UseShenandoahGC", Collector::Shenandoah),
    ("UseEpsilonGC", Collector::Epsilon),
    ("UseConcMarkSweepGC", Collector::ConcurrentMarkSweep),
];

/// A JVM without any reading, for this reason.
pub(super) fn unknown(reason: &str) -> JvmIdentity {
    JvmIdentity {
        version: Reading::unknown(reason),
        collector: Reading::unknown(reason),
        max_heap: Reading::unknown(reason),
        large_pages: Reading::unknown(reason),
        transparent_huge_pages: Reading::unknown(reason),
    }
}

/// Identity of the JVM, by its tables.
pub(super) fn identify(image: &Image) -> JvmIdentity {
    let flags = Flags::read(image);
    let release = image.static_field("Abstract_VM_Version::_s_vm_release");
    let version = release.and_then(|text| image.memory.text(text)).filter(|text| !text.is_empty());
    let collector = COLLECTORS.iter().find(|(flag, _)| flags.is_set(flag) == Some(true));
    let missing = |name: &str| format!("the tables of this JVM lack {name}");
    fn reading<T>(value: Option<T>, reason: String) -> Reading<T> {
        value.map_or_else(|| Reading::unknown(reason), Reading::Known)
    }
    JvmIdentity {
        version: reading(version, missing("its release")),
        collector: reading(collector.map(|(_, collector)| *collector), missing("a known collector")),
        max_heap: reading(flags.word("MaxHeapSize").map(Bytes), missing("MaxHeapSize")),
        large_pages: reading(flags.is_set("UseLargePages"), missing("UseLargePages")),
        transparent_huge_pages: reading(
            flags.is_set("UseTransparentHugePages"),
            missing("UseTransparentHugePages"),
        ),
    }
}

/// Flags of a running JVM, by the addresses of their values.
pub(super) struct Flags<'i> {
    image: &'i Image<'i>,
    values: HashMap<String, u64>,
}

impl<'i> Flags<'i> {
    pub(super) fn read(image: &'i Image<'i>) -> Flags<'i> {
        let mut values = HashMap::new();
        let _ = Flags::read_all(image, &mut values);
        Flags { image, values }
    }

    fn read_all(image: &Image, values: &mut HashMap<String, u64>) -> Option<()> {
        let first = image.static_field("JVMFlag::flags")?;
        let count = image.static_field("JVMFlag::numFlags")?.min(MOST_FLAGS);
        let size = image.size("JVMFlag")?;
        for index in 0..count {
            let flag = first.checked_add(index.checked_mul(size)?)?;
            let name = image.field(flag, "JVMFlag::_name")?;
            let value = image.field(flag, "JVMFlag::_addr")?;
            if let Some(name) = image.memory.text(name) {
                values.insert(name, value);
            }
        }
        Some(())
    }

    /// Value of a flag of type `bool`.
    pub(super) fn is_set(&self, name: &str) -> Option<bool> {
        Some(self.image.memory.byte(*self.values.get(name)?)? != 0)
    }

    /// Value of a flag of word size: `size_t`, `uintx`.
    pub(super) fn word(&self, name: &str) -> Option<u64> {
        self.image.memory.u64(*self.values.get(name)?)
    }
}
