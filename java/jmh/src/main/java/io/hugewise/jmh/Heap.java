package io.hugewise.jmh;

import java.lang.management.ManagementFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.JMException;
import javax.management.ObjectName;

/// Address range of this JVM's heap, from `GC.heap_info`; for ZGC, which reports no addresses, the name of its
/// mappings.
final class Heap {
    private static final Pattern ADDRESSES = Pattern.compile("\\[0x([0-9a-f]+)(?:, ?0x([0-9a-f]+))+\\)");
    private static final Pattern MAPPING = Pattern.compile("([0-9a-f]+)-([0-9a-f]+) .*");

    private final long start;
    private final long end;

    private Heap(long start, long end) {
        this.start = start;
        this.end = end;
    }

    /// Queries this JVM. The range does not change while the JVM runs.
    static Heap current() {
        String info = "";
        try {
            ObjectName commands = new ObjectName("com.sun.management:type=DiagnosticCommand");
            info = String.valueOf(ManagementFactory.getPlatformMBeanServer()
                    .invoke(commands, "gcHeapInfo", new Object[0], new String[0]));
        } catch (JMException | RuntimeException error) {
            // Not HotSpot: the mappings may still have the name.
        }
        return of(info);
    }

    /// @param info output of `GC.heap_info`
    static Heap of(String info) {
        int metaspace = info.indexOf("Metaspace");
        Matcher found = ADDRESSES.matcher(metaspace < 0 ? info : info.substring(0, metaspace));
        long start = Long.MAX_VALUE;
        long end = 0;
        while (found.find()) {
            start = Math.min(start, Long.parseUnsignedLong(found.group(1), 16));
            end = Math.max(end, Long.parseUnsignedLong(found.group(2), 16));
        }
        return new Heap(start, end);
    }

    /// @param mapping first line of a mapping in smaps
    boolean holds(String mapping) {
        if (end == 0) {
            return mapping.contains("java_heap");
        }
        Matcher matcher = MAPPING.matcher(mapping);
        return matcher.matches()
                && Long.compareUnsigned(Long.parseUnsignedLong(matcher.group(1), 16), end) < 0
                && Long.compareUnsigned(start, Long.parseUnsignedLong(matcher.group(2), 16)) < 0;
    }
}
