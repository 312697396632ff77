/// Buffers of Apache Arrow on huge pages.
module io.hugewise.arrow {
    requires transitive io.hugewise.memory;
    requires transitive org.apache.arrow.memory.core;
    requires static org.jspecify;

    exports io.hugewise.arrow;
}
