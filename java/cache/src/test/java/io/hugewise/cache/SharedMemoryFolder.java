package io.hugewise.cache;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/// A folder of a test on the machine's own tmpfs, which is deleted with its files.
final class SharedMemoryFolder implements BeforeEachCallback, AfterEachCallback {
    private static final Path SHM = Path.of("/dev/shm");

    Path path = SHM;

    @Override
    public void beforeEach(ExtensionContext context) throws IOException {
        assumeTrue(Files.isWritable(SHM) && Files.getFileStore(SHM).type().equals("tmpfs"), "no tmpfs at /dev/shm");
        path = Files.createTempDirectory(SHM, "hugewise-test-");
    }

    @Override
    public void afterEach(ExtensionContext context) throws IOException {
        if (path.equals(SHM)) {
            return;
        }
        try (var files = Files.newDirectoryStream(path)) {
            for (Path file : files) {
                Files.delete(file);
            }
        }
        Files.delete(path);
        path = SHM;
    }

    Path resolve(String name) {
        return path.resolve(name);
    }
}
