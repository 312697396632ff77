package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class UnwrittenKeysTest {
    private final UnwrittenKeys keys = new UnwrittenKeys();

    private void add(int from, int until) {
        for (int number = from; number < until; number++) {
            // Of different sizes, so that chunks have unused ends.
            keys.add(ByteBuffer.allocate(Integer.BYTES + number % 1000).putInt(number).array(), number);
        }
    }

    private static List<Integer> numbers(UnwrittenKeys.Reader reader, int most) {
        return reader.next(most).stream().map(key -> ByteBuffer.wrap(key).getInt()).toList();
    }

    /// A batch of which most keys are the same takes many calls: none goes over the keys of those before it.
    @Test
    void eachKeyIsReadOnce() {
        add(0, 4999);
        keys.add(ByteBuffer.allocate(100_000).putInt(4999).array(), 4999);
        var reader = keys.reader(Long.MAX_VALUE);
        List<Integer> read = new ArrayList<>();
        for (int call = 0; call < 5000; call++) {
            read.addAll(numbers(reader, 1));
            assertThat(reader.count()).isEqualTo(call + 1);
        }
        assertThat(read).hasSize(5000).isSorted().doesNotHaveDuplicates();
        assertThat(numbers(reader, 1)).isEmpty();
    }

    @Test
    void keysAreReadThatAreAddedMeanwhile() {
        var reader = keys.reader(Long.MAX_VALUE);
        assertThat(numbers(reader, 1)).isEmpty();
        for (int first = 0; first < 1000; first += 100) {
            add(first, first + 100);
            assertThat(numbers(reader, 60)).startsWith(first).hasSize(60);
            assertThat(numbers(reader, 60)).hasSize(40).endsWith(first + 99);
            assertThat(numbers(reader, 60)).isEmpty();
        }
    }

    @Test
    void readKeysStayUntilTheyAreDropped() {
        add(0, 1000);
        assertThat(keys.reader(Long.MAX_VALUE).next(600)).hasSize(600);
        var reader = keys.reader(Long.MAX_VALUE);
        assertThat(numbers(reader, 600)).startsWith(0).endsWith(599);
        add(1000, 1010);
        keys.drop(reader.count());
        assertThat(numbers(keys.reader(Long.MAX_VALUE), 1000)).startsWith(600).endsWith(1009).hasSize(410);
        keys.drop(410);
        assertThat(keys.count()).isZero();
        assertThat(keys.reader(Long.MAX_VALUE).next(1)).isEmpty();
        add(1010, 1011);
        assertThat(numbers(keys.reader(Long.MAX_VALUE), 2)).containsExactly(1010);
        assertThat(keys.age(1015)).isEqualTo(5);
    }

    @Test
    void laterChunksAreNotRead() {
        add(0, 1000);
        int read = keys.reader(500).next(1000).size();
        // To the end of the chunk whose first key has this time or an earlier one.
        assertThat(read).isBetween(501, 999);
    }
}
