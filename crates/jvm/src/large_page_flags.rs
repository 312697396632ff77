//! The flags that put a backing on a JVM.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};

use crate::flags::FinalFlags;

/// The flags that put `backing` on this JVM; an error where it cannot have it.
pub fn options(flags: &FinalFlags, backing: Backing) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    let mut switch = |name: &str, on: bool| {
        if flags.has(name) {
            options.push(format!("-XX:{}{name}", if on { '+' } else { '-' }));
        }
    };
    if !flags.has("UseLargePages") {
        return Err("this JVM has no UseLargePages flag: is it HotSpot?".to_owned());
    }
    switch("UseLargePages", backing != Backing::Base);
    switch("UseTransparentHugePages", backing == Backing::Thp);
    // Gone in JDK 22 (JDK-8261894); before, they keep the JVM from choosing the other kind.
    switch("UseHugeTLBFS", matches!(backing, Backing::Hugetlb(_)));
    switch("UseSHM", matches!(backing, Backing::Shm(_)));
    if matches!(backing, Backing::Shm(_)) && !flags.has("UseSHM") {
        return Err(format!(
            "JDK {} cannot use SysV shared memory: UseSHM was removed in JDK 22 (JDK-8261894); try hugetlb",
            flags.version
        ));
    }
    if let Some(size) = backing.named_size() {
        if flags.is_on("UseZGC") == Some(true) && size.bytes() > Bytes(2 << 20) {
            return Err(format!("ZGC does not use pages of {size}; try hugetlb"));
        }
        options.push(format!("-XX:LargePageSizeInBytes={}", size.bytes().0));
    }
    Ok(options)
}
