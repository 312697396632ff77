package io.hugewise.jcache;

import java.util.Collection;
import java.util.Map;
import java.util.Set;
import javax.cache.Cache;
import javax.cache.configuration.CompleteConfiguration;
import javax.cache.configuration.Factory;
import javax.cache.integration.CacheLoader;
import javax.cache.integration.CacheLoaderException;
import javax.cache.integration.CacheWriter;
import javax.cache.integration.CacheWriterException;
import org.jspecify.annotations.Nullable;

/// What a cache loads from and writes to. Exceptions are wrapped as the specification says.
final class Backend<K, V> {
    final @Nullable CacheLoader<K, V> loader;
    final @Nullable CacheWriter<? super K, ? super V> writer;
    final boolean isReadThrough;
    final boolean isWriteThrough;

    Backend(CompleteConfiguration<K, V> configuration) {
        Factory<CacheLoader<K, V>> loaders = configuration.getCacheLoaderFactory();
        Factory<CacheWriter<? super K, ? super V>> writers = configuration.getCacheWriterFactory();
        loader = loaders == null ? null : loaders.create();
        writer = writers == null ? null : writers.create();
        isReadThrough = loader != null && configuration.isReadThrough();
        isWriteThrough = writer != null && configuration.isWriteThrough();
    }

    /// Loads a value if the cache reads through.
    @Nullable V load(K key) {
        CacheLoader<K, V> from = isReadThrough ? loader : null;
        if (from == null) {
            return null;
        }
        try {
            return from.load(key);
        } catch (CacheLoaderException error) {
            throw error;
        } catch (Exception error) {
            throw new CacheLoaderException("the loader failed", error);
        }
    }

    Map<K, V> loadAll(Set<? extends K> keys) {
        CacheLoader<K, V> from = loader;
        if (from == null) {
            return Map.of();
        }
        try {
            return from.loadAll(keys);
        } catch (CacheLoaderException error) {
            throw error;
        } catch (Exception error) {
            throw new CacheLoaderException("the loader failed", error);
        }
    }

    private interface Write<K, V> {
        void to(CacheWriter<? super K, ? super V> writer);
    }

    private void write(Write<K, V> write) {
        CacheWriter<? super K, ? super V> to = isWriteThrough ? writer : null;
        if (to == null) {
            return;
        }
        try {
            write.to(to);
        } catch (CacheWriterException error) {
            throw error;
        } catch (Exception error) {
            throw new CacheWriterException("the writer failed", error);
        }
    }

    void write(K key, V value) {
        write(to -> to.write(new ReadEntry<>(key, value)));
    }

    void delete(K key) {
        write(to -> to.delete(key));
    }

    /// Writes entries. Those that were written are removed from the collection.
    void writeAll(Collection<Cache.Entry<? extends K, ? extends V>> entries) {
        write(to -> writeAll(to, entries));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void writeAll(CacheWriter to, Collection entries) {
        to.writeAll(entries);
    }

    /// Deletes entries. The keys of those that were deleted are removed from the collection.
    void deleteAll(Collection<? extends K> keys) {
        write(to -> to.deleteAll(keys));
    }
}
