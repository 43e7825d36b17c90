/* The state of a runner on a shared table, and its view of an item: see ../_native.c. */

#include "../../../memory/shared/api.h"

typedef struct {
    PyObject_HEAD
    PyObject *engine, *table, *counters, *clock, *fast_read, *text_fallback, *binary_fallback, *replies;
    PyObject *line, *whole, *out;  /* the first two are always NULL */
    const TableApi *api;
    Py_hash_t (*hash)(const void *, Py_ssize_t);
    Field until, second, monotonic, offset, counter[COUNTED];
    long long count[COUNTED];  /* yet to be added to the counters */
    unsigned counted;  /* a bit for each of these that is not 0 */
    char *reply, *copy;  /* `copy`: of the item that was looked up last */
    Py_ssize_t reply_size, reply_room, position, served, next_turn, missing, at_most, safe_size;
    double now;
    long long origin;  /* the second from which uses are counted */
    Wanted key, ahead[AHEAD];  /* `ahead`: names of the next keys, from `ahead_next` on */
    int ahead_next, ahead_count;
    const char *looked;  /* where the search for the next commands ended */
    char looks, timed, busy, cas, usual_clock;
} Runner;

typedef struct {  /* an item without meta flags that has not expired */
    const char *at;  /* the reply to a get */
    Py_ssize_t size;
    double expires;
    u64 unique;  /* as shown to clients: 0 for none */
    Seen seen;
    Py_ssize_t value_size;  /* after it was stored */
} View;
