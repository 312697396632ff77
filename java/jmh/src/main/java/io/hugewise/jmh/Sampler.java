package io.hugewise.jmh;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/// Samples this process's memory during an iteration, because it may be freed at its end.
///
/// Takes one sample in the middle if the length of the iteration is known. Otherwise takes samples at growing
/// intervals; the one with the largest resident size counts. For a sample the kernel walks the page tables: some
/// milliseconds per GiB on base pages.
final class Sampler {
    private static final Path SMAPS = Path.of("/proc/self/smaps");
    /// First sampling interval, if the length of the iteration is unknown; later intervals grow.
    private static final long FIRST_INTERVAL_MS = 10;

    private final Thread thread;
    private volatile boolean over;
    private volatile @Nullable Smaps largest;
    private volatile @Nullable IOException error;

    /// @param millis length of the iteration in milliseconds; 0 if unknown
    Sampler(Heap heap, long millis) {
        this.thread = new Thread(() -> run(heap, millis), "hugewise-sampler");
        thread.setDaemon(true);
        thread.start();
    }

    private void run(Heap heap, long millis) {
        long interval = millis > 0 ? millis / 2 : FIRST_INTERVAL_MS;
        try {
            do {
                Thread.sleep(interval);
                long begin = System.nanoTime();
                Smaps sample = Smaps.read(SMAPS, heap);
                Smaps previous = largest;
                if (!over && (previous == null || sample.memory.resident() >= previous.memory.resident())) {
                    largest = sample;
                }
                interval = Math.max(interval * 5 / 4, 10 * TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
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
        if (failed != null && largest == null) {
            throw failed;
        }
        return largest;
    }
}
