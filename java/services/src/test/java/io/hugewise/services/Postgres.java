package io.hugewise.services;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/// A database server of its own, which can be stopped and started. Root has it run by another user.
final class Postgres implements AutoCloseable {
    private static final long SECONDS = 120;

    private final Path programs;
    private final Path data;
    /// Of the server that runs: while none does, another program may take its port.
    private volatile int port;
    private @Nullable Process server;

    Postgres(Path folder) throws Exception {
        Path root = Path.of("/usr/lib/postgresql");
        assumeTrue(Files.isDirectory(root), "no PostgreSQL");
        try (var versions = Files.list(root)) {
            programs = versions.map(version -> version.resolve("bin")).filter(bin -> Files.isExecutable(bin.resolve("initdb"))).findAny().orElseThrow();
        }
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxrwxrwx"));
        data = folder.resolve("data");
        Process created = start("initdb", "--no-sync", "--auth=trust", "--username=shop", "-D", data.toString());
        if (created.waitFor() != 0) {
            throw new IOException("initdb failed");
        }
        start();
    }

    private Process start(String program, String... words) throws IOException {
        List<String> command = new ArrayList<>();
        if (Files.getOwner(Path.of("/proc/self")).getName().equals("root")) {
            command.addAll(List.of("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"));
        }
        command.add(programs.resolve(program).toString());
        command.addAll(Arrays.asList(words));
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).directory(data.getParent().toFile()).start();
    }

    void start() throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (true) {
            Process running = server;
            if (running == null || !running.isAlive()) {
                server = startServer();
            }
            try (Connection connection = connect(); var shown = connection.createStatement().executeQuery("show data_directory")) {
                shown.next();
                if (shown.getString(1).equals(data.toString())) {
                    return;
                }
            } catch (SQLException error) {
                if (System.nanoTime() > end) {
                    throw error;
                }
            }
            Thread.sleep(100);
        }
    }

    /// Starts it at a port that was free just before; it ends if it is not any more.
    private Process startServer() throws IOException {
        try (var free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        return start("postgres", "-D", data.toString(), "-c", "port=" + port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                // Else it takes pages of a pool that tests beside this one make.
                "-c", "max_connections=40", "-c", "huge_pages=off");
    }

    Connection connect() throws SQLException {
        return DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=shop&connectTimeout=10&socketTimeout=60");
    }

    /// Stops it in order, or as a crash of the machine does, after which it recovers.
    void stop(boolean inOrder) throws IOException, InterruptedException {
        Process running = server;
        if (running != null) {
            new ProcessBuilder("kill", inOrder ? "-INT" : "-QUIT", "" + running.pid()).start().waitFor();
            running.waitFor();
            server = null;
        }
    }

    @Override
    public void close() throws IOException {
        try {
            stop(false);
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }
}
