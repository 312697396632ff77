package io.hugewise.benchmarks.cache;

import net.openhft.chronicle.map.ChronicleMap;

/// Chronicle Map in memory. It has neither eviction nor expiry.
final class Chronicle implements Cached {
    private final ChronicleMap<byte[], byte[]> map;

    Chronicle(int entries, int meanValueSize) {
        map = ChronicleMap.of(byte[].class, byte[].class)
                .constantKeySizeBySample(new byte[Key.BYTES])
                .averageValueSize(meanValueSize)
                .entries(entries + entries / 10)
                .putReturnsNull(true)
                .create();
    }

    @Override
    public byte[] get(Key key) {
        return map.get(Bytes.of(key));
    }

    @Override
    public void put(Key key, byte[] value) {
        map.put(Bytes.of(key), value);
    }
}
