package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicLong;

/// Populates memory with several threads, each one chunk after another.
///
/// @param memory the whole region
/// @param pageSize size of the pages that are populated, at most, in one page fault
record KernelPretouch(MemorySegment memory, long pageSize, MachinePages pages) {
    private static final long CHUNK = 32 << 20;
    private static final VarHandle BYTES = ValueLayout.JAVA_INT.varHandle();

    Pretouched run(long offset, long length, int threads) {
        long page = Math.max(pageSize, Math.max(1, pages.base()));
        long start = memory.address() + offset & -page;
        long end = memory.address() + offset + length + page - 1 & -page;
        long chunk = Math.max(CHUNK, page);
        int workers = Math.clamp((end - start + chunk - 1) / chunk, 1,
                threads > 0 ? threads : Runtime.getRuntime().availableProcessors());
        long before = pages.thpFallbacks();
        long begin = System.nanoTime();
        AtomicLong next = new AtomicLong(start);
        AtomicLong refused = new AtomicLong();
        Runnable work = () -> {
            for (long at = next.getAndAdd(chunk); at < end && refused.get() == 0; at = next.getAndAdd(chunk)) {
                long answer = populate(at, Math.min(chunk, end - at), page);
                if (answer < 0) {
                    refused.compareAndSet(0, answer);
                }
            }
        };
        List<Thread> others = new ArrayList<>();
        try {
            for (int i = 1; i < workers; i++) {
                others.add(Thread.ofPlatform().daemon().name("hugewise-pretouch-" + i).start(work));
            }
        } catch (OutOfMemoryError _) {
            // A limit on threads is reached: fewer suffice.
        }
        try {
            work.run();
        } finally {
            others.forEach(KernelPretouch::await);
        }
        if (refused.get() < 0) {
            throw new HugeMemoryException(
                    Bytes.text(length) + " could not be populated: " + SystemCall.text(refused.get())
                            + "; free memory, or reserve less", length, (int) -refused.get());
        }
        long after = pages.thpFallbacks();
        return new Pretouched(end - start, Duration.ofNanos(System.nanoTime() - begin), others.size() + 1,
                before < 0 || after < 0 ? OptionalLong.empty() : OptionalLong.of(after - before));
    }

    private long populate(long start, long length, long page) {
        long answer = Advice.advise(start, length, Advice.POPULATE_WRITE);
        while (answer == -SystemCall.EAGAIN) {
            answer = Advice.advise(start, length, Advice.POPULATE_WRITE);
        }
        // An empty range is accepted only where the kernel has the advice, and no filter of system calls denies it.
        if (answer == 0 || Advice.advise(0, 0, Advice.POPULATE_WRITE) == 0) {
            return answer;
        }
        // Also before Linux 5.14. The contents stay, also those that other threads write meanwhile.
        MemorySegment pagesOfChunk = MemorySegment.ofAddress(start).reinterpret(length);
        for (long at = 0; at < length; at += page) {
            int _ = (int) BYTES.getAndAdd(pagesOfChunk, at, 0);
        }
        return 0;
    }

    private static void await(Thread thread) {
        boolean isInterrupted = false;
        while (thread.isAlive()) {
            try {
                thread.join();
            } catch (InterruptedException _) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
