package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.assertj.core.api.Assertions.assertThat;

import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntToDoubleFunction;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/// A simulated day of random work on full memory, whose mix of sizes may change: memory in use, and what the
/// allocator needs for it. The mixes that change least run only in a full run, and a day has 8 hours in the others.
class DayTest {
    private static final long MIB = 1 << 20;
    private static final long MOST = 64 * MIB;
    private static final int HOURS = Machine.isFullRun() ? 24 : 8;
    private static final int OPERATIONS_PER_MINUTE = 2500;
    private static final int MS_PER_OPERATION = 60_000 / OPERATIONS_PER_MINUTE;
    private static final int DECOMMIT_AFTER_MS = 2_000;

    /// Where the sizes of an hour are, from 0 (16 bytes) to 1 (64 KiB).
    private static IntToDoubleFunction centre(String mix) {
        return switch (mix) {
            case "steady" -> _ -> 0.4;
            case "drifting" -> hour -> 0.1 + hour / 30.0;
            case "hourly" -> hour -> hour % 2 == 0 ? 0.2 : 0.75;
            default -> throw new IllegalArgumentException(mix);
        };
    }

    /// Pages without blocks are returned to the kernel. The least memory in use with which a minute counts is 1/16 of
    /// the most.
    @ParameterizedTest
    @CsvSource({"steady, 1.25", "hourly, 1.25", "drifting, 1.5"})
    void memoryIsLittleMoreThanInUseAtEachMinute(String mix, double most) {
        Machine.representing(mix.equals("hourly"));
        var clock = new AtomicLong();
        SplittableRandom random = new SplittableRandom(7);
        double worst = 0;
        int worstMinute = 0;
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(4 * MOST).only(Backing.base()))) {
            HugeAllocator allocator = HugeAllocator.decommitting(arena, DECOMMIT_AFTER_MS, clock::get);
            long[] offsets = new long[1 << 20];
            int[] sizes = new int[1 << 20];
            int count = 0;
            long live = 0;
            for (int minute = 0; minute < HOURS * 60; minute++) {
                double centre = centre(mix).applyAsDouble(minute / 60);
                for (int i = 0; i < OPERATIONS_PER_MINUTE; i++) {
                    clock.addAndGet(MS_PER_OPERATION);
                    if (live < MOST && random.nextInt(100) < 55) {
                        double place = centre + 0.3 * (random.nextDouble() + random.nextDouble() + random.nextDouble() - 1.5);
                        int size = (int) Math.round(16 * Math.pow(4096, Math.clamp(place, 0, 1)));
                        offsets[count] = allocator.allocateOffset(size);
                        for (long at = 0; at < size; at += 4096) {
                            allocator.memory().set(JAVA_BYTE, offsets[count] + at, (byte) 1);
                        }
                        sizes[count++] = size;
                        live += size;
                    } else if (count > 0) {
                        int any = random.nextInt(count--);
                        allocator.freeOffset(offsets[any]);
                        live -= sizes[any];
                        offsets[any] = offsets[count];
                        sizes[any] = sizes[count];
                    }
                }
                double ratio = (double) resident(arena) / live;
                if (live >= MOST / 16 && ratio > worst) {
                    worst = ratio;
                    worstMinute = minute;
                }
            }
        }
        assertThat(worst).as("minute %d", worstMinute).isLessThanOrEqualTo(most);
    }

    private static long resident(HugeArena arena) {
        return ((Coverage.Known) arena.coverage()).resident();
    }
}
