/// Buffers of Agrona on huge pages.
module io.hugewise.agrona {
    requires transitive io.hugewise.memory;
    requires transitive org.agrona;
    requires static org.jspecify;

    exports io.hugewise.agrona;
}
