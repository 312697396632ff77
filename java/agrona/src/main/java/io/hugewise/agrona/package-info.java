/// Buffers of Agrona on huge pages.
@NullMarked
package io.hugewise.agrona;

import org.jspecify.annotations.NullMarked;
