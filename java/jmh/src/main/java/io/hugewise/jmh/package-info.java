/// A profiler for JMH, [io.hugewise.jmh.HugePagesProfiler], for the page sizes of a benchmark's memory.
@NullMarked
package io.hugewise.jmh;

import org.jspecify.annotations.NullMarked;
