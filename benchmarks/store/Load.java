import io.hugewise.cache.HugeCache;
import io.hugewise.cache.HugeCacheBuilder;
import io.hugewise.cache.Serializer;
import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/// Entries of all measurements: a key of 16 bytes, and a value whose bytes follow from the key and a version.
final class Load {
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final long FIRST = 0x9E3779B97F4A7C15L;

    /// A value as it is read: its size, and whether its bytes are those of the key.
    record Value(long key, long version, int size) {
        boolean isOf(long wanted) {
            return key == wanted;
        }
    }

    static final Serializer<Long> KEYS = new Serializer<>() {
        @Override
        public int size(Long key) {
            return 16;
        }

        @Override
        public void write(Long key, MemorySegment to) {
            to.set(LONG, 0, key);
            to.set(LONG, 8, mixed(key));
        }

        @Override
        public Long read(MemorySegment from) {
            return from.get(LONG, 0);
        }

        @Override
        public String format() {
            return "benchmark 1";
        }
    };

    /// Begins with the key, the version and a checksum of all.
    static final Serializer<Value> VALUES = new Serializer<>() {
        @Override
        public int size(Value value) {
            return value.size;
        }

        @Override
        public void write(Value value, MemorySegment to) {
            to.set(LONG, 0, value.key);
            to.set(LONG, 8, value.version);
            long sum = mixed(value.key) + value.version;
            long at = 24;
            for (; at + 8 <= value.size; at += 8) {
                long word = sum * FIRST + at;
                to.set(LONG, at, word);
                sum += word;
            }
            for (; at < value.size; at++) {
                to.set(ValueLayout.JAVA_BYTE, at, (byte) sum);
            }
            to.set(LONG, 16, sum);
        }

        /// @return a value of key -1 if it is not what was written
        @Override
        public Value read(MemorySegment from) {
            int size = (int) from.byteSize();
            long key = from.get(LONG, 0);
            long version = from.get(LONG, 8);
            long sum = mixed(key) + version;
            boolean isWhole = true;
            long at = 24;
            for (; at + 8 <= size; at += 8) {
                long word = from.get(LONG, at);
                isWhole &= word == sum * FIRST + at;
                sum += word;
            }
            for (; at < size; at++) {
                isWhole &= from.get(ValueLayout.JAVA_BYTE, at) == (byte) sum;
            }
            isWhole &= from.get(LONG, 16) == sum;
            return new Value(isWhole ? key : -1, version, size);
        }

        @Override
        public String format() {
            return "benchmark 1";
        }
    };

    private Load() {}

    static HugeCacheBuilder<Long, Value> builder(long bytes) {
        HugeCacheBuilder<Long, Value> builder = HugeCache.builder(KEYS, VALUES).maximumBytes(bytes);
        String backing = System.getProperty("backing", "");
        return backing.isEmpty() ? builder : builder.memory(options -> options.only(Backing.parse(backing)).pretouch());
    }

    static long mixed(long key) {
        long mixed = (key ^ key >>> 32) * FIRST;
        return mixed ^ mixed >>> 29;
    }

    /// From 128 to 1024 bytes, the same for a key always.
    static int size(long key) {
        return 128 + (int) ((mixed(key) >>> 33) % 897);
    }

    static Value value(long key, long version) {
        return new Value(key, version, size(key));
    }

    /// Prints figures as JSON.
    static void print(Map<String, Object> figures) {
        System.out.println(figures.entrySet().stream()
                .map(figure -> "\"" + figure.getKey() + "\": " + json(figure.getValue()))
                .collect(Collectors.joining(", ", "{", "}")));
        System.out.flush();
    }

    private static String json(Object value) {
        return value instanceof Double number ? String.format(Locale.ROOT, "%.9g", number)
                : value instanceof Number ? value.toString() : "\"" + value + "\"";
    }
}
