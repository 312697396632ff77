/// A cache outside of the Java heap, on huge pages.
module io.hugewise.cache {
    requires static org.jspecify;
}
