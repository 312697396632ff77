package io.hugewise.jcache;

import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.WeakHashMap;
import javax.cache.CacheManager;
import javax.cache.configuration.OptionalFeature;
import javax.cache.spi.CachingProvider;
import org.jspecify.annotations.Nullable;

/// Provides managers of caches whose memory is outside of the Java heap, on huge pages where the kernel gives them.
///
/// The properties of a manager can have [#MAXIMUM_BYTES].
public final class HugeCachingProvider implements CachingProvider {
    /// Property of a manager: limit in bytes of each of its caches, unless it is set by a [HugeConfiguration], or by the
    /// property of this name followed by a dot and the name of the cache. By default 64 MiB.
    public static final String MAXIMUM_BYTES = "hugewise.maximum-bytes";

    private static final URI DEFAULT = URI.create("hugewise:default");

    private final Map<ClassLoader, Map<URI, HugeCacheManager>> managers = new WeakHashMap<>();

    /// Called by `Caching`.
    public HugeCachingProvider() {}

    @Override
    public synchronized CacheManager getCacheManager(@Nullable URI uri, @Nullable ClassLoader loader, @Nullable Properties properties) {
        URI name = uri == null ? DEFAULT : uri;
        ClassLoader classes = loader == null ? getDefaultClassLoader() : loader;
        return managers.computeIfAbsent(classes, _ -> new HashMap<>())
                .computeIfAbsent(name, _ -> new HugeCacheManager(this, name, classes, properties == null ? new Properties() : properties));
    }

    @Override
    public CacheManager getCacheManager(@Nullable URI uri, @Nullable ClassLoader loader) {
        return getCacheManager(uri, loader, getDefaultProperties());
    }

    @Override
    public CacheManager getCacheManager() {
        return getCacheManager(null, null, null);
    }

    @Override
    public ClassLoader getDefaultClassLoader() {
        return HugeCachingProvider.class.getClassLoader();
    }

    @Override
    public URI getDefaultURI() {
        return DEFAULT;
    }

    @Override
    public Properties getDefaultProperties() {
        return new Properties();
    }

    @Override
    public void close() {
        List<HugeCacheManager> open = new ArrayList<>();
        synchronized (this) {
            managers.values().forEach(of -> open.addAll(of.values()));
            managers.clear();
        }
        open.forEach(HugeCacheManager::close);
    }

    @Override
    public void close(ClassLoader loader) {
        Map<URI, HugeCacheManager> open;
        synchronized (this) {
            open = managers.remove(loader);
        }
        if (open != null) {
            open.values().forEach(HugeCacheManager::close);
        }
    }

    @Override
    public void close(URI uri, ClassLoader loader) {
        HugeCacheManager open;
        synchronized (this) {
            Map<URI, HugeCacheManager> of = managers.get(loader);
            open = of == null ? null : of.remove(uri);
        }
        if (open != null) {
            open.close();
        }
    }

    synchronized void closed(HugeCacheManager manager) {
        Map<URI, HugeCacheManager> of = managers.get(manager.getClassLoader());
        if (of != null && of.remove(manager.getURI(), manager) && of.isEmpty()) {
            managers.remove(manager.getClassLoader());
        }
    }

    @Override
    public boolean isSupported(OptionalFeature feature) {
        return false;
    }
}
