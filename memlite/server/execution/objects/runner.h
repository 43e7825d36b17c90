/* The state of a runner on Python objects, and its view of an item: see ../_native.c. */

/* Numbers of the table, then of its policy, that are cached here during a run; see `settle`. */
#define OF_TABLE(X) X(used) X(_until_measured) X(_room) X(_ahead)
#define OF_POLICY(X) X(_small_bytes) X(_main_bytes) X(_left_bytes) X(_small_limit) X(_main_limit) X(_left_limit) X(_patience)
enum { OF_TABLE(INDEX) BELONG_TO_TABLE, LAST_OF_TABLE = BELONG_TO_TABLE - 1, OF_POLICY(INDEX) NUMBERS };
static const char *const NUMBER_NAMES[] = {OF_TABLE(NAME) OF_POLICY(NAME)};

enum { MOST_CLASSES = 64 };

typedef struct {  /* an item that is evicted; holds its references */
    PyObject *line, *item;
    Py_ssize_t size;
    long long state;
} Gone;

typedef struct {
    PyObject_HEAD
    PyObject *engine, *table, *counters, *clock, *usage, *item_type, *full_type, *table_type, *policy_type, *shared;
    PyObject *read, *used, *fast_read, *fast_store, *full_store;  /* `Usage` */
    PyObject *text_fallback, *binary_fallback, *replies;  /* carry out one command; the list of their replies */
    PyObject *find, *dicts, *policy;  /* of the table, as long as its `get_by_line` is `find` */
    PyObject *fresh[4], *zero;  /* states of new items: in the small queue or the main one, and the same of full ones; 0.0 */
    PyObject *stale;  /* the extra of stale items: no version, and meta flags */
    PyObject *full_states;  /* by their bits, for `full_second`; None where not yet known */
    PyObject *popleft, *sizes, *count_evictions;  /* `popleft` of deque */
    PyObject *spare;  /* an evicted plain item without its value, to be reused for the new one */
    PyObject *line, *whole, *out;  /* line looked up last (the table's own if present); an uncopied reply; the client's list */
    Field wire, state, expires, extra, until, counter[COUNTED], get_by_line, flushed, number[NUMBERS], version, fresh_now,
        garbage, filling, left, ghost, ghost_table, ghost_mask, ghost_depth, ghost_next, small_queue, main_queue, push,
        oldest, older, newest, evicts, on_evict, observer, second, evictions, evicted, evicted_time, evicted_unfetched, monotonic, offset;
    Gone *gone;  /* during an eviction */
    Py_ssize_t gone_count, gone_room;
    long long epoch, overhead, overhead_flags, chunk_sizes[MOST_CLASSES];  /* see item.py and `SizeClasses` */
    int classes;
    long long fresh_state, full_second;
    long long count[COUNTED];  /* yet to be added to the counters */
    unsigned counted;  /* a bit for each of these that is not 0 */
    long long now_is[NUMBERS], was[NUMBERS];  /* of the table and the policy: the present values; the values read */
    unsigned known, changed;  /* a bit for each number that has been read; for each that has to be written */
    u64 last_unique;  /* of the engine, if it is not 0 */
    char *reply;
    Py_ssize_t reply_size, reply_room, position, served, next_turn, missing, at_most, safe_size;
    double now;
    Ahead ahead[AHEAD];  /* of the next commands: from `ahead_next` on */
    Ahead absent;  /* the key that was looked up last, if there is no line */
    int ahead_next, ahead_count;
    const char *looked;  /* where the search for the next commands ended */
    char looks, timed, busy, cas, flush_known, was_flushed, usual_table, usual_clock, late;
} Runner;

typedef struct {  /* an item that has not expired and has no meta flags */
    PyObject *item, *wire;
    const char *at;  /* the wire's bytes */
    Py_ssize_t size;
    double expires;
    u64 unique;  /* 0 while none is assigned */
    int bits;  /* of its state */
    Py_ssize_t value_size;  /* after it was stored */
} View;
