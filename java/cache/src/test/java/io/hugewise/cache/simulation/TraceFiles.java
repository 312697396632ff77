package io.hugewise.cache.simulation;

import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;
import org.tukaani.xz.XZInputStream;

/// Readers of the traces in the jar of Caffeine's simulator, and of files in formats that papers publish.
final class TraceFiles {
    private static final String IN_JAR = "com/github/benmanes/caffeine/cache/simulator/parser/";

    private TraceFiles() {}

    /// Lines with a block number; other lines are comments.
    static Trace lirs(String name) {
        return Trace.of("lirs " + name, lines(inJar("lirs/" + name + ".trace.gz"))
                .map(String::strip)
                .filter(line -> !line.isEmpty() && line.chars().allMatch(Character::isDigit))
                .mapToLong(Long::parseLong));
    }

    /// Lines with the kind of an access, a hexadecimal address and a number. Keys are cache lines of 64 bytes.
    static Trace addresses(String name) {
        return Trace.of("address " + name, lines(inJar("address/" + name + ".trace.gz"))
                .mapToLong(line -> Long.parseLong(line.split(" ", 3)[1].substring(2), 16) >>> 6));
    }

    /// Hexadecimal numbers of 128 bits, of which the lower 64 are the key.
    static Trace gradle() {
        return Trace.of("gradle build cache", lines(inJar("gradle/build-cache.xz"))
                .mapToLong(line -> Long.parseUnsignedLong(line.substring(Math.max(0, line.length() - 16)), 16)));
    }

    /// Numbers of 32 bits.
    static Trace ints(String name, String file) {
        ByteBuffer all = all(inJar(file));
        return Trace.of(name, IntStream.range(0, all.capacity() / Integer.BYTES).mapToLong(i -> all.getInt(i * Integer.BYTES)));
    }

    /// Numbers of 64 bits.
    static Trace longs(String name, String file) {
        ByteBuffer all = all(inJar(file));
        return Trace.of(name, IntStream.range(0, all.capacity() / Long.BYTES).mapToLong(i -> all.getLong(i * Long.BYTES)));
    }

    /// Lines with a number, a key and a size.
    static Trace adaptSize() {
        long[][] columns = lines(inJar("adapt_size/request.trace.xz"))
                .map(line -> Stream.of(line.split(" ")).mapToLong(Long::parseLong).toArray())
                .toArray(long[][]::new);
        return Trace.of("adapt_size", column(columns, 1), column(columns, 2));
    }

    /// Lines with the first block, the number of blocks, and two other numbers: traces of ARC's authors.
    static Trace arc(String name, Path file) throws IOException {
        return Trace.of(name, lines(Files.newInputStream(file)).flatMapToLong(line -> {
            String[] words = line.split(" ");
            long first = Long.parseLong(words[0]);
            return LongStream.range(first, first + Long.parseLong(words[1]));
        }));
    }

    /// Comma-separated lines with version, time, operation, size, block.
    static Trace blocks(String name, Path file) throws IOException {
        long[][] columns = lines(Files.newInputStream(file))
                .skip(1)
                .map(line -> line.split(","))
                .map(words -> new long[] {Long.parseLong(words[4]), Long.parseLong(words[3])})
                .toArray(long[][]::new);
        return Trace.of(name, column(columns, 0), column(columns, 1));
    }

    private static long[] column(long[][] rows, int column) {
        return Stream.of(rows).mapToLong(row -> row[column]).toArray();
    }

    private static InputStream inJar(String file) {
        return Objects.requireNonNull(ClassLoader.getSystemResourceAsStream(IN_JAR + file), file);
    }

    private static Stream<String> lines(InputStream compressed) {
        return new BufferedReader(new InputStreamReader(decompressed(compressed), StandardCharsets.UTF_8)).lines();
    }

    private static ByteBuffer all(InputStream compressed) {
        try (InputStream in = decompressed(compressed)) {
            return ByteBuffer.wrap(in.readAllBytes());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static InputStream decompressed(InputStream compressed) {
        try {
            var in = new BufferedInputStream(compressed);
            in.mark(2);
            int first = in.read();
            in.reset();
            return switch (first) {
                case 0x1f -> new GZIPInputStream(in);
                case 0xfd -> new XZInputStream(in);
                case -1 -> new ByteArrayInputStream(new byte[0]);
                default -> in;
            };
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
