package io.hugewise.memory.internal;

import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Supplier;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.FlightRecorderListener;

/// Objects that a periodic event of Flight Recorder reports until they are closed or collected. Flight Recorder has a
/// listener and a hook only while there are such objects: these keep the class loader of the library.
///
/// @param <T> type of the objects
public final class Reported<T> {
    private final Set<WeakReference<T>> objects = ConcurrentHashMap.newKeySet();
    private final Consumer<T> report;
    private final Runnable hook = this::report;
    private final FlightRecorderListener listener;
    private boolean isListening;

    /// Objects of a kind, none yet.
    ///
    /// @param type returns the class of the event, which is loaded when a recording needs it
    /// @param report reports an object
    public Reported(Supplier<Class<? extends Event>> type, Consumer<T> report) {
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
    /// @param object the object
    /// @return removes it
    public Cleaner.Cleanable add(T object) {
        var reference = new WeakReference<>(object);
        objects.add(reference);
        listen();
        return Collected.register(object, () -> {
            objects.remove(reference);
            listen();
        });
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
