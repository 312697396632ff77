package io.hugewise.cache.simulation;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.hugewise.cache.policy.WindowSize;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

class WindowSizeTest {
    private final SplittableRandom random = new SplittableRandom(1);
    private final WindowSize size = new WindowSize(0.2);

    @Test
    void growsIfKeysOfTheWindowAreMissedSoonAfterTheirEviction() {
        size.expect(100_000);

        missEvicted(10_000, false);

        assertThat(size.share()).isCloseTo(0.2 + 10_000 * 4 / 100_000.0, within(1e-9));
    }

    @Test
    void shrinksIfKeysOfTheMainLogAre() {
        size.expect(100_000);

        missEvicted(500, true);

        assertThat(size.share()).isCloseTo(0.2 - 500 * 12 / 100_000.0, within(1e-9));
    }

    @Test
    void adaptsAboutAsFastIfItKeepsTheGhostsOfSomeHashesOnly() {
        size.expect(100_000_000);

        missEvicted(10_000_000, false);

        assertThat(size.share()).isBetween(0.55, 0.65);
    }

    @Test
    void staysIfOtherKeysAreMissed() {
        size.expect(100_000);

        for (int i = 0; i < 10_000; i++) {
            size.evicted(random.nextLong(), false);
            size.missed(random.nextLong());
        }

        assertThat(size.share()).isBetween(0.2, 0.201);
    }

    private void missEvicted(int count, boolean isMain) {
        for (int i = 0; i < count; i++) {
            long hash = random.nextLong();
            size.evicted(hash, isMain);
            size.missed(hash);
        }
    }
}
