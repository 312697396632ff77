package io.hugewise.memory;

import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Supplier;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.FlightRecorderListener;
import org.jspecify.annotations.Nullable;

/// Objects that a periodic event of Flight Recorder reports until they are closed or collected. Flight Recorder has a
/// listener and a hook only while there are such objects: these keep the class loader of the library.
///
/// @param <T> type of the objects
final class Reported<T> {
    /// `null` if the system refuses its thread: an object is then removed when it is closed, and only then.
    private static final @Nullable Cleaner CLEANER = cleaner();

    private final Set<WeakReference<T>> objects = ConcurrentHashMap.newKeySet();
    private final Consumer<T> report;
    private final Runnable hook = this::report;
    private final FlightRecorderListener listener;
    private boolean isListening;

    /// @param type returns the class of the event, which is loaded when a recording needs it
    Reported(Supplier<Class<? extends Event>> type, Consumer<T> report) {
        this.report = report;
        this.listener = new FlightRecorderListener() {
            @Override
            public void recorderInitialized(FlightRecorder recorder) {
                FlightRecorder.addPeriodicEvent(type.get(), hook);
            }
        };
    }

    /// Adds an object.
    ///
    /// @return removes it
    Cleaner.Cleanable add(T object) {
        var reference = new WeakReference<>(object);
        objects.add(reference);
        listen();
        Runnable remove = () -> {
            objects.remove(reference);
            listen();
        };
        return CLEANER == null ? remove::run : CLEANER.register(object, remove);
    }

    private static @Nullable Cleaner cleaner() {
        try {
            return Cleaner.create();
        } catch (OutOfMemoryError _) {
            return null;
        }
    }

    private synchronized void listen() {
        if (isListening == !objects.isEmpty()) {
            return;
        }
        isListening = !isListening;
        if (isListening) {
            FlightRecorder.addListener(listener);
        } else {
            FlightRecorder.removeListener(listener);
            FlightRecorder.removePeriodicEvent(hook);
        }
    }

    private void report() {
        for (WeakReference<T> reference : objects) {
            T object = reference.get();
            if (object != null) {
                report.accept(object);
            }
        }
    }
}
