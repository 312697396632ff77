/// Memory on huge pages, with its page sizes as read from the kernel. [io.hugewise.memory.HugeArena] is an
/// [java.lang.foreign.Arena], [io.hugewise.memory.HugeAllocator] replaces `malloc`, and
/// [io.hugewise.memory.BlockPool] allocates blocks of one size.
///
/// The module calls `libhugewise`, which its jar contains. The JVM warns of native access, unless it is permitted with
/// `--enable-native-access=io.hugewise.memory`, or `=ALL-UNNAMED` on the class path.
@SuppressWarnings("module") // Of modules that are compiled later.
module io.hugewise.memory {
    requires jdk.jfr;
    requires static transitive org.jspecify;

    exports io.hugewise.memory;
    exports io.hugewise.memory.internal to io.hugewise.cache, io.hugewise.jcache, io.hugewise.netty;
}
