package io.hugewise.memory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;

/// A temporary directory that only this user can write, to load a library from.
///
/// A user who can write a directory above it could replace the library. So each directory above must belong
/// to root or this user, and be writable by others only with the sticky bit, as `/tmp` is.
final class PrivateFolder implements AutoCloseable {
    private static final int STICKY = 01000;
    private static final int OTHERS_WRITE = 022;
    private static final int PERMISSIONS = 0777;

    private final Path path;
    private final int user;

    private PrivateFolder(Path path, int user) {
        this.path = path;
        this.user = user;
    }

    /// Creates the directory.
    ///
    /// @param parent directory to create it in
    /// @param user effective user id of this process
    /// @throws IOException if it cannot be created, or would not be private
    static PrivateFolder in(Path parent, int user) throws IOException {
        Path real = parent.toRealPath();
        for (Path above = real; above != null; above = above.getParent()) {
            checkAbove(above, user);
        }
        var mine = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        PrivateFolder folder = new PrivateFolder(Files.createTempDirectory(real, ".hugewise-jvm-", mine), user);
        folder.check();
        return folder;
    }

    private static void checkAbove(Path folder, int user) throws IOException {
        Status status = Status.of(folder);
        if (status.user != 0 && status.user != user) {
            throw new IOException(folder + " belongs to user " + status.user + ", who could replace its files");
        }
        if ((status.mode & OTHERS_WRITE) != 0 && (status.mode & STICKY) == 0) {
            throw new IOException(folder + " can be written by others, who could replace its files");
        }
    }

    /// Checks that the directory is still private.
    private void check() throws IOException {
        Status status = Status.of(path);
        if (!Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)
                || status.user != user
                || (status.mode & PERMISSIONS) != 0700) {
            throw new IOException(path + " has changed since its creation: another program changes files there");
        }
    }

    /// Writes a file and verifies its content.
    Path write(String name, byte[] content) throws IOException {
        Path file = path.resolve(name);
        Files.write(file, content, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        check();
        if (!Arrays.equals(Files.readAllBytes(file), content)) {
            throw new IOException(file + " does not contain the data written to it");
        }
        return file;
    }

    /// Deletes the directory and its files, if possible. A loaded library stays usable.
    @Override
    public void close() {
        try (var files = Files.newDirectoryStream(path)) {
            for (Path file : files) {
                Files.delete(file);
            }
            Files.delete(path);
        } catch (IOException _) {
            // Harmless: it contains no secret, and its name is random.
        }
    }

    private record Status(int user, int mode) {
        static Status of(Path path) throws IOException {
            Map<String, Object> found = Files.readAttributes(path, "unix:uid,mode", LinkOption.NOFOLLOW_LINKS);
            return new Status(number(found, "uid"), number(found, "mode"));
        }

        private static int number(Map<String, Object> found, String name) {
            return (Integer) Objects.requireNonNull(found.get(name));
        }
    }
}
