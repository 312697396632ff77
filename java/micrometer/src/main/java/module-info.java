/// Micrometer metrics of memory on huge pages, and of caches in it.
module io.hugewise.micrometer {
    requires static transitive io.hugewise.cache;
    requires transitive io.hugewise.memory;
    requires transitive micrometer.core;
    requires static org.jspecify;

    exports io.hugewise.micrometer;
}
