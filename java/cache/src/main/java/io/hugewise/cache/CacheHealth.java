package io.hugewise.cache;

/// What has failed in the background since a cache was created. The work goes on after a failure; the first one of each kind
/// is logged.
///
/// @param backgroundFailures errors of the work that evicts and expires, such as an [OutOfMemoryError] or a clock that throws an exception
/// @param writerFailures errors of the thread that writes changes, also if the system refuses it, without those of the store
/// @param listenerFailures removals of which the listener was not notified, or that it, its executor or a serializer failed on
/// @param refreshFailures refreshes that could not begin, or whose loader threw an exception
/// @param refusedChanges changes that the store has refused while it accepted others
/// @param keptChanges of these, those that are still to be written
/// @param unwrittenChanges changes that the store does not have yet, each write of a key counted
public record CacheHealth(long backgroundFailures, long writerFailures, long listenerFailures, long refreshFailures, long refusedChanges,
        long keptChanges, long unwrittenChanges) {}
