package io.hugewise.cache;

import static java.nio.file.LinkOption.NOFOLLOW_LINKS;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeFile;
import io.hugewise.memory.HugeMemoryException;
import io.hugewise.memory.Obtained;
import io.hugewise.memory.SegmentPool;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;

/// The file of a cache: attached if it matches, otherwise emptied.
///
/// @param reason why a file that was there before was removed; empty if none was
record CacheFile(HugeFile file, String reason) {
    /// Version of everything in the file.
    private static final String FORMAT = "hugewise-cache 3";
    private static final int BEGIN = 4096;
    /// Caches that this process has open. To open the file of one to delete it would release its lock.
    private static final Set<Path> OPEN = ConcurrentHashMap.newKeySet();

    /// Attaches or creates the memory of a cache.
    ///
    /// @param settings what the entries depend on
    static CacheMemory attach(Path path, long size, int segmentSize, String settings, LongSupplier nanos) throws IOException {
        Path absolute = path.toAbsolutePath();
        Path real = Objects.requireNonNull(absolute.getParent()).toRealPath().resolve(Objects.requireNonNull(absolute.getFileName()));
        if (!OPEN.add(real)) {
            throw isOpen(path);
        }
        try {
            CacheMemory memory = attach(open(path, size), path, segmentSize, settings, nanos);
            return memory.andThen(() -> OPEN.remove(real));
        } catch (Throwable error) {
            OPEN.remove(real);
            throw error;
        }
    }

    private static IOException isOpen(Path path) {
        return new IOException(path + " is open already: each cache needs a file of its own");
    }

    private static CacheMemory attach(CacheFile opened, Path path, int segmentSize, String settings, LongSupplier nanos) throws IOException {
        HugeFile file = opened.file();
        try {
            var pool = SegmentPool.of(file.memory(), segmentSize, Segments.FIELDS);
            var manifest = new Manifest(file.memory(), pool.count());
            String all = pool.count() + " segments of " + segmentSize + ", pages of " + file.pageSize() + ", " + settings;
            Restart restart = restart(opened, manifest, manifest.mismatch(all, nanos.getAsLong()));
            if (restart.kind() == Restart.Kind.NEW || restart.kind() == Restart.Kind.EMPTY) {
                manifest.format(all, ThreadLocalRandom.current().nextLong(), nanos.getAsLong());
                for (int i = Manifest.segments(pool.count(), segmentSize) - 1; i >= 0; i--) {
                    manifest.setUse(i, Manifest.Use.MANIFEST, i);
                }
            }
            boolean isPool = Files.getFileStore(path).type().equals("hugetlbfs");
            Backing backing = isPool ? Backing.hugetlb(file.pageSize()) : Backing.thp();
            var obtained = new Obtained(backing, file.pageSize(), List.of());
            return new CacheMemory(path.getFileName().toString(), pool, manifest, restart, obtained, file::coverage, file::close);
        } catch (Throwable error) {
            file.close();
            throw error;
        }
    }

    private static Restart restart(CacheFile opened, Manifest manifest, String mismatch) {
        if (mismatch.isEmpty()) {
            boolean isClosed = manifest.state() == Manifest.State.CLOSED;
            return new Restart(isClosed ? Restart.Kind.WARM : Restart.Kind.RECOVERED, "");
        }
        if (manifest.state() != Manifest.State.EMPTY) {
            return new Restart(Restart.Kind.EMPTY, mismatch);
        }
        return new Restart(opened.reason.isEmpty() ? Restart.Kind.NEW : Restart.Kind.EMPTY, opened.reason);
    }

    private static CacheFile open(Path path, long size) throws IOException {
        if (!Files.exists(path, NOFOLLOW_LINKS)) {
            return new CacheFile(HugeFile.create(path, size, FORMAT), "");
        }
        String reason;
        try {
            HugeFile file = HugeFile.open(path, FORMAT);
            if (file.memory().byteSize() == size) {
                return new CacheFile(file, "");
            }
            reason = "it has " + file.memory().byteSize() + " bytes, and " + size + " are expected";
            file.close();
        } catch (HugeMemoryException error) {
            if (error.requested() > 0) {
                throw error;
            }
            reason = String.valueOf(error.getMessage());
        }
        delete(path);
        return new CacheFile(HugeFile.create(path, size, FORMAT), reason);
    }

    /// Deletes a file that is a cache's, also an unfinished or a truncated one, and that no process has open.
    private static void delete(Path path) throws IOException {
        try (FileChannel channel = FileChannel.open(path, Set.of(READ, WRITE, NOFOLLOW_LINKS))) {
            if (!isLocked(channel)) {
                throw isOpen(path);
            }
            if (!isCache(channel)) {
                throw new IOException(path + " is not a cache: delete it, or name another file");
            }
            Files.delete(path);
        }
    }

    private static boolean isLocked(FileChannel channel) throws IOException {
        try {
            return channel.tryLock() != null;
        } catch (OverlappingFileLockException _) {
            return false;
        }
    }

    private static boolean isCache(FileChannel channel) throws IOException {
        ByteBuffer begin = ByteBuffer.allocate(BEGIN).order(ByteOrder.nativeOrder());
        while (begin.hasRemaining() && channel.read(begin, begin.position()) > 0) {
            Thread.onSpinWait();
        }
        boolean isEmpty = true;
        for (int i = 0; i < begin.position(); i++) {
            isEmpty &= begin.get(i) == 0;
        }
        return isEmpty || begin.getLong(0) == Manifest.MAGIC;
    }
}
