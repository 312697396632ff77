/* Memory on huge pages: reserve it, make it present, prove what it got, give it back.
 *
 * Written by the tests of libhugewise from its source: change it there.
 *
 * Sizes and lengths are in bytes, times in nanoseconds, texts in UTF-8. Every function may be called by
 * any number of threads at the same time, also for the same region; what each may not do is said there.
 * A pointer must be NULL or as the function says: NULL, a misaligned one and a wrong handle are errors,
 * not crashes; what a pointer leads to cannot be checked.
 *
 * SPDX-License-Identifier: Apache-2.0 */

#ifndef HUGEWISE_H
#define HUGEWISE_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. A program is served by a library of the same number; functions,
 * and fields at the end of structs that carry their size, may be added without a new one.
 */
#define HUGEWISE_ABI_VERSION 1

/**
 * Done.
 */
#define HUGEWISE_OK 0

/**
 * Not done: hugewise_last_error() says why.
 */
#define HUGEWISE_FAILED -1

/**
 * The kernel did not say: nothing is known, which is not zero. hugewise_last_error() says why.
 */
#define HUGEWISE_COULD_NOT_TELL 1

/**
 * The library chooses: populating where the kernel can.
 */
#define HUGEWISE_WAY_ANY 0

/**
 * MADV_POPULATE_WRITE (Linux 5.14): where no page can be had, that is an error.
 */
#define HUGEWISE_WAY_POPULATE 1

/**
 * A byte of each page is written back: where no page can be had, the kernel kills the process.
 */
#define HUGEWISE_WAY_TOUCH 2

/**
 * In place of a number: the kernel did not say.
 */
#define HUGEWISE_UNKNOWN UINT64_MAX

/**
 * Reserved memory. It is known by this handle alone, which points to nothing.
 */
typedef struct hugewise_region hugewise_region;

/**
 * Where memory is to come from, and what it is called. Set struct_size, what you want to choose, and all
 * else to zero: hugewise_reserve_options options = {.struct_size = sizeof options, .name = "cache"};
 */
typedef struct hugewise_reserve_options {
  /**
   * sizeof(hugewise_reserve_options).
   */
  uint64_t struct_size;
  /**
   * A name for the memory, in UTF-8: /proc/PID/maps shows it as [anon:hugewise NAME], where the kernel
   * keeps names (CONFIG_ANON_VMA_NAME), with _ for what it does not take and up to 79 bytes; NULL: none.
   */
  const char *name;
  /**
   * 1: all of it is to come from the NUMA node below, and from no other; 0: from anywhere.
   */
  uint32_t bind;
  /**
   * The number of the node.
   */
  uint32_t node;
} hugewise_reserve_options;

/**
 * How much lies on pages of one size.
 */
typedef struct hugewise_page_bytes {
  /**
   * The size of the pages, in bytes.
   */
  uint64_t page_size;
  /**
   * How much memory is present on them, in bytes.
   */
  uint64_t bytes;
} hugewise_page_bytes;

/**
 * How to make memory present. Set struct_size, what you want to choose, and all else to zero:
 * hugewise_pretouch_options options = {.struct_size = sizeof options, .threads = 2};
 */
typedef struct hugewise_pretouch_options {
  /**
   * sizeof(hugewise_pretouch_options).
   */
  uint64_t struct_size;
  /**
   * How much a thread does at a time, in bytes; 0: the library chooses.
   */
  uint64_t chunk;
  /**
   * How many threads; 0: as many as CPUs may be used.
   */
  uint32_t threads;
  /**
   * HUGEWISE_WAY_ANY, HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH.
   */
  uint32_t way;
  /**
   * Called from time to time, on the calling thread, with the bytes that are done and those that are
   * wanted; NULL: nobody is called. What it returns ends the work if it is not 0. It may call any
   * function of this library, and must return: no exception, no longjmp.
   */
  int (*progress)(void *context, uint64_t done, uint64_t wanted);
  /**
   * Handed to progress.
   */
  void *context;
} hugewise_pretouch_options;

/**
 * What was done. Set struct_size before the call:
 * hugewise_pretouched touched = {.struct_size = sizeof touched};
 */
typedef struct hugewise_pretouched {
  /**
   * sizeof(hugewise_pretouched).
   */
  uint64_t struct_size;
  /**
   * The bytes of all pages that hold a byte of the memory.
   */
  uint64_t wanted;
  /**
   * Those of all chunks that were done to their end; more may be present.
   */
  uint64_t done;
  /**
   * The chunk that was used, in bytes.
   */
  uint64_t chunk;
  /**
   * The largest page there may be, in bytes.
   */
  uint64_t page_size;
  /**
   * How long it took, in nanoseconds.
   */
  uint64_t elapsed_ns;
  /**
   * Page faults of the threads that needed no disk.
   */
  uint64_t minor_faults;
  /**
   * Page faults of the threads that did.
   */
  uint64_t major_faults;
  /**
   * Page faults that wanted a transparent huge page and got none, of the whole machine in that time;
   * HUGEWISE_UNKNOWN where the kernel does not say.
   */
  uint64_t thp_fallbacks;
  /**
   * Threads that worked.
   */
  uint32_t threads;
  /**
   * HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH, whichever was used.
   */
  uint32_t way;
} hugewise_pretouched;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this interface, to be compared with HUGEWISE_ABI_VERSION by a program that loads
 * the library at run time.
 */
uint32_t hugewise_abi_version(void);

/**
 * The version of the library, like "0.1.0". It is never NULL, and stays.
 */
const char *hugewise_version(void);

/**
 * What the last call that did not return HUGEWISE_OK on this thread tried, what the system answered,
 * and what would help, in UTF-8. "" where there was none.
 *
 * Never NULL. Valid until the next call on this thread that fails, or until the thread ends. A call
 * that succeeds leaves it as it is.
 */
const char *hugewise_last_error(void);

/**
 * The same as a number of errno.h; 0 where there was none.
 *
 * EINVAL: an argument is wrong. ENOMEM: the memory could not be had. ENODATA: could not tell.
 * ERANGE: the array is too short. E2BIG: a struct of a later version. ECANCELED: the callback said so.
 * ENOTRECOVERABLE: a mistake in the library. Others are the kernel's.
 */
int hugewise_last_error_code(void);

/**
 * Reserves len bytes on the first of some backings that this machine can give.
 *
 * backings: the best first, separated by commas, like "hugetlb:2MiB,thp,base": hugetlb:SIZE (a pool of
 * huge pages), shm:SIZE (the same by shared memory), both also without a SIZE, for the machine's
 * default one; thp (transparent huge pages); base (no huge pages). A single backing is strict: that
 * one or none.
 *
 * The memory begins on a boundary of its page size, is zeroed, can be read and written, and belongs
 * to this process. Nothing is present yet: hugewise_region_pretouch() makes it so. Whether thp gave
 * huge pages only hugewise_region_coverage() tells, when it is present.
 *
 * region: where the handle is written; NULL is written where there is none. It is to be given back
 * with hugewise_region_release().
 *
 * What the limits of the process's control groups (memory, pages of pools) do not allow cannot be had.
 *
 * HUGEWISE_FAILED with EINVAL (an argument is wrong) or ENOMEM (no backing of the list could be had;
 * the text says of each why).
 */
int hugewise_reserve(size_t len, const char *backings, struct hugewise_region **region);

/**
 * The same on one NUMA node, or with a name.
 *
 * options: NULL: as by hugewise_reserve().
 *
 * HUGEWISE_FAILED also with E2BIG (options of a later version). A node that there is not, or that
 * the process may not use, is a backing that could not be had.
 */
int hugewise_reserve_at(size_t len,
                        const char *backings,
                        const struct hugewise_reserve_options *options,
                        struct hugewise_region **region);

/**
 * Where its memory begins; NULL for a wrong handle. Valid until it is released.
 */
void *hugewise_region_address(const struct hugewise_region *region);

/**
 * How many bytes it has: as many as were asked for; 0 for a wrong handle.
 */
size_t hugewise_region_len(const struct hugewise_region *region);

/**
 * The size of the pages it was asked for on, in bytes; 0 for a wrong handle.
 *
 * What it got is told by hugewise_region_coverage().
 */
size_t hugewise_region_page_size(const struct hugewise_region *region);

/**
 * The backing of the list that it was got on, like "hugetlb:2MiB"; NULL for a wrong handle. Valid
 * until the region is released.
 */
const char *hugewise_region_backing(const struct hugewise_region *region);

/**
 * How many backings of the list were tried before, and could not be had; 0 for a wrong handle.
 */
size_t hugewise_region_fallbacks(const struct hugewise_region *region);

/**
 * The backing of one of them, counted from 0, in the order of the list; NULL where there is none.
 * Valid until the region is released.
 */
const char *hugewise_region_fallback_backing(const struct hugewise_region *region, size_t index);

/**
 * Why it could not be had; NULL where there is none. Valid until the region is released.
 */
const char *hugewise_region_fallback_cause(const struct hugewise_region *region, size_t index);

/**
 * What the kernel really gave: how much of the region is present on pages of each size.
 *
 * pages: capacity items to write to; one for each page size on which anything is present, the
 * smallest first. The first stands for base pages and holds smaller transparent huge pages (mTHP),
 * too, which this reading does not tell apart; it is there even with 0 bytes. 8 are enough for every
 * machine known.
 * count: how many there are, even if capacity is less.
 *
 * Pages that the kernel is moving at this moment (compaction) are not present: they are in the next
 * reading.
 *
 * HUGEWISE_COULD_NOT_TELL where the kernel does not say, and HUGEWISE_FAILED with EINVAL or ERANGE
 * (capacity is too small). pages and count mean nothing then, but for count with ERANGE.
 */
int hugewise_region_coverage(const struct hugewise_region *region,
                             struct hugewise_page_bytes *pages,
                             size_t capacity,
                             size_t *count);

/**
 * The same for len bytes from start on, of any memory of this process: for all base pages that hold one
 * of them. Its mappings are looked up first, in /proc/self/smaps: that takes longer the more memory
 * the process has, and hugewise_region_coverage() does without it.
 */
int hugewise_coverage(const void *start,
                      size_t len,
                      struct hugewise_page_bytes *pages,
                      size_t capacity,
                      size_t *count);

/**
 * Gives a region back to the kernel: its memory, its handle, and all texts got by it.
 *
 * A call of another thread that is at work on it ends first, and the memory goes then. That no thread
 * uses the memory itself any more is for the program to see to.
 *
 * HUGEWISE_FAILED with EINVAL for a wrong handle, also for one that was released already: handles are
 * never used twice.
 */
int hugewise_region_release(struct hugewise_region *region);

/**
 * Makes len bytes of a region present from offset on, contents kept, by several threads: all pages that
 * hold one of these bytes. The memory may be used meanwhile.
 *
 * options: NULL: the library chooses.
 * pretouched: what was done, also where it failed on the way; may be NULL.
 *
 * HUGEWISE_FAILED with EINVAL (an argument is wrong, or reaches beyond the region), E2BIG (options of a
 * later version), ENOMEM (the memory, the pool or a limit ran out), ECANCELED (progress said so), or
 * what else the kernel answered. What was made present before that stays.
 */
int hugewise_region_pretouch(const struct hugewise_region *region,
                             size_t offset,
                             size_t len,
                             const struct hugewise_pretouch_options *options,
                             struct hugewise_pretouched *pretouched);

/**
 * The same for any memory of this process. It must be readable and writable, and stay so during the
 * call. Its mappings are looked up first, in /proc/self/smaps: that takes longer the more memory the
 * process has, and hugewise_region_pretouch() does without it.
 */
int hugewise_pretouch(void *start,
                      size_t len,
                      const struct hugewise_pretouch_options *options,
                      struct hugewise_pretouched *pretouched);

/**
 * Gives the whole pages in len bytes of a region, from offset on, back to the kernel or the pool: what
 * was in them is lost, and they read as zero. A page that lies in it only in part stays as it is, but
 * for the last of the region. The memory stays reserved; hugewise_region_pretouch() makes it present
 * again. Other parts may be used meanwhile.
 *
 * Where the kernel does not keep the pages of a pool reserved for the region (newer ones do, mostly),
 * others may take them then. To touch such memory when the pool has none left kills the process
 * (SIGBUS): make it present by hugewise_region_pretouch(), which is an error then. For pools it needs
 * Linux 5.18.
 *
 * given_back: how many bytes were given back, also where it failed on the way; may be NULL.
 *
 * HUGEWISE_FAILED with EINVAL (an argument is wrong, reaches beyond the region, or the kernel cannot do
 * that), or what else the kernel answered.
 */
int hugewise_region_decommit(const struct hugewise_region *region,
                             size_t offset,
                             size_t len,
                             uint64_t *given_back);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HUGEWISE_H */
