package io.hugewise.jmh;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/// Samples this process's memory during an iteration; after its end the memory may be freed.
///
/// Takes one sample in the middle if the length of the iteration is known. Otherwise samples at growing
/// intervals, and the sample with the largest resident size counts. A sample walks the page tables: some
/// milliseconds per GiB on base pages.
final class Looks {
    private static final Path SMAPS = Path.of("/proc/self/smaps");
    /// First sampling interval in milliseconds, if the length is unknown; later intervals grow.
    private static final long FIRST = 10;

    private final Thread thread;
    private volatile boolean over;
    private volatile @Nullable Smaps best;
    private volatile @Nullable IOException error;

    /// @param millis length of the iteration in milliseconds; 0 if unknown
    Looks(Heap heap, long millis) {
        this.thread = new Thread(() -> run(heap, millis), "hugewise-looks");
        thread.setDaemon(true);
        thread.start();
    }

    private void run(Heap heap, long millis) {
        long pause = millis > 0 ? millis / 2 : FIRST;
        try {
            do {
                Thread.sleep(pause);
                long begin = System.nanoTime();
                Smaps seen = Smaps.read(SMAPS, heap);
                Smaps before = best;
                if (!over && (before == null || seen.memory.resident() >= before.memory.resident())) {
                    best = seen;
                }
                pause = Math.max(pause * 5 / 4, 10 * TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
            } while (millis == 0 && !over);
        } catch (IOException failed) {
            error = failed;
        } catch (InterruptedException ended) {
            // The iteration is over.
        }
    }

    /// Ends the sampling.
    ///
    /// @return the sample; null if the iteration was too short
    /// @throws IOException if smaps could not be read
    @Nullable Smaps end() throws IOException {
        over = true;
        thread.interrupt();
        try {
            thread.join();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        IOException failed = error;
        if (failed != null && best == null) {
            throw failed;
        }
        return best;
    }
}
