//! JVM flags that select a backing.

use hugewise_linux::{hugepages::backing::Backing, reading::Reason, units::Bytes};

use crate::{collector::Collector, flags::FinalFlags};

/// Flags that select `backing` on this JVM; an error if the JVM does not support it.
pub fn options(flags: &FinalFlags, backing: Backing) -> Result<Vec<String>, Reason> {
    let mut options = Vec::new();
    let mut switch = |name: &str, on: bool| {
        if flags.has(name) {
            options.push(format!("-XX:{}{name}", if on { '+' } else { '-' }));
        }
    };
    if !flags.has("UseLargePages") {
        return Reason::err("this JVM has no UseLargePages flag; hugewise supports HotSpot only");
    }
    switch("UseLargePages", backing != Backing::Base);
    switch("UseTransparentHugePages", backing == Backing::Thp);
    // Removed in JDK 22 (JDK-8261894). Older JVMs need them to rule out the other kind of explicit huge
    // pages.
    switch("UseHugeTLBFS", matches!(backing, Backing::Hugetlb(_)));
    switch("UseSHM", matches!(backing, Backing::Shm(_)));
    if matches!(backing, Backing::Shm(_)) && !flags.has("UseSHM") {
        return Reason::err(format!(
            "JDK {} cannot use SysV shared memory: UseSHM was removed in JDK 22 (JDK-8261894); try hugetlb",
            flags.version
        ));
    }
    if let Some(size) = backing.named_size() {
        if flags.collector() == Some(Collector::Z) && size.bytes() > Bytes(2 << 20) {
            return Reason::err(format!("ZGC does not support pages of {size}; try hugetlb"));
        }
        options.push(format!("-XX:LargePageSizeInBytes={}", size.bytes().0));
    }
    Ok(options)
}

/// Flags that select `backing` on every HotSpot JVM since JDK 8, for one that cannot be queried.
pub fn of_any_jvm(backing: Backing) -> Result<Vec<String>, Reason> {
    let mut options: Vec<String> = match backing {
        Backing::Base => vec!["-XX:-UseLargePages".to_owned()],
        Backing::Thp => vec!["-XX:+UseTransparentHugePages".to_owned()],
        // JDK 17 uses explicit pages only if UseTransparentHugePages is not set, not even to false.
        Backing::Hugetlb(_) => vec!["-XX:+UseLargePages".to_owned()],
        Backing::Shm(_) => {
            return Reason::err(
                "only some JVMs can use SysV shared memory, and that of a script is unknown; try hugetlb",
            );
        }
    };
    options.extend(backing.named_size().map(|size| format!("-XX:LargePageSizeInBytes={}", size.bytes().0)));
    Ok(options)
}
