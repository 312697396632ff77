package io.hugewise.benchmarks.cache;

import io.hugewise.memory.Backing;

/// The compared caches by name, with the settings that are best for the benchmark: each can hold all entries, evicts
/// beyond its limit, lets entries expire an hour after a write, and counts hits and misses. Those whose name begins with
/// `records:` are in front of records on the disk, and hold a part of them.
final class Caches {
    static final long TTL_SECONDS = 3600;

    private Caches() {}

    static Cached named(String name, int entries, int meanValueSize) {
        long payload = (long) entries * (Key.BYTES + meanValueSize);
        return switch (name) {
            case "hugewise:base" -> new Hugewise(limit(payload), Backing.base());
            case "hugewise:thp" -> new Hugewise(limit(payload), Backing.thp());
            case "hugewise:hugetlb" -> new Hugewise(limit(payload), Backing.hugetlb());
            case "ohc" -> new Ohc(entries, limit(payload), false);
            case "ohc-chunked" -> new Ohc(entries, limit(payload), true);
            case "caffeine" -> new CaffeineCache(entries, limit(payload));
            // 172 bytes more than the payload of an entry.
            case "ehcache" -> new EhcacheOffHeap(payload + 260L * entries);
            case "chronicle" -> new Chronicle(entries, meanValueSize);
            case "records:je" -> new Stored.OwnCache();
            case "records:base" -> new Stored.HugeTier(Backing.base());
            case "records:thp" -> new Stored.HugeTier(Backing.thp());
            case "records:hugetlb" -> new Stored.HugeTier(Backing.hugetlb());
            default -> throw new IllegalArgumentException("no cache is named " + name);
        };
    }

    /// 128 bytes for each entry more than its payload: enough for a chained hash table of blocks of malloc.
    private static long limit(long payload) {
        return payload + payload * 128 / 592;
    }
}
