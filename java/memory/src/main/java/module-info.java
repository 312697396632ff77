/// Memory on huge pages, with proof of what it got: [io.hugewise.memory.HugeArena] is an
/// [java.lang.foreign.Arena], [io.hugewise.memory.HugeAllocator] stands in for `malloc`, and
/// [io.hugewise.memory.BlockPool] hands out blocks of one size.
///
/// It calls `libhugewise`, which lies in its jar: a JVM allows that by
/// `--enable-native-access=io.hugewise.memory`, or `=ALL-UNNAMED` where the jar is on the class path.
module io.hugewise.memory {
    requires jdk.jfr;
    requires static org.jspecify;

    exports io.hugewise.memory;
}
