package io.hugewise.cache;

import org.jspecify.annotations.Nullable;

/// What ends with a cache: its threads, its memory, and the lock of its file. It does not refer to the cache itself, so
/// that a cache which the program has dropped is collected.
final class Resources {
    private final ObjectStore<?, ?> objects;
    private final CacheMemory memory;
    private final System.Logger.Level level;
    private boolean isClosed;

    Resources(ObjectStore<?, ?> objects, CacheMemory memory, boolean isRehearsal) {
        this.objects = objects;
        this.memory = memory;
        this.level = isRehearsal ? System.Logger.Level.TRACE : System.Logger.Level.WARNING;
    }

    /// Writes the changes that the store of the cache does not have yet, then releases all; nothing if that was done.
    synchronized void close() {
        if (isClosed) {
            return;
        }
        objects.close();
        try {
            objects.store.close();
        } finally {
            // Also if the memory could not be saved, for example because another program has truncated the file.
            if (objects.store.space.isUnused) {
                memory.close();
                isClosed = true;
            }
        }
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
        log("was dropped without close(); it is closed now", null);
        try {
            close();
        } catch (Throwable error) {
            log("could not be closed; its memory stays", error);
        } finally {
            objects.store.space.maintenance.close();
        }
    }

    /// Closing does not depend on the log, which an application that has ended may not have.
    private void log(String what, @Nullable Throwable error) {
        try {
            System.getLogger("io.hugewise.cache").log(level, "the cache '" + memory.name() + "' " + what, error);
        } catch (Throwable _) {
            // Then without.
        }
    }
}
