/* Counts made by commands. They are added to the server's counters when a run ends. */

static inline void count_of(Runner *r, int which, long long more) {
    r->count[which] += more;
    r->counted |= 1u << which;
}
#define COUNT(r, name) count_of(r, N_##name, 1)

static int add_counts(Runner *r) {
    while (r->counted) {
        int which = __builtin_ctz(r->counted);
        r->counted &= r->counted - 1;
        if (add_to(r->counters, &r->counter[which], r->count[which]) < 0) return ERROR;
        r->count[which] = 0;
    }
    return DONE;
}
