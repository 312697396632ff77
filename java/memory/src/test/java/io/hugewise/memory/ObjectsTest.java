package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Ran;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/// What an allocator needs of the Java heap does not depend on its blocks.
class ObjectsTest {
    private static final int BLOCKS = 100_000_000;

    @Test
    void aHundredMillionBlocksAreFewObjects() {
        Ran ran = Machine.java("-Xmx256m", "--enable-native-access=ALL-UNNAMED", Allocates.class.getName());
        assumeTrue(!ran.output().contains("HugeMemoryException"), ran.output());
        assertThat(ran.status()).as(ran.output()).isZero();
        long[] figures = Arrays.stream(ran.output().strip().split(" ")).mapToLong(Long::parseLong).toArray();
        assertThat(figures[0]).as("objects").isLessThanOrEqualTo(1000);
        assertThat(figures[1]).as("bytes").isLessThanOrEqualTo(32 << 20);
    }

    /// Prints the objects and bytes of the heap that an allocator and its blocks of 64 bytes have added.
    static final class Allocates {
        public static void main(String[] arguments) {
            // Once before, so that classes and their constants do not count.
            try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1 << 20).only(Backing.base()))) {
                HugeAllocator.of(arena).allocateOffset(64);
            }
            long[] before = instances();
            try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8L << 30).only(Backing.base()))) {
                HugeAllocator allocator = HugeAllocator.of(arena);
                for (int i = 0; i < BLOCKS; i++) {
                    allocator.allocateOffset(64);
                }
                long[] after = instances();
                if (allocator.live() != 64L * BLOCKS) {
                    throw new AssertionError(allocator.live());
                }
                System.out.println((after[0] - before[0]) + " " + (after[1] - before[1]));
            }
        }

        /// Live objects and their bytes: the last line of the histogram is `Total 123 4567`.
        private static long[] instances() {
            String jcmd = Path.of(System.getProperty("java.home"), "bin", "jcmd").toString();
            String pid = Long.toString(ProcessHandle.current().pid());
            String total = Machine.run(List.of(jcmd, pid, "GC.class_histogram"))
                    .output()
                    .lines()
                    .filter(line -> line.startsWith("Total"))
                    .findFirst()
                    .orElseThrow();
            return Arrays.stream(total.strip().split("\\s+")).skip(1).mapToLong(Long::parseLong).toArray();
        }
    }
}
