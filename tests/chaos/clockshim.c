/* Moves the wall clock of one process: LD_PRELOAD this, and name a file of one double in CLOCK_SHIM.
 * The number of seconds in it is added to CLOCK_REALTIME; writing another number moves the clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CLOCK_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += (time_t)*ahead;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *kept) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (kept) *kept = precise.tv_sec;
    return precise.tv_sec;
}
