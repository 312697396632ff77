/// JCache (JSR 107) with [io.hugewise.cache.HugeCache].
module io.hugewise.jcache {
    requires transitive cache.api;
    requires transitive io.hugewise.cache;
    requires java.management;
    requires static org.jspecify;

    exports io.hugewise.jcache;

    provides javax.cache.spi.CachingProvider with io.hugewise.jcache.HugeCachingProvider;
}
