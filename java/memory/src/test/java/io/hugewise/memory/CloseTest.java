package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;

/// Memory is closed more than once, by several threads, and before its users.
class CloseTest {
    private static final HugeOptions OPTIONS = HugeOptions.reserve(1 << 20).prefer(Backing.thp(), Backing.base());

    @Test
    void aSecondCloseHasNoEffect() throws Exception {
        HugeArena shared = HugeArena.ofShared(OPTIONS);
        HugeArena confined = HugeArena.ofConfined(OPTIONS);
        for (HugeArena arena : List.of(shared, confined)) {
            MemorySegment segment = arena.allocate(100);
            arena.close();
            arena.close();
            assertThatThrownBy(() -> segment.fill((byte) 1)).isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(arena::coverage).isInstanceOf(IllegalStateException.class);
            inAnotherThread(arena::close);
        }
    }

    @Test
    void anOpenArenaIsClosedByItsOwnerAndWithoutUsersOnly() throws Exception {
        HugeArena confined = HugeArena.ofConfined(OPTIONS);
        assertThatThrownBy(() -> inAnotherThread(confined::close)).hasRootCauseInstanceOf(WrongThreadException.class);
        confined.close();
    }

    @Test
    void oneOfSeveralClosesReleases() throws Exception {
        for (int round = 0; round < 100; round++) {
            HugeArena arena = HugeArena.ofShared(OPTIONS);
            CountDownLatch start = new CountDownLatch(1);
            List<FutureTask<Void>> closes = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                FutureTask<Void> close = new FutureTask<>(() -> {
                    start.await();
                    arena.close();
                    return null;
                });
                closes.add(close);
                Thread.ofPlatform().daemon().start(close);
            }
            start.countDown();
            for (FutureTask<Void> close : closes) {
                close.get();
            }
            assertThat(arena.scope().isAlive()).isFalse();
        }
    }

    @Test
    void usersOfAClosedArenaThrow() {
        HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(4 << 20).prefer(Backing.thp(), Backing.base()));
        HugeAllocator allocator = HugeAllocator.of(arena.allocate(2 << 20));
        BlockPool pool = BlockPool.of(arena, 128);
        long block = allocator.allocateOffset(100);
        MemorySegment slot = pool.allocate();
        arena.close();
        arena.close();
        assertThatThrownBy(() -> allocator.allocateOffset(100)).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> allocator.freeOffset(block)).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(pool::allocate).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> pool.free(slot)).isInstanceOf(IllegalStateException.class);
    }

    @Test
    void aFileIsClosedTwice() throws Exception {
        Path folder = Path.of("/dev/shm");
        assumeTrue(Files.isDirectory(folder) && Files.getFileStore(folder).type().equals("tmpfs"), "no tmpfs");
        Path path = folder.resolve("hugewise-close-" + ProcessHandle.current().pid());
        HugeFile file = HugeFile.create(path, 1 << 16, "closed");
        try {
            file.close();
            HugeFile next = HugeFile.open(path, "closed");
            // That of the file that was closed does not touch the one that is open.
            file.close();
            assertThatThrownBy(() -> HugeFile.open(path, "closed")).hasMessageContaining("open already");
            next.close();
            next.close();
        } finally {
            Files.delete(path);
        }
    }

    private static void inAnotherThread(Runnable work) throws InterruptedException, ExecutionException {
        FutureTask<Void> task = new FutureTask<>(work, null);
        Thread.ofPlatform().start(task);
        task.get();
    }
}
