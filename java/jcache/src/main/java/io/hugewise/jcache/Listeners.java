package io.hugewise.jcache;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import javax.cache.configuration.CacheEntryListenerConfiguration;
import javax.cache.event.CacheEntryCreatedListener;
import javax.cache.event.CacheEntryEvent;
import javax.cache.event.CacheEntryEventFilter;
import javax.cache.event.CacheEntryExpiredListener;
import javax.cache.event.CacheEntryListener;
import javax.cache.event.CacheEntryListenerException;
import javax.cache.event.CacheEntryRemovedListener;
import javax.cache.event.CacheEntryUpdatedListener;
import org.jspecify.annotations.Nullable;

/// The listeners of a cache. Those that are not synchronous are called in the order of the events, by the common pool.
final class Listeners<K, V> {
    private final List<Registration<K, V>> registrations = new CopyOnWriteArrayList<>();
    private final Executor executor = ForkJoinPool.commonPool();
    private CompletableFuture<@Nullable Void> last = CompletableFuture.completedFuture(null);

    private record Registration<K, V>(CacheEntryListenerConfiguration<K, V> configuration, CacheEntryListener<? super K, ? super V> listener,
            @Nullable CacheEntryEventFilter<? super K, ? super V> filter) {}

    synchronized void add(CacheEntryListenerConfiguration<K, V> configuration) {
        if (registrations.stream().anyMatch(other -> other.configuration.equals(configuration))) {
            throw new IllegalArgumentException("this configuration of a listener is registered already");
        }
        var filter = configuration.getCacheEntryEventFilterFactory();
        registrations.add(new Registration<>(configuration, configuration.getCacheEntryListenerFactory().create(),
                filter == null ? null : filter.create()));
    }

    synchronized @Nullable CacheEntryListener<? super K, ? super V> remove(CacheEntryListenerConfiguration<K, V> configuration) {
        for (Registration<K, V> registration : registrations) {
            if (registration.configuration.equals(configuration)) {
                registrations.remove(registration);
                return registration.listener;
            }
        }
        return null;
    }

    List<Object> all() {
        List<Object> all = new ArrayList<>();
        for (Registration<K, V> registration : registrations) {
            all.add(registration.listener);
            if (registration.filter != null) {
                all.add(registration.filter);
            }
        }
        return all;
    }

    boolean isEmpty() {
        return registrations.isEmpty();
    }

    /// Calls the listeners.
    ///
    /// @throws CacheEntryListenerException if a synchronous one throws an exception; the others are called all the same, also
    ///     after an error, which is thrown then
    void dispatch(List<Event<K, V>> events) {
        CacheEntryListenerException failure = null;
        Error fatal = null;
        for (Event<K, V> event : events) {
            for (Registration<K, V> registration : registrations) {
                try {
                    if (!registration.configuration.isSynchronous()) {
                        later(registration, event);
                    } else if (registration.filter == null || registration.filter.evaluate(event)) {
                        call(registration.listener, event);
                    }
                } catch (CacheEntryListenerException error) {
                    failure = error;
                } catch (Exception error) {
                    failure = new CacheEntryListenerException("a listener failed", error);
                } catch (Error error) {
                    fatal = error;
                }
            }
        }
        if (fatal != null) {
            throw fatal;
        }
        if (failure != null) {
            throw failure;
        }
    }

    private synchronized void later(Registration<K, V> registration, Event<K, V> event) {
        last = last.handleAsync((_, _) -> {
            if (registration.filter == null || registration.filter.evaluate(event)) {
                call(registration.listener, event);
            }
            return null;
        }, executor);
    }

    private static <K, V> void call(CacheEntryListener<? super K, ? super V> listener, Event<K, V> event) {
        List<CacheEntryEvent<? extends K, ? extends V>> one = List.of(event);
        switch (event.getEventType()) {
            case CREATED -> {
                if (listener instanceof CacheEntryCreatedListener<? super K, ? super V> created) {
                    created.onCreated(iterable(one));
                }
            }
            case UPDATED -> {
                if (listener instanceof CacheEntryUpdatedListener<? super K, ? super V> updated) {
                    updated.onUpdated(iterable(one));
                }
            }
            case REMOVED -> {
                if (listener instanceof CacheEntryRemovedListener<? super K, ? super V> removed) {
                    removed.onRemoved(iterable(one));
                }
            }
            case EXPIRED -> {
                if (listener instanceof CacheEntryExpiredListener<? super K, ? super V> expired) {
                    expired.onExpired(iterable(one));
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> Iterable<T> iterable(List<?> events) {
        return (Iterable<T>) events;
    }
}
