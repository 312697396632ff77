package io.hugewise.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.random.RandomGenerator;

/// Ways to damage the file of a closed cache.
enum Damage {
    BITS {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = count(random); i > 0; i--) {
                long at = random.nextLong(size);
                write(file, at, new byte[] {(byte) (read(file, at, 1)[0] ^ 1 << random.nextInt(8))});
            }
        }
    },
    BYTES {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = count(random); i > 0; i--) {
                write(file, random.nextLong(size), new byte[] {(byte) random.nextInt()});
            }
        }
    },
    WORDS {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = count(random); i > 0; i--) {
                write(file, 8 * random.nextLong(size / 8), word(file, size, random));
            }
        }
    },
    /// Pages of zeros, of any bytes, or of another place.
    PAGES {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = random.nextInt(1, 9); i > 0; i--) {
                byte[] page = read(file, PAGE * random.nextLong(size / PAGE), PAGE);
                if (random.nextBoolean()) {
                    random.nextBytes(page);
                } else if (random.nextBoolean()) {
                    page = new byte[PAGE];
                }
                write(file, PAGE * random.nextLong(size / PAGE), page);
            }
        }
    },
    /// Pages that are missing, as in a file that was copied without them.
    HOLES {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            long from = PAGE * random.nextLong(size / PAGE);
            byte[] rest = read(file, from, (int) (size - from));
            file.truncate(from);
            int hole = Math.min(rest.length, PAGE * random.nextInt(1, 100));
            if (hole < rest.length) {
                file.write(ByteBuffer.wrap(rest, hole, rest.length - hole), from + hole);
            } else {
                write(file, size - 1, new byte[1]);
            }
        }
    },
    TRUNCATED {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            file.truncate(random.nextBoolean() ? random.nextLong(size) : PAGE * random.nextLong(size / PAGE));
        }
    },
    LONGER {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            byte[] end = read(file, size - PAGE, PAGE);
            write(file, size + (random.nextBoolean() ? 2 << 20 : random.nextInt(4096)), end);
        }
    },
    SEGMENTS {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = random.nextInt(1, 5); i > 0; i--) {
                long one = SEGMENT * random.nextLong(size / SEGMENT);
                long other = SEGMENT * random.nextLong(size / SEGMENT);
                byte[] first = read(file, one, SEGMENT);
                if (random.nextInt(4) > 0) {
                    write(file, one, read(file, other, SEGMENT));
                }
                write(file, other, first);
            }
        }
    },
    /// Numbers in the first page, and of the lists of segments.
    MANIFEST {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = count(random) / 8; i >= 0; i--) {
                int[] places = {0, 8, 16, 24, 32, 1024, 1032, 1040, 1048, 1056, 1064, 2048};
                long at = random.nextBoolean() ? places[random.nextInt(places.length)] : PAGE + 8L * random.nextInt(400);
                write(file, at, word(file, size, random));
            }
        }
    },
    /// What segments are used for.
    USES {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (int i = count(random) / 8; i >= 0; i--) {
                int segment = random.nextInt((int) (size / SEGMENT));
                long use = (long) random.nextInt(9) << 56 | (random.nextBoolean() ? random.nextInt(4) : random.nextLong() & (1L << 56) - 1);
                write(file, PAGE + 8L * segment, ByteBuffer.allocate(8).order(ByteOrder.nativeOrder()).putLong(0, use).array());
            }
        }
    },
    /// The page at the end of the file.
    HEADER {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            write(file, size - PAGE + 8L * random.nextInt(20), word(file, size, random));
        }
    },
    OTHER_BYTE_ORDER {
        @Override
        void apply(FileChannel file, long size, RandomGenerator random) throws IOException {
            for (long at : new long[] {0, 8, size - PAGE, size - PAGE + 8, size - PAGE + 16}) {
                byte[] word = read(file, at, 8);
                write(file, at, ByteBuffer.allocate(8).putLong(0, ByteBuffer.wrap(word).order(ByteOrder.LITTLE_ENDIAN).getLong()).array());
            }
        }
    };

    private static final int PAGE = 4096;
    private static final int SEGMENT = 64 << 10;
    private static final long[] EXTREMES = {0, 1, -1, Long.MIN_VALUE, Long.MAX_VALUE, Integer.MAX_VALUE, 0xFFFF_FFFFL, 1L << 56};

    abstract void apply(FileChannel file, long size, RandomGenerator random) throws IOException;

    void apply(Path path, RandomGenerator random) throws IOException {
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            apply(file, file.size(), random);
        }
    }

    /// From 1 to 1024, small ones as likely as large ones.
    private static int count(RandomGenerator random) {
        return 1 << random.nextInt(11);
    }

    private static byte[] word(FileChannel file, long size, RandomGenerator random) throws IOException {
        return switch (random.nextInt(3)) {
            case 0 -> ByteBuffer.allocate(8).order(ByteOrder.nativeOrder()).putLong(0, EXTREMES[random.nextInt(EXTREMES.length)]).array();
            case 1 -> ByteBuffer.allocate(8).putLong(0, random.nextLong()).array();
            default -> read(file, 8 * random.nextLong(size / 8), 8);
        };
    }

    private static byte[] read(FileChannel file, long at, int count) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(count);
        int _ = file.read(bytes, at);
        return bytes.array();
    }

    private static void write(FileChannel file, long at, byte[] bytes) throws IOException {
        file.write(ByteBuffer.wrap(bytes), at);
    }
}
