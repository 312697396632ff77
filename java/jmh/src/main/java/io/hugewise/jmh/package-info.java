/// A profiler for JMH, [io.hugewise.jmh.HugePagesProfiler]: on which pages a benchmark's memory really lay.
@NullMarked
package io.hugewise.jmh;

import org.jspecify.annotations.NullMarked;
