/* The wall clock of a machine that nobody has set: CLOCK_REALTIME is off by CLOCK_OFF seconds, and nothing else. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, time);
	const char *off = getenv("CLOCK_OFF");
	if (!failed && clock == CLOCK_REALTIME && off)
		time->tv_sec += atol(off);
	return failed;
}
