package io.hugewise.jcache;

import javax.cache.CacheException;

/// An entry is too large for its cache, which is as it was before.
final class TooLargeException extends CacheException {
    private static final long serialVersionUID = 1;

    TooLargeException(long size, long limit) {
        super("the entry has " + size + " bytes, too many for a cache of " + limit + " bytes: increase its limit");
    }
}
