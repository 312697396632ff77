package io.hugewise.jmh;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/// Hardware counters through `perf`, if this machine has them.
final class PerfEvents {
    private final List<String> countable;
    private final String reason;

    private PerfEvents(List<String> countable, String reason) {
        this.countable = countable;
        this.reason = reason;
    }

    /// Runs `perf` once to find out which events it can count.
    static PerfEvents probe(List<String> events) {
        Path file = null;
        try {
            file = Files.createTempFile("perf", ".csv");
            Process perf = start(file, events, "true");
            String said = new String(perf.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
            int status = perf.waitFor();
            if (status != 0) {
                return new PerfEvents(List.of(), "'perf stat' failed with " + status + ": " + said.lines().findFirst().orElse(""));
            }
            List<String> countable = new ArrayList<>(parse(Files.readAllLines(file)).keySet());
            return new PerfEvents(countable, countable.size() == events.size() ? "" : "'perf stat' cannot count them here");
        } catch (IOException error) {
            return new PerfEvents(List.of(), "no perf: " + error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return new PerfEvents(List.of(), "interrupted");
        } finally {
            delete(file);
        }
    }

    /// The requested events that cannot be counted, with the reason; empty if all can.
    String missing(List<String> requested) {
        List<String> missing = new ArrayList<>(requested);
        // With permission for user mode only, perf appends `:u` to the name.
        missing.removeIf(event -> countable.stream().anyMatch(name -> name.equals(event) || name.startsWith(event + ":")));
        return missing.isEmpty() ? "" : String.join(", ", missing) + ": not counted: " + reason;
    }

    /// Starts counting in this process; does nothing if no event can be counted.
    Counting count() {
        return new Counting();
    }

    final class Counting {
        private @Nullable Path file;
        private @Nullable Process perf;

        private Counting() {
            if (countable.isEmpty()) {
                return;
            }
            try {
                file = Files.createTempFile("perf", ".csv");
                perf = start(file, countable, "-p", Long.toString(ProcessHandle.current().pid()));
                awaitCounters(perf);
            } catch (IOException error) {
                // end() returns no counts.
            }
        }

        /// Ends counting and returns the counts by event.
        Map<String, Double> end() {
            if (perf == null || file == null) {
                return Map.of();
            }
            try {
                // perf writes its counts on SIGTERM.
                perf.destroy();
                if (!perf.waitFor(10, TimeUnit.SECONDS)) {
                    perf.destroyForcibly();
                    return Map.of();
                }
                return parse(Files.readAllLines(file));
            } catch (IOException error) {
                return Map.of();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return Map.of();
            } finally {
                delete(file);
            }
        }
    }

    private static Process start(Path file, List<String> events, String... what) throws IOException {
        List<String> command = new ArrayList<>(List.of("perf", "stat", "-x", ",", "-o", file.toString()));
        command.addAll(List.of("-e", String.join(",", events)));
        command.addAll(List.of(what));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().put("LC_ALL", "C");
        return builder.start();
    }

    /// Waits until `perf` has opened a counter for each thread: until their number is stable.
    private static void awaitCounters(Process perf) {
        long before = 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        try {
            while (perf.isAlive() && System.nanoTime() < deadline) {
                Thread.sleep(20);
                long now = counters(perf.pid());
                if (now > 0 && now == before) {
                    return;
                }
                before = now;
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static long counters(long pid) {
        try (Stream<Path> open = Files.list(Path.of("/proc", Long.toString(pid), "fd"))) {
            return open.filter(PerfEvents::isCounter).count();
        } catch (IOException error) {
            return 0;
        }
    }

    private static boolean isCounter(Path descriptor) {
        try {
            return Files.readSymbolicLink(descriptor).toString().contains("[perf_event]");
        } catch (IOException error) {
            return false;
        }
    }

    /// `VALUE,UNIT,EVENT,…`: an event whose value is not a number (`<not supported>`) was not counted.
    static Map<String, Double> parse(List<String> lines) {
        Map<String, Double> counts = new LinkedHashMap<>();
        for (String line : lines) {
            String[] fields = line.split(",", -1);
            if (fields.length > 2 && fields[0].matches("[0-9]+(\\.[0-9]+)?")) {
                counts.put(fields[2], Double.parseDouble(fields[0]));
            }
        }
        return counts;
    }

    private static void delete(@Nullable Path file) {
        try {
            if (file != null) {
                Files.deleteIfExists(file);
            }
        } catch (IOException error) {
            // Harmless: it is in the directory for temporary files.
        }
    }
}
