/// A Netty allocator of buffers on huge pages.
@NullMarked
package io.hugewise.netty;

import org.jspecify.annotations.NullMarked;
