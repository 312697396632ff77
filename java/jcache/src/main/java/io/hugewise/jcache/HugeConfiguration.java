package io.hugewise.jcache;

import java.util.Objects;
import javax.cache.configuration.CompleteConfiguration;
import javax.cache.configuration.MutableConfiguration;
import org.jspecify.annotations.Nullable;

/// Configuration of a cache with a limit in bytes.
///
/// ```java
/// Cache<String, Page> pages = manager.createCache("pages", new HugeConfiguration<String, Page>().setMaximumBytes(1L << 30));
/// ```
///
/// @param <K> type of keys
/// @param <V> type of values
public class HugeConfiguration<K, V> extends MutableConfiguration<K, V> {
    private static final long serialVersionUID = 1;

    private long maximumBytes;

    /// A configuration with the default limit, that of the manager's property
    /// [HugeCachingProvider#MAXIMUM_BYTES].
    public HugeConfiguration() {}

    /// A copy of a configuration.
    ///
    /// @param other the other one
    @SuppressWarnings("this-escape")
    public HugeConfiguration(CompleteConfiguration<K, V> other) {
        super(other);
        setStoreByValue(other.isStoreByValue());
        maximumBytes = other instanceof HugeConfiguration<K, V> huge ? huge.maximumBytes : 0;
    }

    /// {@return the limit in bytes of all entries and of their index; 0 for the default}
    public long getMaximumBytes() {
        return maximumBytes;
    }

    /// Sets the limit.
    ///
    /// @param bytes from 4 MiB to 256 GiB
    /// @return this
    public HugeConfiguration<K, V> setMaximumBytes(long bytes) {
        maximumBytes = bytes;
        return this;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return super.equals(other) && maximumBytes == (other instanceof HugeConfiguration<?, ?> huge ? huge.maximumBytes : 0);
    }

    @Override
    public int hashCode() {
        return Objects.hash(super.hashCode(), maximumBytes);
    }
}
