package io.hugewise.jcache;

import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.configuration.CompleteConfiguration;
import javax.cache.configuration.Configuration;
import javax.cache.spi.CachingProvider;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.jspecify.annotations.Nullable;

/// The caches of a class loader and a URI.
final class HugeCacheManager implements CacheManager {
    private static final long DEFAULT_BYTES = 64 << 20;

    private final HugeCachingProvider provider;
    private final URI uri;
    private final ClassLoader classes;
    private final Properties properties;
    private final ConcurrentMap<String, ManagedCache<?, ?>> caches = new ConcurrentHashMap<>();
    private volatile boolean isClosed;

    HugeCacheManager(HugeCachingProvider provider, URI uri, ClassLoader classes, Properties properties) {
        this.provider = provider;
        this.uri = uri;
        this.classes = classes;
        this.properties = properties;
    }

    @Override
    public CachingProvider getCachingProvider() {
        return provider;
    }

    @Override
    public URI getURI() {
        return uri;
    }

    @Override
    public ClassLoader getClassLoader() {
        return classes;
    }

    @Override
    public Properties getProperties() {
        return properties;
    }

    @Override
    public synchronized <K, V, C extends Configuration<K, V>> Cache<K, V> createCache(String name, C configuration) {
        checkOpen();
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(configuration, "configuration");
        if (caches.containsKey(name)) {
            throw new CacheException("this manager has a cache '" + name + "' already");
        }
        HugeConfiguration<K, V> copy;
        if (configuration instanceof CompleteConfiguration<?, ?> complete) {
            @SuppressWarnings("unchecked")
            var typed = (CompleteConfiguration<K, V>) complete;
            copy = new HugeConfiguration<>(typed);
        } else {
            copy = new HugeConfiguration<>();
            copy.setTypes(configuration.getKeyType(), configuration.getValueType());
            copy.setStoreByValue(configuration.isStoreByValue());
        }
        if (!copy.isStoreByValue()) {
            throw new UnsupportedOperationException("entries are stored by value: their memory is outside of the heap");
        }
        copy.setMaximumBytes(maximumBytes(name, copy.getMaximumBytes()));
        var cache = new ManagedCache<>(name, this, copy);
        caches.put(name, cache);
        cache.start();
        return cache;
    }

    private long maximumBytes(String name, long configured) {
        if (configured != 0) {
            return configured;
        }
        String ofAll = properties.getProperty(HugeCachingProvider.MAXIMUM_BYTES, Long.toString(DEFAULT_BYTES));
        String text = properties.getProperty(HugeCachingProvider.MAXIMUM_BYTES + "." + name, ofAll);
        try {
            return Long.parseLong(text.strip());
        } catch (NumberFormatException error) {
            throw new CacheException("the property " + HugeCachingProvider.MAXIMUM_BYTES + " is a number of bytes, not '" + text + "'", error);
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> @Nullable Cache<K, V> getCache(String name, Class<K> keyType, Class<V> valueType) {
        Objects.requireNonNull(keyType, "keyType");
        Objects.requireNonNull(valueType, "valueType");
        Cache<K, V> cache = getCache(name);
        if (cache == null) {
            return null;
        }
        Configuration<?, ?> configuration = cache.getConfiguration(Configuration.class);
        check(name, "keys", configuration.getKeyType(), keyType);
        check(name, "values", configuration.getValueType(), valueType);
        return cache;
    }

    private static void check(String name, String what, Class<?> configured, Class<?> requested) {
        if (!configured.equals(requested)) {
            throw new ClassCastException("the " + what + " of cache '" + name + "' are of " + configured.getName() + ", not " + requested.getName());
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> @Nullable Cache<K, V> getCache(String name) {
        checkOpen();
        return (Cache<K, V>) caches.get(Objects.requireNonNull(name, "name"));
    }

    @Override
    public Iterable<String> getCacheNames() {
        checkOpen();
        return Collections.unmodifiableList(new ArrayList<>(caches.keySet()));
    }

    @Override
    public void destroyCache(String name) {
        checkOpen();
        ManagedCache<?, ?> cache = caches.get(Objects.requireNonNull(name, "name"));
        if (cache != null) {
            cache.close();
        }
    }

    void closed(ManagedCache<?, ?> cache) {
        unregister(cache.configurationName());
        unregister(cache.statisticsName());
        caches.remove(cache.getName(), cache);
    }

    @Override
    public void enableManagement(String name, boolean isEnabled) {
        ManagedCache<?, ?> cache = cache(name);
        if (cache != null) {
            cache.setManagementEnabled(isEnabled);
        }
    }

    @Override
    public void enableStatistics(String name, boolean isEnabled) {
        ManagedCache<?, ?> cache = cache(name);
        if (cache != null) {
            cache.setStatisticsEnabled(isEnabled);
        }
    }

    private @Nullable ManagedCache<?, ?> cache(String name) {
        checkOpen();
        return caches.get(Objects.requireNonNull(name, "name"));
    }

    static void register(ObjectName name, Object bean) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            if (!server.isRegistered(name)) {
                server.registerMBean(bean, name);
            }
        } catch (JMException error) {
            throw new CacheException("cannot register " + name, error);
        }
    }

    static void unregister(ObjectName name) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            for (ObjectName registered : server.queryNames(name, null)) {
                server.unregisterMBean(registered);
            }
        } catch (JMException error) {
            throw new CacheException("cannot unregister " + name, error);
        }
    }

    ObjectName objectName(String type, String cache) {
        try {
            return new ObjectName("javax.cache:type=" + type + ",CacheManager=" + sanitized(uri.toString()) + ",Cache=" + sanitized(cache));
        } catch (JMException error) {
            throw new CacheException("cache '" + cache + "' cannot be managed", error);
        }
    }

    /// Replaces the characters that have a meaning in names of MBeans.
    private static String sanitized(String name) {
        return name.replaceAll("[,:=\"*?\n]", ".");
    }

    @Override
    public void close() {
        List<ManagedCache<?, ?>> open;
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
            open = new ArrayList<>(caches.values());
        }
        provider.closed(this);
        open.forEach(ManagedCache::close);
    }

    @Override
    public boolean isClosed() {
        return isClosed;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        return Unwrapping.as(type, this);
    }

    private void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the manager of caches is closed");
        }
    }
}
