import com.microsoft.gctoolkit.GCToolKit;
import com.microsoft.gctoolkit.aggregator.Aggregates;
import com.microsoft.gctoolkit.aggregator.Aggregation;
import com.microsoft.gctoolkit.aggregator.Aggregator;
import com.microsoft.gctoolkit.aggregator.Collates;
import com.microsoft.gctoolkit.aggregator.EventSource;
import com.microsoft.gctoolkit.event.GCEvent;
import com.microsoft.gctoolkit.event.g1gc.G1GCPauseEvent;
import com.microsoft.gctoolkit.event.generational.GenerationalGCPauseEvent;
import com.microsoft.gctoolkit.io.SingleGCLogFile;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/** Counts and sums the pauses of a log with GCToolKit, by its types. */
public class Pauses {
    public static void main(String[] arguments) throws Exception {
        GCToolKit toolkit = new GCToolKit();
        toolkit.loadAggregation(new Sums());
        var machine = toolkit.analyze(new SingleGCLogFile(Path.of(arguments[0])));
        Sums sums = machine.getAggregation(Sums.class).orElseThrow();
        System.out.println("pauses " + sums.count + " seconds " + sums.seconds + " " + sums.types);
    }

    @Collates(Adder.class)
    public static class Sums extends Aggregation {
        long count;
        double seconds;
        final Map<String, Long> types = new TreeMap<>();

        @Override public boolean hasWarning() { return false; }
        @Override public boolean isEmpty() { return count == 0; }
    }

    @Aggregates({EventSource.G1GC, EventSource.GENERATIONAL})
    public static class Adder extends Aggregator<Sums> {
        public Adder(Sums sums) {
            super(sums);
            register(G1GCPauseEvent.class, this::add);
            register(GenerationalGCPauseEvent.class, this::add);
        }

        private void add(GCEvent event) {
            aggregation().count++;
            aggregation().seconds += event.getDuration();
            aggregation().types.merge(event.getClass().getSimpleName(), 1L, Long::sum);
        }
    }
}
