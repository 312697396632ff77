package io.hugewise.jmh;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/// Looks at this process's memory while an iteration runs: after its end the memory may be gone.
///
/// Once, in the middle, where its length is known; else at growing intervals, and the look at which most
/// was resident counts. It costs a walk of the page tables: some milliseconds for each GiB on base pages.
final class Looks {
    private static final Path SMAPS = Path.of("/proc/self/smaps");
    /// Where the length is not known: the first look after so much, in milliseconds, the next ones ever later.
    private static final long FIRST = 10;

    private final Thread thread;
    private volatile boolean over;
    private volatile @Nullable Smaps best;
    private volatile @Nullable IOException error;

    /// @param millis how long the iteration takes; 0 if it is not known
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

    /// Ends it.
    ///
    /// @return what was seen; none if the iteration was too short
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
