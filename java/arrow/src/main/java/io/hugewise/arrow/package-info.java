/// Buffers of Apache Arrow on huge pages.
@NullMarked
package io.hugewise.arrow;

import org.jspecify.annotations.NullMarked;
