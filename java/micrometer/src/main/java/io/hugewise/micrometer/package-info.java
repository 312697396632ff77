/// Micrometer metrics of memory on huge pages.
@NullMarked
package io.hugewise.micrometer;

import org.jspecify.annotations.NullMarked;
