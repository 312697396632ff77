package io.hugewise.cache.simulation;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Supplier;

/// Hit ratios of all policies for a trace and capacities in proportion to its footprint.
final class Simulation {
    static final double[] SHARES = {0.01, 0.1, 0.3};
    /// Names a folder with `OLTP.lis` and `cloudPhysicsIO.csv.gz`, which are not part of the project.
    static final String FOLDER = "simulation.traces";

    private interface Kind {
        Policy create(long capacity, int[] sizes);
    }

    private static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("Caffeine", Caffeine::new);
        KINDS.put("LRU", Lru::new);
        KINDS.put("S3-FIFO", S3Fifo::new);
        KINDS.put("SIEVE", Sieve::new);
        KINDS.put("segments, FIFO", SegmentFifo::new);
        KINDS.put("segments, W-TinyLFU", SegmentTinyLfu::new);
    }

    /// Result of all policies for one capacity.
    ///
    /// @param hits hits by the policy's name, as a share of the requests
    /// @param byteHits bytes of hits, as a share of those of all requests
    /// @param moved bytes that [SegmentTinyLfu] moved for each inserted one
    record Row(String trace, int keys, int requests, boolean sized, double share, long capacity,
            Map<String, Double> hits, Map<String, Double> byteHits, double moved) {
        /// Hit ratio of the segments relative to Caffeine, in points.
        double difference() {
            return 100 * (hits.get("segments, W-TinyLFU") - hits.get("Caffeine"));
        }

        String json() {
            return String.format(Locale.ROOT, " {\"trace\": \"%s\", \"keys\": %d, \"requests\": %d, \"capacity_in\": \"%s\","
                    + " \"capacity\": %d, \"capacity_ratio\": %s, \"hit_ratios\": %s, \"byte_hit_ratios\": %s, \"moved_ratio\": %.4f}",
                    trace, keys, requests, sized ? "bytes" : "entries", capacity, share, json(hits), json(byteHits), moved);
        }

        private static String json(Map<String, Double> ratios) {
            List<String> fields = new ArrayList<>();
            ratios.forEach((name, ratio) -> fields.add(String.format(Locale.ROOT, "\"%s\": %.6f", name, ratio)));
            return "{" + String.join(", ", fields) + "}";
        }
    }

    private Simulation() {}

    static Row row(Trace trace, double share) {
        long capacity = Math.max(1, Math.round(trace.footprint() * share));
        Map<String, Double> hits = new LinkedHashMap<>();
        Map<String, Double> byteHits = new LinkedHashMap<>();
        double moved = 0;
        for (var kind : KINDS.entrySet()) {
            Policy policy = kind.getValue().create(capacity, trace.sizes());
            long found = 0;
            double bytes = 0;
            double foundBytes = 0;
            for (int key : trace.requests()) {
                boolean hit = policy.request(key);
                found += hit ? 1 : 0;
                bytes += trace.sizes()[key];
                foundBytes += hit ? trace.sizes()[key] : 0;
            }
            hits.put(kind.getKey(), (double) found / trace.requests().length);
            byteHits.put(kind.getKey(), foundBytes / bytes);
            moved = policy instanceof SegmentTinyLfu segments ? segments.amplification() : moved;
        }
        return new Row(trace.name(), trace.sizes().length, trace.requests().length, trace.hasSizes(), share, capacity,
                hits, byteHits, moved);
    }

    /// All traces; those that are missing are not in the list.
    static List<Supplier<Trace>> traces() {
        List<Supplier<Trace>> traces = new ArrayList<>();
        for (String name : List.of("2_pools", "cpp", "cs", "gli", "loop", "multi1", "multi2", "multi3", "ps", "sprite")) {
            traces.add(() -> TraceFiles.lirs(name));
        }
        for (String name : List.of("gcc", "gzip", "mcf", "swim", "twolf")) {
            traces.add(() -> TraceFiles.addresses(name));
        }
        for (String name : List.of("orm-busy", "orm-night", "web07", "web12")) {
            traces.add(() -> TraceFiles.ints("cache2k " + name, "cache2k/" + name + ".trace.xz"));
        }
        traces.add(() -> TraceFiles.ints("cloud_physics w106", "cloud_physics/w106.trace.xz"));
        traces.add(() -> TraceFiles.longs("corda", "corda/trace_vaultservice.gz"));
        traces.add(() -> TraceFiles.longs("corda large", "corda/trace_vaultservice_large.gz"));
        traces.add(() -> TraceFiles.longs("scarab recs", "scarab/scarab-recs.trace.xz"));
        traces.add(TraceFiles::gradle);
        traces.add(() -> TraceFiles.adaptSize().withoutSizes());
        traces.add(TraceFiles::adaptSize);
        String folder = System.getProperty(FOLDER);
        if (folder != null) {
            traces.add(() -> read(() -> TraceFiles.arc("ARC OLTP", Path.of(folder, "OLTP.lis"))));
            traces.add(() -> read(() -> TraceFiles.blocks("libCacheSim cloudPhysicsIO", Path.of(folder, "cloudPhysicsIO.csv.gz")).withoutSizes()));
            traces.add(() -> read(() -> TraceFiles.blocks("libCacheSim cloudPhysicsIO", Path.of(folder, "cloudPhysicsIO.csv.gz"))));
        }
        traces.add(Generated::zipfWithScans);
        traces.add(Generated::driftingZipf);
        traces.add(Generated::keyValue);
        traces.add(() -> Generated.keyValue().withoutSizes());
        traces.add(Generated::files);
        return traces;
    }

    static void write(Path file) throws IOException {
        List<String> rows = new ArrayList<>();
        for (Supplier<Trace> of : traces()) {
            Trace trace = of.get();
            for (double share : SHARES) {
                rows.add(row(trace, share).json());
            }
        }
        Files.createDirectories(file.toAbsolutePath().getParent());
        Files.writeString(file, "[\n" + String.join(",\n", rows) + "\n]\n");
    }

    private interface Reading {
        Trace read() throws IOException;
    }

    private static Trace read(Reading reading) {
        try {
            return reading.read();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
