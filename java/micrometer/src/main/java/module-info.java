/// Micrometer metrics of memory on huge pages.
module io.hugewise.micrometer {
    requires transitive io.hugewise.memory;
    requires transitive micrometer.core;
    requires static org.jspecify;

    exports io.hugewise.micrometer;
}
