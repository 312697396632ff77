package io.hugewise.cache;

import static java.nio.file.LinkOption.NOFOLLOW_LINKS;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeFile;
import io.hugewise.memory.HugeMemoryException;
import io.hugewise.memory.Obtained;
import io.hugewise.memory.SegmentPool;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;

/// The file of a cache: attached if it matches, otherwise emptied.
///
/// @param reason why a file that was there before is empty, if it is; empty if there was none
record CacheFile(HugeFile file, String reason) {
    /// Version of everything in the file.
    private static final String FORMAT = "hugewise-cache 4";

    /// Attaches or creates the memory of a cache.
    ///
    /// @param settings what the entries depend on
    static CacheMemory attach(Path path, long size, int segmentSize, String settings, LongSupplier nanos) throws IOException {
        return attach(open(path, size), path, segmentSize, settings, nanos);
    }

    private static CacheMemory attach(CacheFile opened, Path path, int segmentSize, String settings, LongSupplier nanos) throws IOException {
        HugeFile file = opened.file();
        try {
            var pool = SegmentPool.of(file.memory(), segmentSize, Segments.FIELDS);
            var manifest = new Manifest(file.memory(), pool.count());
            String all = pool.count() + " segments of " + segmentSize + ", pages of " + file.pageSize() + ", " + settings;
            int own = Manifest.segments(pool.count(), segmentSize);
            Restart restart = restart(opened, manifest, pool, manifest.mismatch(all, nanos.getAsLong()));
            switch (restart.kind()) {
                case NEW, EMPTY -> {
                    manifest.format(all, ThreadLocalRandom.current().nextLong(), nanos.getAsLong());
                    for (int i = own - 1; i >= 0; i--) {
                        manifest.setUse(i, Manifest.Use.MANIFEST, i);
                    }
                }
                case RECOVERED -> {
                    manifest.open();
                    manifest.repair(own);
                }
                case WARM -> {}
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

    private static Restart restart(CacheFile opened, Manifest manifest, SegmentPool pool, String mismatch) {
        if (manifest.isNew()) {
            return new Restart(opened.reason.isEmpty() ? Restart.Kind.NEW : Restart.Kind.EMPTY, opened.reason);
        }
        if (!mismatch.isEmpty()) {
            return new Restart(Restart.Kind.EMPTY, mismatch);
        }
        String changes = manifest.state() == Manifest.State.CLOSED ? manifest.changes(pool) : "";
        boolean isWarm = manifest.state() == Manifest.State.CLOSED && changes.isEmpty();
        return new Restart(isWarm ? Restart.Kind.WARM : Restart.Kind.RECOVERED, changes);
    }

    private static CacheFile open(Path path, long size) throws IOException {
        if (!Files.exists(path, NOFOLLOW_LINKS)) {
            return new CacheFile(HugeFile.create(path, size, FORMAT), "");
        }
        String reason;
        try {
            HugeFile file = HugeFile.open(path, FORMAT);
            if (file.memory().byteSize() == size) {
                return new CacheFile(file, "its first page is empty");
            }
            reason = "it has " + file.memory().byteSize() + " bytes, and " + size + " are expected";
            file.close();
        } catch (HugeMemoryException error) {
            if (error.requested() > 0) {
                throw error;
            }
            reason = String.valueOf(error.getMessage());
        }
        try {
            if (!HugeFile.delete(path, CacheFile::isCache)) {
                throw new IOException(path + " is not a cache: delete it, or name another file");
            }
        } catch (HugeMemoryException error) {
            throw new IOException(error.getMessage(), error);
        }
        return new CacheFile(HugeFile.create(path, size, FORMAT), reason);
    }

    /// Whether a file with these first bytes is a cache's, also an unfinished or a truncated one.
    private static boolean isCache(ByteBuffer begin) {
        boolean isEmpty = true;
        for (int i = 0; i < begin.limit(); i++) {
            isEmpty &= begin.get(i) == 0;
        }
        long first = begin.limit() < Long.BYTES ? 0 : begin.getLong(0);
        return isEmpty || first == Manifest.MAGIC || first == Long.reverseBytes(Manifest.MAGIC);
    }
}
