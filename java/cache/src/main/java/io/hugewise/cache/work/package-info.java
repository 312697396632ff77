/// Work on keys, and waits for it, of the modules of caches.
@NullMarked
package io.hugewise.cache.work;

import org.jspecify.annotations.NullMarked;
