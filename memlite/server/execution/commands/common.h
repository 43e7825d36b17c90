/* Definitions shared by all commands: outcomes, limits, words of a line, and counters. */

enum { FREQUENCY = 3, FETCHED = 4, MAIN = 8, FULL = 16, MASK = 31, FRESH = FREQUENCY | MAIN };  /* item.py */
/* Results of functions, including checks and lookups. ERROR: a Python exception is set. STOP: nothing was changed, and
the counterpart in Python has to carry out the command. DONE: go on. ABSENT: there is no item. INCOMPLETE: the value has
not arrived, and no counterpart can carry out the command either. */
enum { ERROR = -1, STOP, DONE, ABSENT, INCOMPLETE };
enum { LONGEST_KEY = 250, MOST_WORDS = 12, MOST_KEYS = 256, SAFE_DIGITS = 19, SMALL_OBJECT = 512 };
/* Sizes in bytes: of a plain item with its place in a queue, of what a full item has in addition,
of an int, and of a place in a queue. */
enum { PLAIN_SIZE = 48 + 8, FULL_MORE = 16, NUMBER_SIZE = 32, PLACE = 8 };
enum { META_FLAGS_SIZE = 160, STATE_BITS = 5 };
enum { EVICTED_EXTRA = 16 * 1024, LARGE = 64 * 1024 };  /* bytes; table.py */
enum { TO_MAIN = 2 };  /* s3fifo.py */
enum { GHOST_WIDTH = 4, GHOST_DEPTH = 16, GHOST_STRIDE = GHOST_WIDTH * GHOST_DEPTH };  /* of fingerprints; ghost.py */
#define MOST_REPLIES ((Py_ssize_t)128 * 1024)  /* bytes of replies that are copied; larger ones are not */
#define MONTH 2592000u  /* seconds: a longer exptime is a point in time */
#define AFTER_VALUE 7  /* bytes: "\r\nEND\r\n" */
#define END_SIZE 5
#define HEADER 24

#define NOT_INLINE __attribute__((noinline))  /* for code that is rarely needed, to keep the rest fast */

typedef unsigned long long u64;
typedef struct { const char *at; Py_ssize_t size; } Word;
#define AHEAD 32  /* keys; see ahead.h */
typedef struct { Word key; Py_hash_t hash; } Ahead;  /* the hash is that of the key's line */

/* Whether a `get` of this key is the old form of `config get cluster`. If there is no such item,
the counterpart answers. */
static inline int asks_for_nodes(Word key) { return key.size == 25 && !memcmp(key.at, "AmazonElastiCache:cluster", 25); }

#define COUNTERS(X) X(hits) X(get_misses) X(cmd_set) X(total_items) X(cas_hits) X(cas_badval) X(cas_misses) \
    X(delete_hits) X(delete_misses) X(incr_hits) X(incr_misses) X(decr_hits) X(decr_misses) X(cmd_touch) \
    X(touch_hits) X(touch_misses) X(bytes_read) X(bytes_written) X(evictions) X(evicted_unfetched)
#define INDEX(name) N_##name,
#define NAME(name) #name,
enum { COUNTERS(INDEX) COUNTED };
static const char *const COUNTER_NAMES[] = {COUNTERS(NAME)};

/* GENERAL is added where the counterpart has no shortcut: items with more than a value are then replaced, and an item
found in a shared table counts as used. */
enum Mode { SET, ADD, REPLACE, APPEND_TO, PREPEND_TO, CAS, GENERAL };
enum { STORED = DONE, NOT_STORED = DONE + 10, EXISTS, NOT_FOUND };
