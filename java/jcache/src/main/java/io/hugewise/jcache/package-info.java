/// JCache (JSR 107) with a cache outside of the Java heap.
@NullMarked
package io.hugewise.jcache;

import org.jspecify.annotations.NullMarked;
