/// Micrometer metrics of memory on huge pages, and of caches in it.
module io.hugewise.micrometer {
    requires transitive io.hugewise.memory;
    requires transitive micrometer.core;
    // Not transitive: a program that has no cache need not have its module.
    requires static io.hugewise.cache;
    requires static org.jspecify;

    exports io.hugewise.micrometer;
}
