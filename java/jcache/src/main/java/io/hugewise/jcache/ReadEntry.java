package io.hugewise.jcache;

import javax.cache.Cache;

/// An entry that was read.
record ReadEntry<K, V>(K key, V value) implements Cache.Entry<K, V> {
    @Override
    public K getKey() {
        return key;
    }

    @Override
    public V getValue() {
        return value;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        return Unwrapping.as(type, this);
    }
}
