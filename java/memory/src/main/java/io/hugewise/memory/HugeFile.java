package io.hugewise.memory;

import static java.nio.file.StandardOpenOption.CREATE_NEW;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Predicate;

/// Memory that outlives the process: a file on hugetlbfs, or on tmpfs, which the next process opens again. It is lost
/// when the machine is shut down, or the file system is unmounted.
///
/// ```java
/// try (HugeFile file = Files.exists(path) ? HugeFile.open(path, "rows 3") : HugeFile.create(path, 1L << 30, "rows 3")) {
///     MemorySegment rows = file.memory();
/// }
/// ```
///
/// On hugetlbfs, pages are of the file system's size, and taken from its pool. On tmpfs, they are transparent huge
/// pages if it is mounted with `huge=advise` or `huge=always`, as far as some are free; otherwise base pages.
/// [#coverage] has what the kernel gave.
///
/// Whoever opens a file must know its format: the text that it was created with. A file with another one is refused,
/// like one of another version of this class, a truncated one, or one that is open already. Files are of mode 0600;
/// files that others may access are refused, and so are symbolic links.
///
/// The kernel keeps all writes, also those of a process that was killed. Which of them belong together is the user's
/// concern: a killed process leaves off anywhere.
public final class HugeFile implements AutoCloseable {
    private static final FileAttribute<Set<PosixFilePermission>> PRIVATE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));
    private static final int PERMISSIONS = 0777;
    private static final int FOR_OWNER = 0600;

    private final Path path;
    private final FileLock lock;
    private final Arena arena;
    private final MemorySegment file;
    private final MemorySegment memory;

    private HugeFile(Path path, FileLock lock, Arena arena, MemorySegment file, long size) {
        this.path = path;
        this.lock = lock;
        this.arena = arena;
        this.file = file;
        this.memory = file.asSlice(0, size);
    }

    /// Creates a file with zeroed memory, and populates it, so that a shortage is an exception now.
    ///
    /// @param path the file, on hugetlbfs or tmpfs; it must not exist
    /// @param size size of the memory in bytes
    /// @param format what the memory contains and in which version, at most 63 bytes in UTF-8
    /// @return the open file
    /// @throws IOException if it cannot be created, also because it exists
    /// @throws HugeMemoryException if the pool or the file system has too little memory
    /// @throws IllegalArgumentException if the size is not positive, or the format is too long
    public static HugeFile create(Path path, long size, String format) throws IOException {
        FileHeader header = new FileHeader(size, format);
        long pageSize = pageSize(Objects.requireNonNull(path.toAbsolutePath().getParent()));
        try (FileChannel channel = FileChannel.open(path, Set.of(CREATE_NEW, READ, WRITE), PRIVATE)) {
            FileLock lock = lock(path, identity(Files.readAttributes(path, "unix:ino,dev", LinkOption.NOFOLLOW_LINKS)));
            try {
                HugeFile file = opened(path, lock, channel, header.fileSize(pageSize), size);
                header.write(file.file);
                FileOwner.write(FileHeader.of(file.file));
                return file;
            } catch (Throwable error) {
                Files.deleteIfExists(path);
                lock.close();
                throw error;
            }
        }
    }

    /// Opens a file that was created before, and is not open. Its missing pages are populated, so that a shortage is an
    /// exception now.
    ///
    /// @param path the file
    /// @param format the format that it must have
    /// @return the open file
    /// @throws IOException if it cannot be opened, is not of this user, or others may access it
    /// @throws HugeMemoryException if it is not such a file, is of another version, format or size, is open already, or the
    ///     file system has too little memory for its missing pages
    public static HugeFile open(Path path, String format) throws IOException {
        Object identity = privateFile(path);
        try (FileChannel channel = FileChannel.open(path, Set.of(READ, WRITE, LinkOption.NOFOLLOW_LINKS))) {
            FileLock lock = lock(path, identity);
            try {
                long whole = channel.size();
                if (whole < FileHeader.BYTES) {
                    throw refused(path, "it has " + Bytes.text(whole) + ", less than a header");
                }
                MemorySegment header = MemorySegment.ofBuffer(read(channel, whole - FileHeader.BYTES));
                HugeFile file = opened(path, lock, channel, whole, FileHeader.sizeIn(header, whole, format, pageSize(path)));
                FileOwner.write(FileHeader.of(file.file));
                return file;
            } catch (IllegalArgumentException why) {
                lock.close();
                throw refused(path, Objects.requireNonNull(why.getMessage()));
            } catch (Throwable error) {
                lock.close();
                throw error;
            }
        }
    }

    /// Deletes a file that [#open] refuses, unless it is open, or another program's.
    ///
    /// @param path the file
    /// @param isDeleted whether to delete a file with these first bytes, at most 4096
    /// @return whether it was deleted
    /// @throws IOException if it cannot be read, is not of this user, or others may access it
    /// @throws HugeMemoryException if it is open
    public static boolean delete(Path path, Predicate<ByteBuffer> isDeleted) throws IOException {
        NativeLibrary.checkAccess();
        Object identity = privateFile(path);
        try (FileChannel channel = FileChannel.open(path, Set.of(READ, LinkOption.NOFOLLOW_LINKS));
                FileLock _ = lock(path, identity)) {
            if (!isDeleted.test(read(channel, 0))) {
                return false;
            }
            Files.delete(path);
            return true;
        }
    }

    /// Reads the size of a header, or less at the end of the file.
    private static ByteBuffer read(FileChannel channel, long position) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(FileHeader.BYTES).order(ByteOrder.nativeOrder());
        int read = 0;
        while (read >= 0 && bytes.hasRemaining()) {
            read = channel.read(bytes, position + bytes.position());
        }
        return bytes.flip();
    }

    private static FileLock lock(Path path, Object identity) throws IOException {
        FileLock lock = FileLock.of(path);
        try {
            if (identity.equals(identity(Files.readAttributes(path, "unix:ino,dev", LinkOption.NOFOLLOW_LINKS)))) {
                return lock;
            }
            throw new IOException(path + " was replaced while it was opened");
        } catch (Throwable error) {
            lock.close();
            throw error;
        }
    }

    /// Maps a locked file of a size, and populates it.
    private static HugeFile opened(Path path, FileLock lock, FileChannel channel, long whole, long size) throws IOException {
        Arena arena = Arena.ofShared();
        try {
            MemorySegment file = map(path, channel, whole, arena);
            // Without effect, and an error, where transparent huge pages cannot be: pages of a pool need no advice.
            Advice.advise(file.address(), whole, Advice.HUGEPAGE);
            populate(path, file);
            return new HugeFile(path, lock, arena, file, size);
        } catch (Throwable error) {
            arena.close();
            throw error;
        }
    }

    /// Adds missing pages to a file. One that cannot be added would be an error of the JVM at its first use.
    private static void populate(Path path, MemorySegment file) {
        try {
            new KernelPretouch(file, MachinePages.current().base(), MachinePages.current()).run(0, file.byteSize(), 0);
        } catch (HugeMemoryException error) {
            if (error.errno() != SystemCall.EFAULT) {
                throw error;
            }
            throw new HugeMemoryException(path + " could not be populated: its file system is full", file.byteSize(), SystemCall.EFAULT);
        }
    }

    private static MemorySegment map(Path path, FileChannel channel, long whole, Arena arena) throws IOException {
        try {
            return channel.map(MapMode.READ_WRITE, 0, whole, arena);
        } catch (IOException error) {
            FileStore store = Files.getFileStore(path);
            if (!isHugetlbfs(store)) {
                throw error;
            }
            long pageSize = store.getBlockSize();
            String lack = MachinePages.current().lack(pageSize, whole / pageSize);
            throw new HugeMemoryException(path + " could not be mapped: " + lack, whole, SystemCall.ENOMEM);
        }
    }

    /// The size of the pages that a file there consists of, in bytes.
    private static long pageSize(Path path) throws IOException {
        Platform platform = Platform.current();
        if (platform.folder().isEmpty()) {
            throw new HugeMemoryException(NativeLibrary.unsupported(platform), 0, 0);
        }
        NativeLibrary.checkAccess();
        FileStore store = Files.getFileStore(path);
        if (!isHugetlbfs(store) && !store.type().equals("tmpfs")) {
            throw new IOException(path + " is on " + store.type() + ": memory that outlives a process is on hugetlbfs or tmpfs");
        }
        MachinePages pages = MachinePages.current();
        return isHugetlbfs(store) ? store.getBlockSize() : Math.max(pages.thp(), pages.base());
    }

    private static boolean isHugetlbfs(FileStore store) {
        return store.type().equals("hugetlbfs");
    }

    /// The identity of a file that only this user can access.
    private static Object privateFile(Path path) throws IOException {
        Map<String, Object> found = Files.readAttributes(path, "unix:uid,mode,ino,dev", LinkOption.NOFOLLOW_LINKS);
        int mode = (Integer) Objects.requireNonNull(found.get("mode"));
        if (!Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS) || (mode & PERMISSIONS) != FOR_OWNER) {
            throw new IOException(path + " is not a file of mode 0600");
        }
        int owner = (Integer) Objects.requireNonNull(found.get("uid"));
        if (owner != NativeLibrary.user()) {
            throw new IOException(path + " belongs to user " + owner + ", who could change it");
        }
        return identity(found);
    }

    private static Object identity(Map<String, Object> attributes) {
        return List.of(Objects.requireNonNull(attributes.get("dev")), Objects.requireNonNull(attributes.get("ino")));
    }

    static HugeMemoryException refused(Path path, String why) {
        return new HugeMemoryException(path + " is refused: " + why, 0, 0);
    }

    /// {@return the memory, which lives until the file is closed}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return the file}
    public Path path() {
        return path;
    }

    /// {@return the size in bytes of the pages that it consists of: on hugetlbfs those of the pool, on tmpfs transparent
    /// huge pages if the kernel has them}
    /// @throws IOException if its file system cannot be read
    public long pageSize() throws IOException {
        return pageSize(path);
    }

    /// Reads the page sizes of the file: of the memory, and of its last page, which has the header.
    ///
    /// @return the coverage, or why it is unknown
    /// @throws IllegalStateException if the file is closed
    public Coverage coverage() {
        return Coverage.of(file);
    }

    /// Ends the use of the memory by this process. The file keeps it; delete the file to release it. Without effect if the
    /// file is closed already.
    ///
    /// @throws IllegalStateException if a thread is accessing its memory
    @Override
    public void close() {
        if (Scopes.close(arena)) {
            lock.close();
        }
    }

    @Override
    public String toString() {
        return path + " of " + Bytes.text(memory.byteSize());
    }
}
