/// A cache outside of the Java heap.
@NullMarked
package io.hugewise.cache;

import org.jspecify.annotations.NullMarked;
