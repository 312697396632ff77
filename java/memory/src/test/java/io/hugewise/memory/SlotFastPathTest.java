package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;

class SlotFastPathTest {
    private static final long BYTES = 1 << 20;
    private static final int SIZE_CLASS = 0;
    private static final long WORD = 3;
    private static final long FIRST_OFFSET = 8192;
    private static final long SLOTS = 0b110;

    /// Two threads that free a slot at the same moment may make it free in both halves of its word. Another thread may
    /// have it then.
    @Test
    void aSlotThatIsFreeInBothHalvesIsNotTaken() {
        assumeTrue(Words.HAVE_ADDRESSES, "words have no addresses without native access");
        Units units = new Units(0, BYTES, true);
        Words words = new Words((long) units.count() << SlotPlaces.WORDS_LOG2);
        long[] cache = SlotCache.stateOf(Thread.currentThread().threadId());
        long next = SlotCache.push(cache, SlotCache.indexOf(SIZE_CLASS), WORD, FIRST_OFFSET);
        words.setOwn(WORD, next | SLOTS);
        SlotFastPath fastPath = new SlotFastPath(
                units, words, new SlotPlaces(units), new SlotClass[0], new long[][] {cache}, new long[][] {cache});

        words.put(WORD, SLOTS & -SLOTS);
        assertThat(fastPath.take(SIZE_CLASS)).isEqualTo(-1);
        assertThat(words.own(WORD)).isEqualTo(next | SLOTS);

        words.takeAll(WORD, SLOTS & -SLOTS);
        assertThat(fastPath.take(SIZE_CLASS)).isEqualTo(FIRST_OFFSET + SizeClasses.size(SIZE_CLASS));
        assertThat(fastPath.take(SIZE_CLASS)).isEqualTo(FIRST_OFFSET + 2L * SizeClasses.size(SIZE_CLASS));
        assertThat(fastPath.take(SIZE_CLASS)).isEqualTo(-1);
    }
}
