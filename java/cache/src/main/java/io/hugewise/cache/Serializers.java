package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/// Serializers of common types.
public final class Serializers {
    private Serializers() {}

    /// {@return a serializer of 4 bytes}
    public static Serializer<Integer> ints() {
        return new Fixed<>("int", Integer.BYTES) {
            @Override
            public void write(Integer value, MemorySegment to) {
                to.set(ValueLayout.JAVA_INT_UNALIGNED, 0, value);
            }

            @Override
            public Integer read(MemorySegment from) {
                return from.get(ValueLayout.JAVA_INT_UNALIGNED, 0);
            }
        };
    }

    /// {@return a serializer of 8 bytes}
    public static Serializer<Long> longs() {
        return new Fixed<>("long", Long.BYTES) {
            @Override
            public void write(Long value, MemorySegment to) {
                to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, value);
            }

            @Override
            public Long read(MemorySegment from) {
                return from.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
            }
        };
    }

    /// {@return a serializer of 8 bytes; as keys, 0.0 and −0.0 differ}
    public static Serializer<Double> doubles() {
        return new Fixed<>("double", Double.BYTES) {
            @Override
            public void write(Double value, MemorySegment to) {
                to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, Double.doubleToLongBits(value));
            }

            @Override
            public Double read(MemorySegment from) {
                return Double.longBitsToDouble(from.get(ValueLayout.JAVA_LONG_UNALIGNED, 0));
            }
        };
    }

    /// {@return a serializer of arrays; as keys, those with equal bytes are equal}
    public static Serializer<byte[]> bytes() {
        return new Named<>("bytes") {
            @Override
            public int size(byte[] value) {
                return value.length;
            }

            @Override
            public void write(byte[] value, MemorySegment to) {
                MemorySegment.copy(value, 0, to, ValueLayout.JAVA_BYTE, 0, value.length);
            }

            @Override
            public byte[] read(MemorySegment from) {
                return array(from);
            }
        };
    }

    /// {@return a serializer of strings in UTF-8; surrogates without their pair become question marks}
    public static Serializer<String> strings() {
        return new Named<>("string") {
            @Override
            public int size(String value) {
                int size = 0;
                for (int i = 0; i < value.length(); i++) {
                    char c = value.charAt(i);
                    if (c >= 0x80) {
                        return value.getBytes(StandardCharsets.UTF_8).length;
                    }
                    size++;
                }
                return size;
            }

            @Override
            public void write(String value, MemorySegment to) {
                byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
                MemorySegment.copy(bytes, 0, to, ValueLayout.JAVA_BYTE, 0, bytes.length);
            }

            @Override
            public String read(MemorySegment from) {
                return new String(array(from), StandardCharsets.UTF_8);
            }
        };
    }

    /// {@return a serializer of memory; it reads copies on the heap}
    public static Serializer<MemorySegment> segments() {
        return new Named<>("bytes") {
            @Override
            public int size(MemorySegment value) {
                return Math.toIntExact(value.byteSize());
            }

            @Override
            public void write(MemorySegment value, MemorySegment to) {
                to.copyFrom(value);
            }

            @Override
            public MemorySegment read(MemorySegment from) {
                return MemorySegment.ofArray(array(from));
            }
        };
    }

    /// {@return a serializer of the remaining bytes of buffers, whose position stays; it reads copies on the heap}
    public static Serializer<ByteBuffer> buffers() {
        return new Named<>("bytes") {
            @Override
            public int size(ByteBuffer value) {
                return value.remaining();
            }

            @Override
            public void write(ByteBuffer value, MemorySegment to) {
                to.copyFrom(MemorySegment.ofBuffer(value));
            }

            @Override
            public ByteBuffer read(MemorySegment from) {
                return ByteBuffer.wrap(array(from));
            }
        };
    }

    /// A copy on the heap. Compilers inline it in deeper calls than [MemorySegment#toArray].
    static byte[] array(MemorySegment from) {
        byte[] bytes = new byte[Math.toIntExact(from.byteSize())];
        MemorySegment.copy(from, ValueLayout.JAVA_BYTE, 0, bytes, 0, bytes.length);
        return bytes;
    }

    /// A serializer of this class, whose methods end soon: they may be called while memory or a lock is held.
    abstract static class Named<T> implements Serializer<T> {
        private final String format;

        Named(String format) {
            this.format = format;
        }

        @Override
        public String format() {
            return format;
        }
    }

    private abstract static class Fixed<T> extends Named<T> {
        private final int size;

        Fixed(String format, int size) {
            super(format);
            this.size = size;
        }

        @Override
        public int size(T value) {
            return size;
        }
    }
}
