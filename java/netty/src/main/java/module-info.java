/// A Netty allocator of buffers on huge pages.
module io.hugewise.netty {
    requires transitive io.hugewise.memory;
    requires transitive io.netty.buffer;
    requires io.netty.common;
    requires static org.jspecify;

    exports io.hugewise.netty;
}
