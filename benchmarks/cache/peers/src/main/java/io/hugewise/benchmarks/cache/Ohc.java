package io.hugewise.benchmarks.cache;

import java.nio.ByteBuffer;
import org.caffinitas.ohc.CacheSerializer;
import org.caffinitas.ohc.Eviction;
import org.caffinitas.ohc.OHCache;
import org.caffinitas.ohc.OHCacheBuilder;

/// OHC: the linked implementation (a block of malloc for each entry) or the chunked one. The table has its final size from
/// the start. Many segments: a write searches the list of expiry times of its segment, which has all entries of it.
final class Ohc implements Cached {
    private static final int CHUNKED_SEGMENTS = 32;
    private static final int ENTRIES_OF_SEGMENT = 1000;

    private final OHCache<Key, byte[]> cache;

    Ohc(int entries, long capacity, boolean isChunked) {
        int segments = isChunked ? CHUNKED_SEGMENTS : Integer.highestOneBit(entries / ENTRIES_OF_SEGMENT);
        OHCacheBuilder<Key, byte[]> builder = OHCacheBuilder.<Key, byte[]>newBuilder()
                .keySerializer(new KeySerializer())
                .valueSerializer(new ValueSerializer())
                .capacity(capacity)
                .segmentCount(segments)
                .hashTableSize(Integer.highestOneBit(2 * entries / segments - 1))
                .loadFactor(1)
                .eviction(Eviction.LRU)
                .throwOOME(true);
        // The chunked implementation has no expiry.
        cache = (isChunked ? builder.chunkSize(1 << 20) : builder.timeouts(true).defaultTTLmillis(1000 * Caches.TTL_SECONDS)).build();
    }

    @Override
    public byte[] get(Key key) {
        return cache.get(key);
    }

    @Override
    public void put(Key key, byte[] value) {
        cache.put(key, value);
    }

    private static final class KeySerializer implements CacheSerializer<Key> {
        @Override
        public void serialize(Key key, ByteBuffer to) {
            to.putLong(key.number()).putLong(key.hash());
        }

        @Override
        public Key deserialize(ByteBuffer from) {
            return new Key(from.getLong(), from.getLong());
        }

        @Override
        public int serializedSize(Key key) {
            return Key.BYTES;
        }
    }

    private static final class ValueSerializer implements CacheSerializer<byte[]> {
        @Override
        public void serialize(byte[] value, ByteBuffer to) {
            to.put(value);
        }

        @Override
        public byte[] deserialize(ByteBuffer from) {
            byte[] value = new byte[from.remaining()];
            from.get(value);
            return value;
        }

        @Override
        public int serializedSize(byte[] value) {
            return value.length;
        }
    }
}
