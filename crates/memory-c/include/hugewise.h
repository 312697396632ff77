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
 * Not done: `hugewise_last_error()` says why.
 */
#define HUGEWISE_FAILED -1

/**
 * The kernel did not say: nothing is known, which is not zero. `hugewise_last_error()` says why.
 */
#define HUGEWISE_COULD_NOT_TELL 1

/**
 * Reserved memory. It is known by this handle alone, which points to nothing.
 */
typedef struct hugewise_region hugewise_region;

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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this interface, to be compared with `HUGEWISE_ABI_VERSION` by a program that loads
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
 * ERANGE: the array is too short. ECANCELED: the callback said so. ENOTRECOVERABLE: a mistake in the
 * library.
 */
int hugewise_last_error_code(void);

/**
 * Reserves len bytes on the first of some backings that this machine can give.
 *
 * backings: the best first, separated by commas: hugetlb[:SIZE] (a pool of huge pages), shm[:SIZE]
 * (the same by shared memory), thp (transparent huge pages), base (no huge pages), like
 * "hugetlb:2MiB,thp,base". Without a SIZE the machine's default huge page size is meant. A single
 * backing is strict: that one or none.
 *
 * The memory begins on a boundary of its page size, is zeroed, can be read and written, and belongs
 * to this process. Nothing is present yet: hugewise_region_pretouch() makes it so. Whether thp gave
 * huge pages only hugewise_region_coverage() tells, when it is present.
 *
 * region: where the handle is written; NULL is written where there is none. It is to be given back
 * with hugewise_region_release().
 *
 * HUGEWISE_FAILED with EINVAL (an argument is wrong) or ENOMEM (no backing of the list could be had;
 * the text says of each why).
 */
int hugewise_reserve(size_t len, const char *backings, struct hugewise_region **region);

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
 * HUGEWISE_COULD_NOT_TELL where the kernel does not say, and HUGEWISE_FAILED with EINVAL or ERANGE
 * (capacity is too small). pages and count mean nothing then, but for count with ERANGE.
 */
int hugewise_region_coverage(const struct hugewise_region *region,
                             struct hugewise_page_bytes *pages,
                             size_t capacity,
                             size_t *count);

/**
 * Gives a region back to the kernel: its memory, its handle, and all text got by it.
 *
 * Work of other threads on it inside this library is waited for by nobody, and done before the memory
 * goes. That no thread uses the memory itself any more is for the program to see to.
 *
 * HUGEWISE_FAILED with EINVAL for a wrong handle, also for one that was released already: handles are
 * never used twice.
 */
int hugewise_region_release(struct hugewise_region *region);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HUGEWISE_H */
