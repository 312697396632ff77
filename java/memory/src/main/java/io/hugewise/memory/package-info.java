/// Memory on huge pages. Sizes are in bytes everywhere.
@NullMarked
package io.hugewise.memory;

import org.jspecify.annotations.NullMarked;
