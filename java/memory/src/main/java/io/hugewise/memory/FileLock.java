package io.hugewise.memory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.charset.Charset;
import java.nio.file.Path;

/// The lock of a [HugeFile], `flock(2)`: it belongs to one open file description, and ends with its process. Unlike a
/// POSIX lock, it stays when this process opens and closes the file elsewhere, and excludes this process, too. It is
/// effective in all containers that share the file.
///
/// @param descriptor of the file, used for nothing else
record FileLock(int descriptor) implements AutoCloseable {
    private static final int AT_FDCWD = -100;
    private static final int CLOEXEC_NONBLOCK = 0x8_0800;
    private static final int EXCLUSIVE_NONBLOCK = 2 | 4;
    private static final Charset NAMES = Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8"));

    /// Locks a file.
    ///
    /// @throws HugeMemoryException if it is locked
    static FileLock of(Path path) throws IOException {
        long opened;
        try (Arena arena = Arena.ofConfined()) {
            opened = SystemCall.OPENAT.call(AT_FDCWD, arena.allocateFrom(path.toString(), NAMES).address(), CLOEXEC_NONBLOCK, 0);
        }
        if (opened < 0) {
            throw new IOException(path + " could not be opened: " + SystemCall.text(opened));
        }
        FileLock lock = new FileLock((int) opened);
        long answer = SystemCall.FLOCK.call(opened, EXCLUSIVE_NONBLOCK);
        if (answer < 0) {
            lock.close();
            if (answer == -SystemCall.EAGAIN) {
                throw HugeFile.refused(path, "it is open already" + FileOwner.of(path));
            }
            throw new IOException(path + " could not be locked: " + SystemCall.text(answer));
        }
        return lock;
    }

    @Override
    public void close() {
        SystemCall.CLOSE.call(descriptor);
    }
}
