/* Kills a process before a store to a range of memory. Replaces the runtime of the thread
sanitizer, which compiled code calls before each load and store. Link it with code compiled with
-fsanitize=thread. */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

static const char *first, *last;
static long left, stores;

/* Kills the process before store number `after` (from 0) to that range; never if it is negative. */
void kill_in(const char *begin, size_t size, long after) {
    first = begin;
    last = begin + size;
    left = after;
    stores = 0;
}
long stores_so_far(void) { return stores; }

static inline void about_to_store(void *at) {
    if ((char *)at < first || (char *)at >= last) return;
    if (left-- == 0) raise(SIGKILL);
    stores++;
}

#define IGNORED(name) void name(void *at) { (void)at; }
IGNORED(__tsan_read1) IGNORED(__tsan_read2) IGNORED(__tsan_read4) IGNORED(__tsan_read8)
IGNORED(__tsan_func_entry)
#define STORE(name) void name(void *at) { about_to_store(at); }
STORE(__tsan_write1) STORE(__tsan_write2) STORE(__tsan_write4) STORE(__tsan_write8)
void __tsan_init(void) {}
void __tsan_func_exit(void) {}
void __tsan_read_range(void *at, size_t size) { (void)at; (void)size; }
void __tsan_write_range(void *at, size_t size) { (void)size; about_to_store(at); }
void __tsan_atomic_thread_fence(int order) { (void)order; __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define ATOMIC(bits, type) \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) { \
        (void)order; \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST); \
    } \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) { \
        (void)order; \
        about_to_store((void *)at); \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
    } \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order) { \
        (void)order; \
        about_to_store((void *)at); \
        return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); \
    }
ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t)
