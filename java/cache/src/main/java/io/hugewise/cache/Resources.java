package io.hugewise.cache;

/// What ends with a cache: its threads, its memory, and the lock of its file. It does not refer to the cache itself, so
/// that a cache which the program has dropped is collected.
final class Resources {
    private final ObjectStore<?, ?> objects;
    private final CacheMemory memory;
    private boolean isClosed;

    Resources(ObjectStore<?, ?> objects, CacheMemory memory) {
        this.objects = objects;
        this.memory = memory;
    }

    /// Writes the changes that the store of the cache does not have yet, then releases all; nothing if that was done.
    synchronized void close() {
        if (isClosed) {
            return;
        }
        objects.close();
        if (objects.store.close()) {
            memory.close();
        }
        isClosed = true;
    }

    /// Closes a cache that was collected; with write-back by a thread of its own, because other collected caches must not wait
    /// for the store.
    void drop() {
        if (objects.behind == null) {
            closeDropped();
            return;
        }
        try {
            Thread.ofPlatform().daemon().name("hugewise-cache-close").start(this::closeDropped);
        } catch (OutOfMemoryError _) {
            // No thread can be started.
            closeDropped();
        }
    }

    private synchronized void closeDropped() {
        if (isClosed) {
            return;
        }
        System.Logger log = System.getLogger("io.hugewise.cache");
        log.log(System.Logger.Level.WARNING, "the cache '" + memory.name() + "' was dropped without close(); it is closed now");
        try {
            close();
        } catch (RuntimeException error) {
            log.log(System.Logger.Level.ERROR, "the cache '" + memory.name() + "' could not be closed; its memory stays", error);
        }
    }
}
