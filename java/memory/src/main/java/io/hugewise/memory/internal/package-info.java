/// What the modules of memory and of caches share.
@NullMarked
package io.hugewise.memory.internal;

import org.jspecify.annotations.NullMarked;
