/// A cache outside of the Java heap, on huge pages: [io.hugewise.cache.HugeCache].
///
/// It needs native access: `--enable-native-access=io.hugewise.memory,io.hugewise.cache`, or `=ALL-UNNAMED` on the
/// class path.
@SuppressWarnings("module") // Of modules that are compiled later.
module io.hugewise.cache {
    requires jdk.jfr;
    requires transitive io.hugewise.memory;
    requires static transitive org.jspecify;

    exports io.hugewise.cache;
    exports io.hugewise.cache.work to io.hugewise.jcache;
}
