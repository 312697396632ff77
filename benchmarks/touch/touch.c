/*
 * Random one-byte reads of a buffer: the loop of `hugewise bench touch` in plain C.
 *
 *     touch BYTES BACKING READS ITERATIONS      BACKING: base or thp
 *
 * Prints {"bytes":N,"backing":"base","ns_per_op":[...],"huge_bytes":N,"checksum":N}: the mean time of a
 * read in nanoseconds, for each iteration; the process's bytes on transparent huge pages (null if the
 * kernel does not report them); the sum of all bytes read. The first iteration is not timed. The state of
 * the generator continues from iteration to iteration. Exit status 2: wrong usage, or a system error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define SEED UINT64_C(0x9E3779B97F4A7C15)

/* xorshift64 (Marsaglia 2003, "Xorshift RNGs", triple 13, 7, 17). Not inlined, like the Rust loop. */
static __attribute__((noinline)) uint64_t
read_randomly(const unsigned char *buffer, size_t len, uint64_t *state, uint64_t reads)
{
	uint64_t x = *state, sum = 0;

	/* rustc unrolls its loop twice. gcc at -O2 does not, and is then 2 % slower within the caches. */
#pragma GCC unroll 2
	for (uint64_t i = 0; i < reads; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		sum += buffer[(uint64_t)(((unsigned __int128)x * len) >> 64)];
	}
	*state = x;
	return sum;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int failed(const char *what)
{
	fprintf(stderr, "touch: %s: %s\n", what, strerror(errno));
	return 2;
}

/* AnonHugePages of this process in bytes; -1 if the kernel does not report it. */
static long long huge_bytes(void)
{
	char line[256];
	long long kilobytes = -1;
	FILE *rollup = fopen("/proc/self/smaps_rollup", "r");

	if (rollup == NULL)
		return -1;
	while (fgets(line, sizeof line, rollup) != NULL)
		if (sscanf(line, "AnonHugePages: %lld kB", &kilobytes) == 1)
			break;
	fclose(rollup);
	return kilobytes < 0 ? -1 : kilobytes * 1024;
}

static int number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *value > 0;
}

int main(int argc, char **argv)
{
	uint64_t bytes, reads, iterations, state = SEED, checksum = 0;

	if (argc != 5 || !number(argv[1], &bytes) || !number(argv[3], &reads) || !number(argv[4], &iterations) ||
	    bytes > SIZE_MAX - 2 * HUGE_PAGE || (strcmp(argv[2], "base") != 0 && strcmp(argv[2], "thp") != 0)) {
		fprintf(stderr, "usage: touch BYTES base|thp READS ITERATIONS\n");
		return 2;
	}

	/* Whole huge pages, plus one for the alignment of the buffer's start. */
	size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *map = mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return failed("mmap");
	unsigned char *buffer = (unsigned char *)(((uintptr_t)map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	if (madvise(buffer, whole, strcmp(argv[2], "thp") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
		return failed("madvise");
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)i;

	double *ns = calloc(iterations, sizeof *ns);
	if (ns == NULL)
		return failed("calloc");
	checksum += read_randomly(buffer, bytes, &state, reads);
	for (uint64_t i = 0; i < iterations; i++) {
		double begin = now_ns();

		checksum += read_randomly(buffer, bytes, &state, reads);
		ns[i] = (now_ns() - begin) / (double)reads;
	}

	printf("{\"bytes\":%" PRIu64 ",\"backing\":\"%s\",\"ns_per_op\":[", bytes, argv[2]);
	for (uint64_t i = 0; i < iterations; i++)
		printf("%s%.4f", i > 0 ? "," : "", ns[i]);
	long long huge = huge_bytes();
	if (huge < 0)
		printf("],\"huge_bytes\":null");
	else
		printf("],\"huge_bytes\":%lld", huge);
	printf(",\"checksum\":%" PRIu64 "}\n", checksum);
	return 0;
}
