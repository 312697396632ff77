package io.hugewise.cache;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// All public operations of a cache by their names, for tests of each of them.
final class Operations {
    static final Duration DAY = Duration.ofDays(1);

    private Operations() {}

    /// An operation with a key.
    interface Operation {
        void run(HugeCache<Long, byte[]> cache, long key);
    }

    /// A value of 400 bytes that begins with its key.
    static byte[] value(long key) {
        byte[] value = new byte[400];
        value[0] = (byte) key;
        return value;
    }

    private static <R> void first(Iterable<R> all) {
        var iterator = all.iterator();
        if (iterator.hasNext()) {
            iterator.next();
        }
    }

    /// Those that read or change single keys.
    ///
    /// @param canExpire whether entries of the cache expire
    /// @param hasLoader whether the cache has a loader
    static Map<String, Operation> ofKeys(boolean canExpire, boolean hasLoader) {
        Map<String, Operation> all = new LinkedHashMap<>();
        all.put("getIfPresent", HugeCache::getIfPresent);
        all.put("read", (cache, key) -> cache.read(key, memory -> memory.byteSize()));
        all.put("get", (cache, key) -> cache.get(key, Operations::value));
        all.put("getAll", (cache, key) -> cache.getAll(List.of(key, key + 1), Operations::values));
        all.put("getAllPresent", (cache, key) -> cache.getAllPresent(List.of(key, key + 1)));
        all.put("put", (cache, key) -> cache.put(key, value(key)));
        all.put("putAll", (cache, key) -> cache.putAll(Map.of(key, value(key), key + 1, value(key + 1))));
        all.put("putIfAbsent", (cache, key) -> cache.putIfAbsent(key, value(key)));
        all.put("fits", (cache, key) -> cache.fits(key, value(key)));
        all.put("invalidate", HugeCache::invalidate);
        all.put("invalidateAll of keys", (cache, key) -> cache.invalidateAll(List.of(key, key + 1)));
        all.put("map get", (cache, key) -> cache.asMap().get(key));
        all.put("map containsKey", (cache, key) -> cache.asMap().containsKey(key));
        all.put("map put", (cache, key) -> cache.asMap().put(key, value(key)));
        all.put("map putAll", (cache, key) -> cache.asMap().putAll(Map.of(key, value(key), key + 1, value(key + 1))));
        all.put("map putIfAbsent", (cache, key) -> cache.asMap().putIfAbsent(key, value(key)));
        all.put("map remove", (cache, key) -> cache.asMap().remove(key));
        all.put("map remove of a value", (cache, key) -> cache.asMap().remove(key, value(key)));
        all.put("map replace", (cache, key) -> cache.asMap().replace(key, value(key)));
        all.put("map replace of a value", (cache, key) -> cache.asMap().replace(key, value(key), value(key)));
        all.put("map compute", (cache, key) -> cache.asMap().compute(key, (of, _) -> value(of)));
        all.put("map compute to null", (cache, key) -> cache.asMap().compute(key, (_, _) -> null));
        all.put("map computeIfAbsent", (cache, key) -> cache.asMap().computeIfAbsent(key, Operations::value));
        all.put("map computeIfPresent", (cache, key) -> cache.asMap().computeIfPresent(key, (of, _) -> value(of)));
        all.put("map merge", (cache, key) -> cache.asMap().merge(key, value(key), (_, value) -> value));
        all.put("keySet remove", (cache, key) -> cache.asMap().keySet().remove(key));
        all.put("keySet contains", (cache, key) -> cache.asMap().keySet().contains(key));
        all.put("entrySet remove", (cache, key) -> cache.asMap().entrySet().remove(Map.entry(key, value(key))));
        all.put("getIfPresentQuietly", (cache, key) -> cache.policy().getIfPresentQuietly(key));
        if (canExpire) {
            all.put("put with expiry", (cache, key) -> cache.put(key, value(key), DAY));
            all.put("getExpiresAfter", (cache, key) -> cache.policy().expireVariably().orElseThrow().getExpiresAfter(key));
            all.put("setExpiresAfter", (cache, key) -> cache.policy().expireVariably().orElseThrow().setExpiresAfter(key, DAY));
            all.put("putIfAbsent with expiry", (cache, key) -> cache.policy().expireVariably().orElseThrow().putIfAbsent(key, value(key), DAY));
        }
        if (hasLoader) {
            all.put("get by the loader", HugeCache::get);
            all.put("getAll by the loader", (cache, key) -> cache.getAll(List.of(key, key + 1)));
            all.put("refresh", HugeCache::refresh);
        }
        return all;
    }

    /// Those that read or change all keys, or concern the cache itself, but its end.
    static Map<String, Operation> ofCache() {
        Map<String, Operation> all = new LinkedHashMap<>();
        all.put("iterate keys", (cache, _) -> first(cache.asMap().keySet()));
        all.put("iterate values", (cache, _) -> first(cache.asMap().values()));
        all.put("remove by an iterator", (cache, _) -> {
            var iterator = cache.asMap().entrySet().iterator();
            if (iterator.hasNext()) {
                iterator.next();
                iterator.remove();
            }
        });
        all.put("setValue", (cache, _) -> {
            for (var entry : cache.asMap().entrySet()) {
                entry.setValue(value(entry.getKey()));
                break;
            }
        });
        all.put("size", (cache, _) -> cache.asMap().isEmpty());
        all.put("stats", (cache, _) -> cache.stats());
        all.put("heapStats", (cache, _) -> cache.heapStats());
        all.put("health", (cache, _) -> cache.health());
        all.put("missRatio", (cache, _) -> cache.missRatio(cache.maximumBytes()));
        all.put("usedBytes", (cache, _) -> cache.usedBytes());
        all.put("cleanUp", (cache, _) -> cache.cleanUp());
        all.put("setMaximumBytes", (cache, key) -> cache.setMaximumBytes(cache.maximumBytes()));
        all.put("flush", (cache, _) -> cache.flush());
        all.put("toString", (cache, _) -> cache.toString());
        return all;
    }

    static Map<Long, byte[]> values(Set<? extends Long> keys) {
        Map<Long, byte[]> values = new LinkedHashMap<>();
        keys.forEach(key -> values.put(key, value(key)));
        return values;
    }
}
