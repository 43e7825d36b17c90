/* Runs of commands in their usual form, carried out on a table in memory: the twin of the short commands in
Python (short_commands.py, short_binary_commands.py, engine/plain.py), which say more about each of them.

A `Runner` takes what a client has sent and carries out one command after the other. What it does to an
item, to the table and to what is counted is what its twin does, and it does nothing before it is certain
that it can do all of a command. Whatever is not plain goes to the short commands in Python, one command at a
time; what these do not take either ends the run, and the parser goes on there. The tests compare both.

Items, counters and the table are objects of Python. Where they have slots, these are read and written at
their offsets, which are looked up once; in a build by mypyc, or without slots, as attributes. References to
what an item holds are borrowed for as long as nothing else can run: until the next call into Python.

With RECORDS, it is compiled once more for a table that processes share: records/_native.c. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include "../../core/slots.h"

#define VERSION 4  /* of the interface: what was compiled for another is not used */

enum { FREQUENCY = 3, FETCHED = 4, MAIN = 8, FULL = 16, MASK = 31, FRESH = FREQUENCY | MAIN };  /* item.py */
enum { ERROR = -1, STOP, DONE, ABSENT };  /* STOP: nothing was done, and the twin has to take the command */
enum { LONGEST_KEY = 250, MOST_WORDS = 12, MOST_KEYS = 256, SAFE_DIGITS = 19, SMALL_OBJECT = 512 };
/* Bytes of a plain item with its place in a queue, what a full one takes in addition, and a number. */
enum { PLAIN_SIZE = 48 + 8, FULL_MORE = 16, NUMBER_SIZE = 32, PLACE = 8 };
enum { META_FLAGS_SIZE = 160, STATE_BITS = 5 };
enum { EVICTED_EXTRA = 16 * 1024, LARGE = 64 * 1024 };  /* bytes; table.py */
enum { TO_MAIN = 2 };  /* s3fifo.py */
enum { GHOST_WIDTH = 4, GHOST_DEPTH = 16, GHOST_STRIDE = GHOST_WIDTH * GHOST_DEPTH };  /* of fingerprints; ghost.py */
#define MOST_REPLIES ((Py_ssize_t)128 * 1024)  /* bytes of replies that are copied; more are left as they are */
#define MONTH 2592000u  /* seconds: a longer exptime is a point in time */
#define AFTER_VALUE 7  /* bytes: "\r\nEND\r\n" */
#define END_SIZE 5
#define HEADER 24

typedef unsigned long long u64;
typedef struct { const char *at; Py_ssize_t size; } Word;
#define AHEAD 32  /* keys; see ahead.h */
typedef struct { Word key; PyObject *line; } Ahead;

#define COUNTERS(X) X(hits) X(get_misses) X(cmd_set) X(total_items) X(cas_hits) X(cas_badval) X(cas_misses) \
    X(delete_hits) X(delete_misses) X(incr_hits) X(incr_misses) X(decr_hits) X(decr_misses) X(cmd_touch) \
    X(touch_hits) X(touch_misses) X(bytes_read) X(bytes_written) X(evictions) X(evicted_unfetched)
#define INDEX(name) N_##name,
#define NAME(name) #name,
enum { COUNTERS(INDEX) COUNTED };
static const char *const COUNTER_NAMES[] = {COUNTERS(NAME)};

#ifdef RECORDS
#include "records/runner.h"
#else
/* Numbers of the table, and then of its policy, that are kept here during a run; see `settle`. */
#define OF_TABLE(X) X(used) X(_until_measured) X(_room) X(_ahead)
#define OF_POLICY(X) X(_small_bytes) X(_main_bytes) X(_left_bytes) X(_small_limit) X(_main_limit) X(_left_limit) X(_patience)
enum { OF_TABLE(INDEX) BELONG_TO_TABLE, LAST_OF_TABLE = BELONG_TO_TABLE - 1, OF_POLICY(INDEX) NUMBERS };
static const char *const NUMBER_NAMES[] = {OF_TABLE(NAME) OF_POLICY(NAME)};

typedef struct {  /* an item that is evicted; holds its references */
    PyObject *line, *item;
    Py_ssize_t size;
    long long state;
} Gone;

typedef struct {
    PyObject_HEAD
    PyObject *engine, *table, *counters, *clock, *usage, *item_type, *full_type, *table_type, *policy_type, *shared;
    PyObject *read, *used, *fast_read, *fast_store, *full_store;  /* `Usage` */
    PyObject *text_twin, *binary_twin, *replies;  /* take one command; and the list of their replies */
    PyObject *find, *dicts, *policy;  /* of the table, as long as its `get_by_line` is `find` */
    PyObject *fresh[4], *zero;  /* states of new items: in the small queue or the main one, and the same of full ones; 0.0 */
    PyObject *popleft, *sizes, *count_evictions, *chunk_sizes;
    PyObject *line, *whole, *out;  /* that was looked up last; a reply that is not copied; the client's list */
    Field wire, state, expires, extra, until, counter[COUNTED], get_by_line, flushed, number[NUMBERS], version, fresh_now,
        garbage, filling, left, ghost, ghost_table, ghost_mask, ghost_depth, ghost_next, small_queue, main_queue, push,
        oldest, older, newest, evicts, on_evict, observer, second, evictions, evicted, evicted_time, evicted_unfetched;
    Gone *gone;  /* during an eviction */
    Py_ssize_t gone_count, gone_room;
    long long epoch, beside, beside_flags;  /* see item.py and `SizeClasses` */
    long long fresh_state;
    long long count[COUNTED];  /* what has yet to be added to the counters */
    unsigned counted;  /* a bit for each of these that is not 0 */
    long long now_is[NUMBERS], was[NUMBERS];  /* of the table and the policy; what was read */
    unsigned known, changed;  /* a bit for each of these that has been read, and that has to be written */
    u64 last_unique;  /* of the engine, if it is not 0 */
    char *reply;
    Py_ssize_t reply_size, reply_room, position, served, at_most, safe_size;
    double now;
    Ahead ahead[AHEAD];  /* lines of the next commands, made already: from `ahead_next` on */
    int ahead_next, ahead_count;
    const char *looked;  /* up to here the next commands have been looked for */
    char looks, timed, busy, cas, flush_known, was_flushed, usual_table, late;
} Runner;

typedef struct {  /* an item that has not expired and has no meta flags */
    PyObject *item, *wire;
    const char *at;  /* the wire's bytes */
    Py_ssize_t size;
    double expires;
    u64 unique;  /* 0 while none is assigned */
    int bits;  /* of its state */
} View;
#endif

/* Attributes */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value)) ? ERROR : DONE;
}

/* Both steal the reference: `get` for a number, and `put` of a new object. */
static inline long long number_of(PyObject *value) {
    if (!value) return -1;
    long long number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}

static inline int put_new(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, value) ? ERROR : DONE;
}

static int add_to(PyObject *owner, const Field *field, long long more) {
    long long number = number_of(get(owner, field));
    if (number == -1 && PyErr_Occurred()) return ERROR;
    return put_new(owner, field, PyLong_FromLongLong(number + more));
}

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

/* A clock may be injected, but it changes nothing: what is borrowed stays valid. */
static int now(Runner *r) {
    if (r->timed) return DONE;
    PyObject *time = PyObject_CallMethod(r->clock, "now", NULL);
    if (!time) return ERROR;
    r->now = PyFloat_AsDouble(time);
    Py_DECREF(time);
    r->timed = 1;
    return r->now == -1.0 && PyErr_Occurred() ? ERROR : DONE;
}

/* When an item with this exptime, which is not negative, expires; 0 for never. */
static int expiry(Runner *r, long long exptime, double *expires) {
    *expires = (double)exptime;
    if (!exptime || exptime > MONTH) return DONE;
    if (now(r) < 0) return ERROR;
    *expires += r->now;
    return DONE;
}

#ifdef RECORDS
static inline int settle(Runner *r) { (void)r; return DONE; }  /* a run keeps none of the table's numbers */
#else
/* Numbers of the table and its policy. They are read when they are needed first, and written before anything
in Python runs that may look at them, or the run ends. */

static inline PyObject *owner_of(Runner *r, int which) {
    return which < BELONG_TO_TABLE ? r->table : r->policy;
}

static int learn(Runner *r, int which) {
    if (r->known >> which & 1) return DONE;
    r->now_is[which] = number_of(get(owner_of(r, which), &r->number[which]));
    if (r->now_is[which] == -1 && PyErr_Occurred()) return ERROR;
    r->was[which] = r->now_is[which];
    r->known |= 1u << which;
    return DONE;
}

static int change(Runner *r, int which, long long more) {
    if (learn(r, which) < 0) return ERROR;
    r->now_is[which] += more;
    r->changed |= 1u << which;
    return DONE;
}

/* Without memory for a number, its change is late: it is made before the next run. */
static int settle(Runner *r) {
    int done = DONE;
    while (r->changed && done == DONE) {
        int which = __builtin_ctz(r->changed);
        PyObject *owner = owner_of(r, which);
        long long before = r->late ? number_of(get(owner, &r->number[which])) : r->was[which];
        if (before == -1 && PyErr_Occurred()) done = ERROR;
        else done = put_new(owner, &r->number[which], PyLong_FromLongLong(before + r->now_is[which] - r->was[which]));
        if (done == DONE) r->changed &= r->changed - 1;
    }
    if (r->last_unique && done == DONE) {
        long long given = r->late ? number_of(get(r->engine, &r->version)) : 0;  /* Python may have gone on meanwhile */
        if (given == -1 && PyErr_Occurred()) done = ERROR;
        else if ((u64)given < r->last_unique) done = put_new(r->engine, &r->version, PyLong_FromUnsignedLongLong(r->last_unique));
        if (done == DONE) r->last_unique = 0;
    }
    r->known = r->changed;
    r->late = r->changed || r->last_unique;
    return done;
}

/* The table */

/* Learns where items are, if that has changed: `get_by_line` is another one then. STOP if a lookup does more
than look: a flush is pending, or the policy keeps an order of uses. Any call into Python may change it. */
static int follow(Runner *r) {
    r->flush_known = r->timed = 0;
    if (r->late && settle(r) < 0) return ERROR;
    PyObject *find = get(r->table, &r->get_by_line);
    if (!find) return ERROR;
    if (find == r->find) {
        Py_DECREF(find);
        return r->dicts ? DONE : STOP;
    }
    Py_XSETREF(r->find, find);
    Py_CLEAR(r->dicts);
    Py_CLEAR(r->policy);
    PyObject *index = PyObject_GetAttrString(r->table, "_items"), *lookup = NULL, *dicts = NULL, *policy = NULL;
    if (index && (lookup = PyObject_GetAttrString(index, "get")) && (dicts = PyObject_GetAttrString(index, "_dicts")))
        policy = PyObject_GetAttrString(r->table, "_policy");
    int plain = policy && lookup == find && PyList_Check(dicts) && PyObject_HasAttr(policy, r->number[N__small_bytes].name);
    for (Py_ssize_t i = 0; plain && i < PyList_GET_SIZE(dicts); i++) plain = PyDict_CheckExact(PyList_GET_ITEM(dicts, i));
    r->usual_table = 0;
    if (plain) {
        r->usual_table = (PyObject *)Py_TYPE(policy) == r->policy_type && (PyObject *)Py_TYPE(r->table) == r->table_type;
        r->dicts = Py_NewRef(dicts);
        r->policy = Py_NewRef(policy);
    }
    int failed = !policy;
    Py_XDECREF(index);
    Py_XDECREF(lookup);
    Py_XDECREF(dicts);
    Py_XDECREF(policy);
    return failed ? ERROR : plain ? DONE : STOP;
}

/* Whether an absent item may be one that a flush has removed, which is counted: STOP then. */
static int never_flushed(Runner *r) {
    if (!r->flush_known) {
        PyObject *flushed = get(r->table, &r->flushed);
        if (!flushed) return ERROR;
        r->was_flushed = flushed != Py_None;
        r->flush_known = 1;
        Py_DECREF(flushed);
    }
    return r->was_flushed ? STOP : DONE;
}

static int can_run(Runner *r) { return r->dicts != NULL; }

static PyObject *dict_of(Runner *r, PyObject *line) {
    Py_ssize_t several = PyList_GET_SIZE(r->dicts);
    if (several == 1) return PyList_GET_ITEM(r->dicts, 0);
    Py_hash_t place = PyObject_Hash(line) % several;
    return PyList_GET_ITEM(r->dicts, place < 0 ? place + several : place);
}

#include "ahead.h"

static int look_at_line(Runner *r, PyObject *line, View *v) {
    PyObject *item = PyDict_GetItemWithError(dict_of(r, line), line);
    if (!item) return PyErr_Occurred() ? ERROR : ABSENT;
    v->item = item;
    PyObject *wire = get(item, &r->wire);
    if (!wire) return ERROR;
    if (!PyBytes_CheckExact(wire)) {
        Py_DECREF(wire);
        return STOP;
    }
    long long state = number_of(get(item, &r->state));
    if (state == -1 && PyErr_Occurred()) {
        Py_DECREF(wire);
        return ERROR;
    }
    v->wire = wire;
    v->at = PyBytes_AS_STRING(wire);
    v->size = PyBytes_GET_SIZE(wire);
    Py_DECREF(wire);  /* the item has it */
    v->bits = (int)(state & MASK);
    v->expires = 0;
    v->unique = 0;
    if (!(v->bits & FULL)) return Py_TYPE(item) == (PyTypeObject *)r->item_type ? DONE : STOP;
    if (Py_TYPE(item) != (PyTypeObject *)r->full_type) return STOP;
    PyObject *extra = get(item, &r->extra);
    if (!extra) return ERROR;
    int number = PyLong_CheckExact(extra);
    if (number) v->unique = PyLong_AsUnsignedLongLong(extra);
    Py_DECREF(extra);
    PyObject *expires = number && !PyErr_Occurred() ? get(item, &r->expires) : NULL;
    if (!expires) return number ? ERROR : STOP;
    v->expires = PyFloat_AsDouble(expires);
    Py_DECREF(expires);
    if (v->expires == 0) return DONE;
    return now(r) < 0 ? ERROR : v->expires > r->now ? DONE : STOP;
}

/* DONE, ABSENT, or STOP for an item that is not plain. */
static int look(Runner *r, Word key, View *v) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    PyObject *line = line_for(r, key);
    if (!line) return ERROR;
    Py_XSETREF(r->line, line);
    return look_at_line(r, line, v);
}

static int use(Runner *r, const View *v, PyObject *states) {
    return put(v->item, &r->state, PyList_GET_ITEM(states, v->bits));
}

static int use_read(Runner *r, const View *v) { return use(r, v, r->read); }

/* The state of an item that is given another value in place; NULL if it cannot be. See `_kept`. */
static PyObject *kept(Runner *r, const View *v) {
    if (!(v->bits & FULL)) return PyList_GET_ITEM(r->fast_store, v->bits);
    return v->expires || v->unique ? PyList_GET_ITEM(r->full_store, v->bits) : NULL;
}

static Py_ssize_t allocated(Py_ssize_t size) {
    size = (size + 33 + 15) & -16;
    return size <= SMALL_OBJECT ? size : size + (size >> 5) * 3;
}

/* Notes that an item takes `more` bytes than before. STOP if there is no room for it, unless it is `forced`. */
static int resize(Runner *r, int bits, Py_ssize_t more, int forced) {
    if (!more) return DONE;
    if (change(r, N_used, more) < 0) return ERROR;
    if (!forced && more > 0) {
        if (learn(r, N__room) < 0) return ERROR;
        if (r->now_is[N_used] > r->now_is[N__room]) return change(r, N_used, -more) < 0 ? ERROR : STOP;
    }
    return change(r, bits & MAIN ? N__main_bytes : N__small_bytes, more);
}

/* Gives an item another value, which is stolen. STOP if there is no room for it. */
static int rewrite(Runner *r, const View *v, PyObject *wire, PyObject *state) {
    int done = resize(r, v->bits, allocated(PyBytes_GET_SIZE(wire)) - allocated(v->size), 0);
    if (done == DONE) done = put(v->item, &r->state, state);
    if (done == DONE) done = put(v->item, &r->wire, wire);
    Py_DECREF(wire);
    return done;
}

/* A new item; a full one has no cas unique. */
static PyObject *new_item(Runner *r, int full, PyObject *wire, PyObject *state, double expires) {
    PyTypeObject *type = (PyTypeObject *)(full ? r->full_type : r->item_type);
    PyObject *time = !full ? NULL : expires ? PyFloat_FromDouble(expires) : Py_NewRef(r->zero), *item;
    if (full && !time) return NULL;
    if (r->wire.at < 0 || r->state.at < 0 || r->expires.at < 0 || r->extra.at < 0) {
        item = PyObject_CallFunctionObjArgs((PyObject *)type, wire, state, time, NULL);
    } else if ((item = type->tp_alloc(type, 0))) {
        int done = put(item, &r->wire, wire);
        if (done == DONE) done = put(item, &r->state, state);
        if (done == DONE && full) done = put(item, &r->expires, time);
        if (done == DONE && full) done = put_new(item, &r->extra, PyLong_FromLong(0));
        if (PyObject_IS_GC(item)) PyObject_GC_UnTrack(item);  /* it is never part of a cycle: nothing has to look at it */
        if (done < 0) Py_CLEAR(item);
    }
    Py_XDECREF(time);
    return item;
}

/* Learns the states of new items, which change once a second. */
static int know_fresh(Runner *r) {
    PyObject *fresh = get(r->usage, &r->fresh_now);
    if (!fresh) return ERROR;
    long long state = number_of(Py_NewRef(fresh));
    if (r->fresh[0] && state == r->fresh_state) {  /* it may be another object in a build by mypyc */
        Py_DECREF(fresh);
        return DONE;
    }
    Py_CLEAR(r->fresh[0]);
    for (int i = 1; i < 4; i++) {
        PyObject *one = PyObject_CallFunction(r->shared, "L", state | (i & 1 ? MAIN : 0) | (i & 2 ? FULL : 0));
        if (!one) {
            Py_DECREF(fresh);
            return ERROR;
        }
        Py_XSETREF(r->fresh[i], one);
    }
    r->fresh[0] = fresh;  /* last: it says that the others are known */
    r->fresh_state = state;
    return DONE;
}

/* The place of a line among the fingerprints of evicted ones; see `Ghost`. */
typedef struct {
    PyObject *table, *next;  /* both hold the references */
    char *places;
    Py_ssize_t bucket;
    long long depth;
    unsigned print;
} Trace;

static void end_trace(Trace *t) {
    Py_CLEAR(t->table);
    Py_CLEAR(t->next);
}

static int find_trace(Runner *r, PyObject *line, Trace *t) {
    PyObject *ghost = get(r->policy, &r->ghost);
    Py_hash_t hash = PyObject_Hash(line);
    int done = ERROR;
    t->table = ghost ? get(ghost, &r->ghost_table) : NULL;
    t->next = ghost ? get(ghost, &r->ghost_next) : NULL;
    if (t->table && t->next && PyByteArray_Check(t->table) && PyByteArray_Check(t->next)) {
        long long mask = number_of(get(ghost, &r->ghost_mask));
        t->depth = number_of(get(ghost, &r->ghost_depth));
        t->bucket = hash & mask;
        t->print = (unsigned)((u64)(hash >> 28) & 0xFFFFFFFF);
        if (!t->print) t->print = 1;
        if (!PyErr_Occurred() && t->depth >= 0 && t->depth <= GHOST_DEPTH && t->bucket < PyByteArray_GET_SIZE(t->next)
            && (t->bucket + 1) * GHOST_STRIDE <= PyByteArray_GET_SIZE(t->table)) {
            t->places = PyByteArray_AS_STRING(t->table) + t->bucket * GHOST_STRIDE;
            done = DONE;
        }
    }
    Py_XDECREF(ghost);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the ghost is another one");
    return done;
}

/* Whether a line was evicted lately, which is forgotten then: 1, 0, or ERROR; see `Ghost.take`. */
static int recall(Runner *r, PyObject *line) {
    Trace t = {0};
    int found = find_trace(r, line, &t) < 0 ? ERROR : 0;
    if (found == 0) {
        unsigned all[GHOST_DEPTH], same = 0;
        memcpy(all, t.places, sizeof all);
        for (int i = 0; i < GHOST_DEPTH; i++) same |= (unsigned)(all[i] == t.print) << i;
        same &= (1u << t.depth) - 1;
        /* What lies across two fingerprints may look like it, and is found first. */
        for (int at = 0; same && !found && at <= __builtin_ctz(same) * GHOST_WIDTH; at++) {
            if (memcmp(t.places + at, &t.print, GHOST_WIDTH)) continue;
            if (at % GHOST_WIDTH) break;
            found = 1;
            memset(t.places + at, 0, GHOST_WIDTH);
        }
    }
    end_trace(&t);
    return found;
}

/* Remembers a line that is evicted; see `Ghost.add`. */
static int remember(Runner *r, PyObject *line) {
    Trace t = {0};
    int done = find_trace(r, line, &t);
    if (done == DONE && t.depth) {
        unsigned char *next = (unsigned char *)PyByteArray_AS_STRING(t.next) + t.bucket;
        unsigned place = *next < t.depth ? *next : 0;
        *next = (unsigned char)(place + 1);
        memcpy(t.places + place * GHOST_WIDTH, &t.print, GHOST_WIDTH);
    }
    end_trace(&t);
    return done;
}

static int push(Runner *r, const Field *queue, PyObject *line) {
    PyObject *fifo = get(r->policy, queue), *append = fifo ? get(fifo, &r->push) : NULL;
    PyObject *none = append ? PyObject_CallOneArg(append, line) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(append);
    Py_XDECREF(fifo);
    return none ? DONE : ERROR;
}

static Py_ssize_t left_by(PyObject *line) {
    return 2 * allocated(PyBytes_GET_SIZE(line)) + PLACE;
}

/* Forgets the place of a removed item, which has been taken from its queue. */
static int give_up(Runner *r, PyObject *line) {
    PyObject *left = get(r->policy, &r->left);
    int done = left && !PyObject_DelItem(left, line) ? change(r, N__left_bytes, -left_by(line)) : ERROR;
    Py_XDECREF(left);
    return done;
}

/* The oldest line of a queue, and the part of the queue in which it is first: ABSENT if there is none; see `Fifo.pop`. */
static int oldest(Runner *r, const Field *queue, PyObject **part, PyObject **line) {
    PyObject *fifo = get(r->policy, queue);
    const Field *parts[] = {&r->oldest, &r->older, &r->newest};
    int done = fifo ? ABSENT : ERROR;
    for (int i = 0; i < 3 && done == ABSENT; i++) {
        *part = get(fifo, parts[i]);
        Py_ssize_t size = *part ? PyObject_Size(*part) : -1;
        if (size < 0) done = ERROR;
        else if (size) done = (*line = PySequence_GetItem(*part, 0)) ? DONE : ERROR;
        if (done != DONE) Py_XDECREF(*part);
    }
    Py_XDECREF(fifo);
    if (done == DONE && !PyBytes_CheckExact(*line)) {
        PyErr_SetString(PyExc_TypeError, "the queues have other keys");
        Py_DECREF(*line);
        Py_DECREF(*part);
        done = ERROR;
    }
    return done;
}

/* Takes the first line from a part of a queue, which needs no memory: what may fail comes before. */
static int take(Runner *r, PyObject *part) {
    PyObject *line = PyObject_CallMethodNoArgs(part, r->popleft);
    Py_XDECREF(line);
    return line ? DONE : ERROR;
}

/* Finds the oldest line of a queue, and its item: NULL if that was removed, and its place is given up and taken.
ABSENT if there is none. */
static int oldest_item(Runner *r, const Field *queue, PyObject **part, PyObject **line, PyObject **item) {
    int done = oldest(r, queue, part, line);
    if (done != DONE) return done;
    *item = PyDict_GetItemWithError(dict_of(r, *line), *line);
    if (!*item && (PyErr_Occurred() || give_up(r, *line) < 0 || take(r, *part) < 0)) done = ERROR;
    else if (*item && !PyObject_TypeCheck(*item, (PyTypeObject *)r->item_type)) {
        PyErr_SetString(PyExc_TypeError, "the table has other items");
        done = ERROR;
    }
    if (done < 0) {
        Py_DECREF(*line);
        Py_DECREF(*part);
    }
    return done;
}

/* The bytes of an item, and its state; see `weigh`. */
static int weigh(Runner *r, PyObject *line, PyObject *item, Py_ssize_t *size, long long *state) {
    PyObject *wire = get(item, &r->wire), *expires = NULL, *extra = NULL;
    int done = wire && PyBytes_Check(wire) ? DONE : ERROR;
    *state = number_of(get(item, &r->state));
    if (*state == -1 && PyErr_Occurred()) done = ERROR;
    if (done == DONE) *size = PLAIN_SIZE + allocated(PyBytes_GET_SIZE(wire)) + allocated(PyBytes_GET_SIZE(line));
    if (done == DONE && *state & FULL) {
        int mortal, more;
        if (!PyObject_TypeCheck(item, (PyTypeObject *)r->full_type)
            || !(expires = get(item, &r->expires)) || (mortal = PyObject_IsTrue(expires)) < 0
            || !(extra = get(item, &r->extra)) || (more = PyObject_IsTrue(extra)) < 0) done = ERROR;
        else *size += FULL_MORE + (mortal ? NUMBER_SIZE : 0)
                      + (!more ? 0 : PyLong_Check(extra) ? NUMBER_SIZE : NUMBER_SIZE + META_FLAGS_SIZE);
    }
    Py_XDECREF(wire);
    Py_XDECREF(expires);
    Py_XDECREF(extra);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the table has other items");
    return done;
}

/* Takes an item from its queue, and notes that it is evicted. */
static int choose(Runner *r, PyObject *part, PyObject *line, PyObject *item, Py_ssize_t size, long long state) {
    if (r->gone_count == r->gone_room) {
        Py_ssize_t room = r->gone_room ? 2 * r->gone_room : 32;
        Gone *larger = PyMem_Realloc(r->gone, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), ERROR;
        r->gone = larger;
        r->gone_room = room;
    }
    if (take(r, part) < 0) return ERROR;
    r->gone[r->gone_count++] = (Gone){Py_NewRef(line), Py_NewRef(item), size, state};
    return DONE;
}

/* Spares an item, which gets this state and goes to the end of the main queue. */
static int spare(Runner *r, PyObject *part, PyObject *line, PyObject *item, long long state) {
    PyObject *shared = PyObject_CallFunction(r->shared, "L", state);
    int done = shared ? push(r, &r->main_queue, line) : ERROR;
    if (done == DONE) done = take(r, part);
    if (done == DONE) done = put(item, &r->state, shared);
    Py_XDECREF(shared);
    return done;
}

/* See `S3Fifo._evict_small`. `size` is what has to be freed, and then what has been, also if it failed. */
static int evict_small(Runner *r, long long *size, long long *chances) {
    long long freed = 0, moved = 0, state;
    int done = DONE;
    while (done == DONE && freed < *size && *chances) {
        PyObject *part, *line, *item;
        Py_ssize_t weight;
        if ((done = oldest_item(r, &r->small_queue, &part, &line, &item)) != DONE) break;
        if (item) {
            done = weigh(r, line, item, &weight, &state);
            if (done == DONE && (state & FREQUENCY) < TO_MAIN) {
                done = remember(r, line);
                if (done == DONE) done = choose(r, part, line, item, weight, state);
                if (done == DONE) freed += weight;
                if (done == DONE && r->now_is[N__main_bytes] + moved > r->now_is[N__main_limit]) done = ABSENT;
            } else if (done == DONE && (done = spare(r, part, line, item, (state & ~FREQUENCY) | MAIN)) == DONE) {
                *chances -= 1;
                moved += weight;
            }
        }
        Py_DECREF(line);
        Py_DECREF(part);
    }
    *size = freed;
    if (change(r, N__small_bytes, -freed - moved) < 0 || change(r, N__main_bytes, moved) < 0) return ERROR;
    return done < 0 ? ERROR : DONE;
}

/* See `S3Fifo._evict_main`: evicts one item. `freed` is its size, or 0. */
static int evict_main(Runner *r, long long *freed, long long *chances) {
    long long left = *chances, state;
    int done = DONE;
    *freed = 0;
    while (done == DONE && !*freed) {
        PyObject *part, *line, *item;
        Py_ssize_t weight;
        if ((done = oldest_item(r, &r->main_queue, &part, &line, &item)) != DONE) break;
        if (item) {
            done = weigh(r, line, item, &weight, &state);
            if (done == DONE && state & FREQUENCY && left) {
                left--;
                done = spare(r, part, line, item, state - 1);
            } else if (done == DONE && (done = choose(r, part, line, item, weight, state)) == DONE) {
                *chances = left;
                *freed = weight;
                done = change(r, N__main_bytes, -weight);
            }
        }
        Py_DECREF(line);
        Py_DECREF(part);
    }
    return done < 0 ? ERROR : DONE;
}

/* Chooses items that take `size` bytes together; see `S3Fifo.evict`. */
static int choose_all(Runner *r, long long size) {
    if (learn(r, N__small_bytes) < 0 || learn(r, N__main_bytes) < 0 || learn(r, N__main_limit) < 0
        || learn(r, N__patience) < 0) return ERROR;
    long long chances = r->now_is[N__patience], all = size;
    while (all > 0) {
        int main_first = !r->now_is[N__small_bytes] || r->now_is[N__main_bytes] > r->now_is[N__main_limit];
        long long freed = 0;
        for (int turn = 0; !freed && turn < (main_first ? 3 : 2); turn++) {
            if ((turn & 1) == main_first) {
                freed = all;
                if (evict_small(r, &freed, &chances) < 0) return ERROR;
            } else if (evict_main(r, &freed, &chances) < 0) return ERROR;
        }
        if (!freed) {
            Py_ssize_t places = chances ? 0 : PyObject_Size(r->policy);
            if (places <= 0) return places < 0 ? ERROR : DONE;
            chances = r->now_is[N__patience];
        }
        all -= freed;
    }
    return DONE;
}

static void forget_gone(Runner *r) {
    while (r->gone_count) {
        Gone *one = &r->gone[--r->gone_count];
        Py_DECREF(one->line);
        Py_DECREF(one->item);
    }
}

/* The bytes that memcached would count for an item; see `SizeClasses.of_item`. */
static int total_of(Runner *r, const Gone *one, long long *total) {
    PyObject *wire = get(one->item, &r->wire);
    if (!wire) return ERROR;
    const char *at = PyBytes_AS_STRING(wire), *space = at + PyBytes_GET_SIZE(one->line), *line_end = NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(wire);  /* of a line, its key and 6 bytes; a reply has 6 bytes before its key */
    if (size > 6) line_end = memchr(at, '\n', size);
    if (line_end) {
        if (one->state & FULL || space + 3 > at + size || memcmp(space, " 0 ", 3)) space = memchr(at + 6, ' ', line_end - at - 6);
        if (!space) line_end = NULL;
        else *total = (memcmp(space, " 0 ", 3) ? r->beside_flags : r->beside) + PyBytes_GET_SIZE(one->line) - 6
                      + (at + size - line_end) - 1 - AFTER_VALUE;
    }
    Py_DECREF(wire);
    if (!line_end) PyErr_SetString(PyExc_ValueError, "an item has another form");
    return line_end ? DONE : ERROR;
}

/* Counts an evicted item that has no expiry; see `Engine.count_evictions`. */
static int count_eviction(Runner *r, const Gone *one, PyObject *evictions, long long second) {
    long long total;
    if (total_of(r, one, &total) < 0) return ERROR;
    Py_ssize_t below = 0, above = PyList_GET_SIZE(r->chunk_sizes) - 1;
    while (below < above) {
        Py_ssize_t middle = (below + above) / 2;
        if (PyLong_AsLongLong(PyList_GET_ITEM(r->chunk_sizes, middle)) < total) below = middle + 1;
        else above = middle;
    }
    if (PyErr_Occurred()) return ERROR;
    PyObject *counts = Py_XNewRef(below + 1 < PyList_GET_SIZE(evictions) ? PyList_GET_ITEM(evictions, below + 1) : NULL);
    if (!counts) return PyErr_SetString(PyExc_IndexError, "a class has no counts"), ERROR;
    int done = add_to(counts, &r->evicted, 1);
    COUNT(r, evictions);
    if (!(one->state & FETCHED)) {
        COUNT(r, evicted_unfetched);
        if (done == DONE) done = add_to(counts, &r->evicted_unfetched, 1);
    }
    if (done == DONE) done = put_new(counts, &r->evicted_time, PyLong_FromLongLong(second - (one->state >> STATE_BITS)));
    Py_DECREF(counts);
    return done;
}

/* Has evicted items counted, and shown to whoever watches, as `Policy.evict` returns them. */
static int tell_of(PyObject *on_evict, const Gone *gone, Py_ssize_t count) {
    PyObject *list = PyList_New(count), *none = NULL;
    int done = list ? DONE : ERROR;
    for (Py_ssize_t i = 0; done == DONE && i < count; i++) {
        PyObject *one = Py_BuildValue("OOn", gone[i].line, gone[i].item, gone[i].size);
        if (one) PyList_SET_ITEM(list, i, one);
        else done = ERROR;
    }
    if (done == DONE && !(none = PyObject_CallOneArg(on_evict, list))) done = ERROR;
    Py_XDECREF(none);
    Py_XDECREF(list);
    return done;
}

/* Counts what has been evicted. The twin takes items with an expiry, and all of them if somebody watches. */
static int tell(Runner *r) {
    PyObject *on_evict = get(r->table, &r->on_evict), *observer = get(r->engine, &r->observer);
    PyObject *evictions = get(r->sizes, &r->evictions);
    int usual = on_evict && observer && evictions ? PyObject_RichCompareBool(on_evict, r->count_evictions, Py_EQ) : ERROR;
    long long second = number_of(get(r->clock, &r->second)) - r->epoch;
    int done = usual < 0 || PyErr_Occurred() ? ERROR : DONE;
    if (done == DONE && (!usual || observer != Py_None || !PyList_Check(evictions)))
        done = tell_of(on_evict, r->gone, r->gone_count);
    else for (Py_ssize_t i = 0; done == DONE && i < r->gone_count; i++) {
        PyObject *expires = r->gone[i].state & FULL ? get(r->gone[i].item, &r->expires) : Py_NewRef(Py_None);
        int mortal = expires ? PyObject_IsTrue(expires) : ERROR;
        Py_XDECREF(expires);
        done = mortal < 0 ? ERROR : mortal ? tell_of(on_evict, r->gone + i, 1) : count_eviction(r, r->gone + i, evictions, second);
    }
    Py_XDECREF(on_evict);
    Py_XDECREF(observer);
    Py_XDECREF(evictions);
    return done;
}

/* Evicts items until an item of `size` bytes has room, and some more; see `ItemTable._make_room`. */
static int evict(Runner *r, Py_ssize_t size) {
    if (learn(r, N__ahead) < 0) return ERROR;
    long long used = r->now_is[N_used], until = r->now_is[N__room] - size - r->now_is[N__ahead];
    if (until < used - 2 * size - EVICTED_EXTRA) until = used - 2 * size - EVICTED_EXTRA;
    int done = choose_all(r, used - until);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* Also if choosing more of them failed: these have been taken from their queues. */
    for (Py_ssize_t i = 0; i < r->gone_count; i++) {
        PyObject *line = r->gone[i].line;
        if (change(r, N_used, -r->gone[i].size) < 0 || PyDict_DelItem(dict_of(r, line), line)) done = ERROR;
    }
    if (r->gone_count && (settle(r) < 0 || tell(r) < 0)) done = ERROR;
    forget_gone(r);
    if (type) PyErr_Restore(type, value, trace);
    return done == DONE ? follow(r) : done;
}

/* Puts an item of `size` bytes, whose line was absent, into a queue; see `admit` of S3Fifo. `main` is what `recall`
returned, and `first` whether the table has never been full. */
static int enqueue(Runner *r, PyObject *line, PyObject *item, int full, Py_ssize_t size, int first, int main) {
    PyObject *left = get(r->policy, &r->left), *place = NULL;
    int done = left && PyDict_Check(left) && learn(r, N__main_bytes) == DONE && learn(r, N__small_bytes) == DONE
               && learn(r, N__left_bytes) == DONE ? DONE : ERROR;  /* so that nothing fails once it has a place */
    if (done == DONE && PyDict_GET_SIZE(left) && !(place = PyDict_GetItemWithError(left, line)) && PyErr_Occurred()) done = ERROR;
    if (done == DONE && place) {  /* it gets the place back that it had */
        main = (int)(number_of(Py_NewRef(place)) & MAIN) != 0;
        if (PyDict_DelItem(left, line) || change(r, N__left_bytes, -left_by(line)) < 0) done = ERROR;
    } else if (done == DONE) {
        if (first) {
            if (learn(r, N__small_bytes) < 0 || learn(r, N__small_limit) < 0) done = ERROR;
            main = r->now_is[N__small_bytes] >= r->now_is[N__small_limit];
        }
        if (done == DONE) done = push(r, main ? &r->main_queue : &r->small_queue, line);
    }
    if (done == DONE && main) done = put(item, &r->state, r->fresh[full ? 3 : 1]);
    if (done == DONE) done = change(r, main ? N__main_bytes : N__small_bytes, size);
    Py_XDECREF(left);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the policy is another one");
    return done;
}

/* Removes an item again that has got no place in a queue; the error stays. */
static int leave_out(Runner *r, PyObject *line) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (PyDict_DelItem(dict_of(r, line), line)) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return ERROR;
}

/* Stores a value, which is stolen, under r->line, which is absent: see `ItemTable.put`. STOP if there is no room,
or more is due than that. */
static int insert(Runner *r, PyObject *wire, long long exptime, PyObject **stored) {
    double expires = 0;
    PyObject *line = r->line, *item = NULL;
    int done = wire ? never_flushed(r) : ERROR;
    if (done == DONE && !r->usual_table) done = STOP;
    if (done == DONE) done = expiry(r, exptime, &expires);
    if (done == DONE) done = know_fresh(r);
    if (done == DONE) {
        int full = expires != 0;
        Py_ssize_t size = PLAIN_SIZE + allocated(PyBytes_GET_SIZE(wire)) + allocated(PyBytes_GET_SIZE(line));
        if (full) size += FULL_MORE + NUMBER_SIZE;
        PyObject *garbage = get(r->table, &r->garbage);
        PyObject *filling = get(r->policy, &r->filling), *evicts = NULL;
        int first = filling == Py_True, main = 0, over = 0;
        if (!garbage || !filling || learn(r, N_used) < 0 || learn(r, N__room) < 0 || learn(r, N__until_measured) < 0) done = ERROR;
        else if (!PyList_Check(garbage) || PyList_GET_SIZE(garbage) || r->now_is[N__until_measured] <= size) done = STOP;
        else if ((over = r->now_is[N_used] + size > r->now_is[N__room])) {
            if (!(evicts = get(r->table, &r->evicts))) done = ERROR;
            else if (evicts != Py_True || first || size > LARGE || size > r->now_is[N__room]) done = STOP;
        }
        Py_XDECREF(garbage);
        Py_XDECREF(filling);
        Py_XDECREF(evicts);
        if (done == DONE && !first && (main = recall(r, line)) < 0) done = ERROR;
        if (done == DONE && over) done = evict(r, size);
        if (done == DONE && !(item = new_item(r, full, wire, r->fresh[full ? 2 : 0], expires))) done = ERROR;
        if (done == DONE && PyDict_SetItem(dict_of(r, line), line, item)) done = ERROR;
        if (done == DONE && enqueue(r, line, item, full, size, first, main) < 0) done = leave_out(r, line);
        if (done == DONE) done = change(r, N_used, size);
        if (done == DONE) done = change(r, N__until_measured, -size);
    }
    Py_XDECREF(wire);
    Py_XDECREF(item);
    if (done != DONE) return done;
    *stored = item;  /* the table has it */
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}

/* Stores a value, which is stolen, in the place of another, and makes the item a full one or a plain one: see
`ItemTable.overwrite`. A cas unique is not kept. */
static int supersede(Runner *r, View *v, PyObject *wire, long long exptime) {
    double expires = 0;
    int full = v->bits & FULL, done = wire ? expiry(r, exptime, &expires) : ERROR;
    PyObject *state = PyList_GET_ITEM(expires ? r->full_store : r->fast_store, expires ? v->bits | FULL : v->bits & ~FULL);
    PyObject *item = NULL;
    if (done == DONE && !(expires && full) && !(item = new_item(r, expires != 0, wire, state, expires))) done = ERROR;
    if (done == DONE) {
        Py_ssize_t more = allocated(PyBytes_GET_SIZE(wire)) - allocated(v->size);
        if (expires) more += FULL_MORE + NUMBER_SIZE;
        if (full) more -= FULL_MORE + (v->expires ? NUMBER_SIZE : 0) + (v->unique ? NUMBER_SIZE : 0);
        done = resize(r, v->bits, more, 0);
    }
    if (done == DONE && item) done = PyDict_SetItem(dict_of(r, r->line), r->line, item) ? ERROR : DONE;
    else if (done == DONE) {
        done = put_new(v->item, &r->expires, PyFloat_FromDouble(expires));
        if (done == DONE && v->unique) done = put_new(v->item, &r->extra, PyLong_FromLong(0));
        if (done == DONE) done = put(v->item, &r->state, state);
        if (done == DONE) done = put(v->item, &r->wire, wire);
    }
    Py_XDECREF(item);
    Py_XDECREF(wire);
    if (done != DONE) return done;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}

/* Counts up the cas unique of an item that has one. */
static int renumber(Runner *r, View *v) {
    if (!v->unique) return DONE;
    if (!r->last_unique) {
        PyObject *last = get(r->engine, &r->version);
        if (last) r->last_unique = PyLong_AsUnsignedLongLong(last);
        Py_XDECREF(last);
        if (PyErr_Occurred()) return r->last_unique = 0, ERROR;
    }
    v->unique = ++r->last_unique;
    return put_new(v->item, &r->extra, PyLong_FromUnsignedLongLong(v->unique));
}

/* Gives a new item a cas unique, and makes it a full one for that; see `with_unique`. */
static int number(Runner *r, View *v) {
    PyObject *wire = get(v->item, &r->wire), *full = NULL;
    long long bits = number_of(get(v->item, &r->state)) & MASK;
    if (wire && !PyErr_Occurred()) full = new_item(r, 1, wire, r->fresh[bits & MAIN ? 3 : 2], 0);
    Py_XDECREF(wire);
    int done = full && !PyDict_SetItem(dict_of(r, r->line), r->line, full) ? DONE : ERROR;
    Py_XDECREF(full);
    if (done < 0) return ERROR;
    v->item = full;
    v->unique = 1;  /* it gets the next one */
    if (renumber(r, v) < 0) return ERROR;
    return resize(r, (int)bits, FULL_MORE + NUMBER_SIZE, 1);
}

#endif

/* Replies */

static int flush_replies(Runner *r) {
    if (!r->reply_size) return DONE;
    PyObject *reply = PyBytes_FromStringAndSize(r->reply, r->reply_size);
    int failed = !reply || PyList_Append(r->out, reply);
    Py_XDECREF(reply);
    r->reply_size = 0;
    return failed ? ERROR : DONE;
}

/* Room for a reply of `size` bytes, at r->reply + r->reply_size; STOP if it is too large to be copied. */
static int make_room(Runner *r, Py_ssize_t size) {
    Py_ssize_t needed = r->reply_size + size;
    if (needed <= r->reply_room) return DONE;
    if (needed > MOST_REPLIES) return STOP;
    Py_ssize_t room = needed < MOST_REPLIES / 2 ? 2 * needed : MOST_REPLIES;
    char *larger = PyMem_Realloc(r->reply, room);
    if (!larger) return PyErr_NoMemory(), ERROR;
    r->reply = larger;
    r->reply_room = room;
    return DONE;
}

static inline void append(Runner *r, const char *from, Py_ssize_t size) {
    memcpy(r->reply + r->reply_size, from, size);
    r->reply_size += size;
}
#define APPEND(r, text) append(r, text, sizeof text - 1)

static int answer(Runner *r, const char *text, Py_ssize_t size) {
    int done = make_room(r, size);
    if (done == DONE) append(r, text, size);
    return done;
}
#define ANSWER(r, text) answer(r, text, sizeof text - 1)

/* The decimal digits of a number; `to` has room for 20. */
static int write_digits(char *to, u64 number) {
    char digits[20];
    int size = 0;
    do digits[size++] = (char)('0' + number % 10); while (number /= 10);
    for (int i = 0; i < size; i++) to[i] = digits[size - 1 - i];
    return size;
}

static void append_number(Runner *r, u64 number) {
    r->reply_size += write_digits(r->reply + r->reply_size, number);
}

/* Numbers and words */

/* A number of at most 18 digits without leading zeros; -1 for anything else. */
static long long read_number(Word word) {
    if (word.size < 1 || word.size > SAFE_DIGITS - 1 || (word.at[0] == '0' && word.size > 1)) return -1;
    long long number = 0;
    for (Py_ssize_t i = 0; i < word.size; i++) {
        unsigned digit = (unsigned char)word.at[i] - '0';
        if (digit > 9) return -1;
        number = number * 10 + digit;
    }
    return number;
}

static int is(Word word, const char *text, Py_ssize_t size) {
    return word.size == size && !memcmp(word.at, text, size);
}
#define IS(word, text) is(word, text, sizeof text - 1)

/* The words of a line up to `most`, with single spaces between them; STOP if it is not complete, ends in
another way, has more, or has other control characters. `after` is where the next line begins. */
static int read_words(const char *at, const char *end, Word *words, int most, const char **after) {
    int count = 0;
    for (;;) {
        const char *begin = at;
        while (at < end && (unsigned char)*at > ' ') at++;
        if (at == begin || at == end || count == most) return STOP;
        words[count++] = (Word){begin, at - begin};
        if (*at != ' ') break;
        at++;
    }
    if (*at != '\r' || at + 1 == end || at[1] != '\n') return STOP;
    *after = at + 2;
    return count;
}

static const char *value_at(const View *v) {
    return (const char *)memchr(v->at, '\n', v->size) + 1;
}

static Py_ssize_t value_size(const View *v) {
    return v->at + v->size - AFTER_VALUE - value_at(v);
}

/* The flags and the size in the reply to a get for `key`. */
static Word numbers_of(const View *v, Py_ssize_t key_size) {
    const char *begin = v->at + 7 + key_size;
    return (Word){begin, value_at(v) - 2 - begin};
}

static Word flags_of(const View *v, Py_ssize_t key_size) {
    Word numbers = numbers_of(v, key_size);
    numbers.size = (const char *)memchr(numbers.at, ' ', numbers.size) - numbers.at;
    return numbers;
}

/* The reply to a get; the value is at most two pieces. */
typedef struct { Word key, flags, one, two; char digits[20]; int length; } Frame;

static Frame frame_of(Word key, Word flags, Word one, Word two) {
    Frame frame = {key, flags, one, two, {0}, 0};
    frame.length = write_digits(frame.digits, (u64)(one.size + two.size));
    return frame;
}

static Py_ssize_t frame_size(const Frame *f) {
    return 6 + f->key.size + 1 + f->flags.size + 1 + f->length + 2 + f->one.size + f->two.size + AFTER_VALUE;
}

static void write_frame(char *to, const Frame *f) {
#define WRITE(from, size) (memcpy(to, from, size), to += size)
    WRITE("VALUE ", 6);
    WRITE(f->key.at, f->key.size);
    *to++ = ' ';
    WRITE(f->flags.at, f->flags.size);
    *to++ = ' ';
    WRITE(f->digits, f->length);
    WRITE("\r\n", 2);
    WRITE(f->one.at, f->one.size);
    WRITE(f->two.at, f->two.size);
    memcpy(to, "\r\nEND\r\n", AFTER_VALUE);
}

/* Adds to the number that an item has, or subtracts: its digits, if they take no more room; else STOP. */
static int count_of_item(const View *v, u64 delta, int down, u64 *number, char *digits) {
    const char *stored = value_at(v), *end = v->at + v->size - AFTER_VALUE, *at = stored;
    if (end - stored > SAFE_DIGITS) return STOP;
    u64 found = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) found = found * 10 + (u64)(*at - '0');
    if (at == stored) return STOP;
    while (at < end && *at == ' ') at++;  /* they follow a number that was longer */
    if (at < end) return STOP;
    if (down) found = found > delta ? found - delta : 0;
    else if (__builtin_add_overflow(found, delta, &found)) return STOP;
    int length = write_digits(digits, *number = found);
    if (length > end - stored) return STOP;
    memset(digits + length, ' ', end - stored - length);
    return DONE;
}

#ifndef RECORDS
/* What commands of all protocols do to items */

/* A new reply to a get; the value is at most two pieces. */
static PyObject *framed(const Frame *frame) {
    PyObject *wire = PyBytes_FromStringAndSize(NULL, frame_size(frame));
    if (wire) write_frame(PyBytes_AS_STRING(wire), frame);
    return wire;
}

static PyObject *frame(Word key, Word flags, Word one, Word two) {
    Frame frame = frame_of(key, flags, one, two);
    return framed(&frame);
}

/* Adds to a number that takes no more room afterwards; see `count_in_place`. */
static int count_in_place(Runner *r, View *v, u64 delta, int down, u64 *number) {
    PyObject *state = kept(r, v);
    char digits[20];
    if (!state || count_of_item(v, delta, down, number, digits) != DONE) return STOP;
    PyObject *wire = PyBytes_FromStringAndSize(v->at, v->size);
    if (!wire) return ERROR;
    memcpy(PyBytes_AS_STRING(wire) + (value_at(v) - v->at), digits, value_size(v));
    /* It is the same item, which has been fetched if it had been. */
    if (v->bits & FETCHED) state = PyList_GET_ITEM(r->read, v->bits & (FRESH | FULL));
    if (rewrite(r, v, wire, state) < 0 || renumber(r, v) < 0) return ERROR;
    if (down) COUNT(r, decr_hits);
    else COUNT(r, incr_hits);
    return DONE;
}

#define count_in_general count_in_place

static int count_miss(Runner *r, int down) {
    int done = never_flushed(r);
    if (done == DONE) count_of(r, down ? N_decr_misses : N_incr_misses, 1);
    return done;
}

/* Stores another value in the place of one that is there and has no expiry; `wire` is stolen. */
static int overwrite(Runner *r, View *v, PyObject *wire) {
    PyObject *state = wire ? kept(r, v) : NULL;
    int done = !wire ? ERROR : STOP;
    if (state) done = rewrite(r, v, wire, state);
    else Py_XDECREF(wire);
    if (done != DONE) return done;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return renumber(r, v);
}

static int join(Runner *r, View *v, Word key, Word value, int before) {
    const char *begin = value_at(v);
    Word old = {begin, value_size(v)};
    if (v->size + value.size + SAFE_DIGITS > r->safe_size) return STOP;
    Word flags = flags_of(v, key.size);
    return overwrite(r, v, before ? frame(key, flags, value, old) : frame(key, flags, old, value));
}

/* Touches an item; see `retime_plain` and `update_metadata`. A plain item that gets an expiry becomes a full one. */
static int retime(Runner *r, View *v, long long exptime) {
    double expires;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    if (expiry(r, exptime, &expires) < 0) return ERROR;
    PyObject *state = PyList_GET_ITEM(r->read, expires ? v->bits | FULL : v->bits);
    if (v->bits & FULL) {
        Py_ssize_t more = expires && !v->expires ? NUMBER_SIZE : !expires && v->expires ? -NUMBER_SIZE : 0;
        if (expires || v->expires) {
            PyObject *time = expires ? PyFloat_FromDouble(expires) : Py_NewRef(r->zero);
            if (put_new(v->item, &r->expires, time) < 0) return ERROR;
        }
        if (resize(r, v->bits, more, 1) < 0) return ERROR;
    } else if (expires) {
        PyObject *item = new_item(r, 1, v->wire, state, expires);
        int failed = !item || PyDict_SetItem(dict_of(r, r->line), r->line, item);
        Py_XDECREF(item);
        if (failed || resize(r, v->bits, FULL_MORE + NUMBER_SIZE, 1) < 0) return ERROR;
        v->item = item;
    }
    COUNT(r, cmd_touch);
    COUNT(r, touch_hits);
    return put(v->item, &r->state, state);
}

static int touch_miss(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) {
        COUNT(r, cmd_touch);
        COUNT(r, touch_misses);
    }
    return done;
}

static int get_miss(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) COUNT(r, get_misses);
    return done;
}

static int store_nothing(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) COUNT(r, cmd_set);
    return done;
}

static int delete_miss(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) COUNT(r, delete_misses);
    return done;
}

/* Removes an item; see `ItemTable.remove`. If the places that removed items leave are many, the table frees some. */
static int delete_item(Runner *r, const View *v) {
    PyObject *line = r->line;
    if (r->usual_table && (learn(r, N__left_bytes) < 0 || learn(r, N__left_limit) < 0)) return ERROR;
    if (!r->usual_table || r->now_is[N__left_bytes] + left_by(line) > r->now_is[N__left_limit]) {
        if (settle(r) < 0) return ERROR;
        PyObject *item = Py_NewRef(v->item);
        Py_INCREF(line);
        PyObject *none = PyObject_CallMethod(r->table, "remove", "OO", line, item);
        Py_DECREF(item);
        Py_DECREF(line);
        if (!none) return ERROR;
        Py_DECREF(none);
        COUNT(r, delete_hits);
        return follow(r) < 0 ? ERROR : DONE;
    }
    Py_ssize_t size = PLAIN_SIZE + allocated(v->size) + allocated(PyBytes_GET_SIZE(line));
    if (v->bits & FULL) size += FULL_MORE + (v->expires ? NUMBER_SIZE : 0) + (v->unique ? NUMBER_SIZE : 0);
    PyObject *left = get(r->policy, &r->left), *queue = PyLong_FromLong(v->bits & MAIN);
    int done = left && queue && !PyObject_SetItem(left, line, queue) ? DONE : ERROR;
    Py_XDECREF(left);
    Py_XDECREF(queue);
    if (done == DONE) done = change(r, N__left_bytes, left_by(line));
    if (done == DONE) done = resize(r, v->bits, -size, 1);
    if (done == DONE && PyDict_DelItem(dict_of(r, line), line)) done = ERROR;
    if (done == DONE) COUNT(r, delete_hits);
    return done;
}

/* Commands of the text protocol */

/* `get <key>*`, and `gets` if the uniques are shown. */
static int text_get(Runner *r, const char *start, const char *at, const char *end, int uniques, const char **after) {
    struct { PyObject *item, *wire; u64 unique; } found[MOST_KEYS];
    Py_ssize_t hits = 0, misses = 0, room = END_SIZE;
    View v;
    for (;; at++) {
        Word key = {at, 0};
        while (at < end && (unsigned char)*at > ' ') at++;
        key.size = at - key.at;
        if (at == end || hits + misses == MOST_KEYS) return STOP;
        if (*at == ' ' && r->looks && r->ahead_next == r->ahead_count) look_ahead(r, key.at, end, 0, 1);
        int known = look(r, key, &v);
        if (known < DONE) return known;
        if (known == ABSENT) misses++;
        else if (uniques && !v.unique) return STOP;
        else {
            found[hits].item = v.item;
            found[hits].wire = v.wire;
            found[hits++].unique = v.unique;
            room += v.size + (uniques ? 1 + 20 : 0);
        }
        if (*at == '\r' && at + 1 < end && at[1] == '\n') break;
        if (*at != ' ') return STOP;
    }
    *after = at + 2;
    int done = misses ? never_flushed(r) : DONE;
    int alone = hits == 1 && !misses && !uniques && !r->reply_size && !PyList_GET_SIZE(r->out) && *after == end;
    if (done == DONE && !alone) done = make_room(r, room);
    if (done != DONE) return done;
    for (Py_ssize_t i = 0; i < hits; i++) {
        long long state = number_of(get(found[i].item, &r->state));  /* the same item may be asked for twice */
        if (state == -1 && PyErr_Occurred()) return ERROR;
        if (put(found[i].item, &r->state, PyList_GET_ITEM(r->read, state & MASK)) < 0) return ERROR;
        if (alone) {
            r->whole = Py_NewRef(found[i].wire);
            break;
        }
        const char *wire = PyBytes_AS_STRING(found[i].wire);
        Py_ssize_t size = PyBytes_GET_SIZE(found[i].wire) - END_SIZE;
        if (uniques) {
            Py_ssize_t head = (const char *)memchr(wire, '\n', size) - 1 - wire;
            append(r, wire, head);
            APPEND(r, " ");
            append_number(r, found[i].unique);
            append(r, wire + head, size - head);
        } else append(r, wire, size);
    }
    if (!alone) APPEND(r, "END\r\n");
    if (hits) count_of(r, N_hits, hits);
    if (misses) count_of(r, N_get_misses, misses);
    return DONE;
}
#endif

/* The value after a storage command's line; STOP if it is not there, too large, or ends in another way. */
static int read_value(Runner *r, Word digits, const char **after, const char *end, Word *value) {
    long long size = read_number(digits);
    if (size < 0 || size > r->safe_size || size + 2 > end - *after) return STOP;
    *value = (Word){*after, (Py_ssize_t)size};
    *after += size + 2;
    return (*after)[-2] == '\r' && (*after)[-1] == '\n' ? DONE : STOP;
}

static int is_flags(Word word) {
    long long flags = read_number(word);
    return flags >= 0 && flags <= UINT_MAX;
}

/* SET_USED: what it finds counts as used, as the twin does without a shortcut. */
enum Mode { SET, SET_USED, ADD, REPLACE, APPEND_TO, PREPEND_TO, CAS };
enum { STORED = DONE, NOT_STORED = DONE + 10, EXISTS, NOT_FOUND };

#ifdef RECORDS
#include "records/items.h"
#else
/* Stores, and returns one of those; STOP if the twin has to. */
static int store(Runner *r, enum Mode mode, Word key, Word flags, Word value, u64 unique, long long exptime) {
    View v;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) {
        PyObject *item;
        if (mode <= ADD) return insert(r, frame(key, flags, value, (Word){"", 0}), exptime, &item);
        if ((done = store_nothing(r)) != DONE) return done;
        if (mode == CAS) COUNT(r, cas_misses);
        return mode == CAS ? NOT_FOUND : NOT_STORED;
    }
    int plain = !(v.bits & FULL);
    if (mode == ADD) {
        if (!plain) return STOP;
        COUNT(r, cmd_set);
        return use(r, &v, r->used) < 0 ? ERROR : NOT_STORED;
    }
    if (mode == APPEND_TO || mode == PREPEND_TO) return join(r, &v, key, value, mode == PREPEND_TO);
    if (mode == CAS && r->cas && v.unique && v.unique != unique) {
        COUNT(r, cmd_set);
        COUNT(r, cas_badval);
        return EXISTS;
    }
    if (mode == CAS && (!r->cas || !v.unique)) return STOP;
    PyObject *wire = frame(key, flags, value, (Word){"", 0});
    done = exptime || v.expires || (mode <= SET_USED && !plain) ? supersede(r, &v, wire, exptime) : overwrite(r, &v, wire);
    if (done == DONE && mode == CAS) COUNT(r, cas_hits);
    return done;
}

/* Stores, and notes the cas unique that is `shown`, if it is. */
static int store_for_unique(Runner *r, View *v, int known, Frame frame, long long exptime, int shown) {
    if (exptime || (known != ABSENT && (!r->cas || !v->unique || v->expires))) return STOP;
    /* The twin drops a unique that nobody is shown. */
    if (known != ABSENT && !shown && frame_size(&frame) != v->size) return STOP;
    PyObject *wire = framed(&frame);
    if (!wire) return ERROR;
    int done = known == ABSENT ? insert(r, wire, 0, &v->item) : overwrite(r, v, wire);
    return done == DONE && shown && known == ABSENT && r->cas ? number(r, v) : done;
}
#endif

static int answer_stored(Runner *r, int outcome) {
    switch (outcome) {
        case STORED: return ANSWER(r, "STORED\r\n");
        case NOT_STORED: return ANSWER(r, "NOT_STORED\r\n");
        case EXISTS: return ANSWER(r, "EXISTS\r\n");
        case NOT_FOUND: return ANSWER(r, "NOT_FOUND\r\n");
        default: return outcome;
    }
}

/* `<command> <key> <flags> <exptime> <bytes> [<unique>] [noreply]`. */
static int text_store(Runner *r, enum Mode mode, Word *words, int count, const char **after, const char *end) {
    int expected = mode == CAS ? 6 : 5, quiet = count == expected + 1 && IS(words[expected], "noreply");
    Word value;
    long long unique = 0, exptime;
    if ((count != expected && !quiet) || !is_flags(words[2])) return STOP;
    if ((exptime = read_number(words[3])) < 0 || exptime > INT_MAX) return STOP;
    if (mode == CAS && (quiet || (unique = read_number(words[5])) < 0)) return STOP;
    int done = read_value(r, words[4], after, end, &value);
    if (done != DONE) return done;
    int outcome = store(r, mode, words[1], words[2], value, (u64)unique, exptime);
    return outcome < DONE || quiet ? (outcome < DONE ? outcome : DONE) : answer_stored(r, outcome);
}

static int text_count(Runner *r, int down, Word *words, int count) {
    int quiet = count == 4 && IS(words[3], "noreply");
    long long delta = count == 3 || quiet ? read_number(words[2]) : -1;
    if (delta < 0) return STOP;
    View v;
    u64 number;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    if ((done = known == ABSENT ? count_miss(r, down) : count_in_place(r, &v, (u64)delta, down, &number)) != DONE) return done;
    if (quiet) return DONE;
    if (known == ABSENT) return ANSWER(r, "NOT_FOUND\r\n");
    append_number(r, number);
    return ANSWER(r, "\r\n");
}

static int text_touch(Runner *r, Word *words, int count) {
    int quiet = count == 4 && IS(words[3], "noreply");
    long long exptime = count == 3 || quiet ? read_number(words[2]) : -1;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    View v;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    if ((done = known == ABSENT ? touch_miss(r) : retime(r, &v, exptime)) != DONE || quiet) return done;
    return known == ABSENT ? ANSWER(r, "NOT_FOUND\r\n") : ANSWER(r, "TOUCHED\r\n");
}

static int text_gat(Runner *r, Word *words, int count) {
    long long exptime = count == 3 ? read_number(words[1]) : -1;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    View v;
    int known = look(r, words[2], &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) return (done = touch_miss(r)) == DONE ? ANSWER(r, "END\r\n") : done;
    if ((done = make_room(r, v.size)) != DONE) return done;
    if ((done = retime(r, &v, exptime)) == DONE) append(r, v.at, v.size);
    return done;
}

static int text_delete(Runner *r, Word *words, int count) {
    int quiet = count == 3 && IS(words[2], "noreply"), done;
    View v;
    if ((count != 2 && !quiet) || IS(words[1], "noreply")) return STOP;
    int known = look(r, words[1], &v);
    if (known < DONE) return known;
    if ((done = known == ABSENT ? delete_miss(r) : delete_item(r, &v)) != DONE || quiet) return done;
    return known == ABSENT ? ANSWER(r, "NOT_FOUND\r\n") : ANSWER(r, "DELETED\r\n");
}

/* Meta commands */

/* Appends the opaque and the key, as far as they are asked for, in order: see `_echo`. */
static void echo(Runner *r, Word *flags, int count, Word key) {
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag != 'O' && flag != 'k') continue;
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 'k') append(r, key.at, key.size);
    }
}

/* Checks the flags: each once, those in `letters` alone, those in `valued` with something after them. Returns
the set of the letters, as bits from '@' on; 0 for others, which the twin takes. */
static u64 read_flags(Word *flags, int count, const char *letters, const char *valued) {
    u64 seen = 1;
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag < '@' || flag > 'z') return 0;
        u64 bit = (u64)1 << (flag - '@');
        const char *among = flags[i].size == 1 ? letters : valued;
        if (seen & bit || !strchr(among, flag) || flags[i].size > 32) return 0;
        seen |= bit;
    }
    return seen;
}
#define HAS(seen, flag) ((seen) >> ((flag) - '@') & 1)

static int meta_get(Runner *r, Word *words, int count) {
    Word key = words[1], *flags = words + 2;
    View v;
    u64 seen = read_flags(flags, count -= 2, "vsftkqc", "O");
    if (!seen) return STOP;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) {
        if ((done = get_miss(r)) != DONE || HAS(seen, 'q')) return done;
        APPEND(r, "EN");
        echo(r, flags, count, key);
        return ANSWER(r, "\r\n");
    }
    if (HAS(seen, 'c') && !v.unique) return STOP;
    const char *value = value_at(&v);
    Word client_flags = flags_of(&v, key.size);
    Py_ssize_t size = value_size(&v);
    if (v.expires && HAS(seen, 't') && now(r) < 0) return ERROR;
    if (v.expires && HAS(seen, 't') && v.expires <= r->now) return STOP;  /* it has just expired */
    if ((done = make_room(r, size + 1024)) != DONE || (done = use_read(r, &v)) != DONE) return done;
    COUNT(r, hits);
    if (HAS(seen, 'v')) {
        APPEND(r, "VA ");
        append_number(r, (u64)size);
    } else APPEND(r, "HD");
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag == 'v' || flag == 'q') continue;
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 's') append_number(r, (u64)size);
        else if (flag == 'f') append(r, client_flags.at, client_flags.size);
        else if (flag == 'c') append_number(r, v.unique);
        else if (flag == 'k') append(r, key.at, key.size);
        else if (flag == 't' && !v.expires) APPEND(r, "-1");
        else if (flag == 't') {
            u64 left = (u64)(v.expires - r->now);  /* it has not expired */
            append_number(r, left + (v.expires - r->now > (double)left));
        }
    }
    APPEND(r, "\r\n");
    if (HAS(seen, 'v')) append(r, value, size + 2);
    return DONE;
}

static int meta_set(Runner *r, Word *words, int count, const char **after, const char *end) {
    Word *flags = words + 3, client_flags = {"0", 1}, value;
    u64 seen = count > 2 ? read_flags(flags, count -= 3, "qk", "OFT") : 0;
    if (!seen) return STOP;
    for (int i = 0; i < count; i++) {
        Word rest = {flags[i].at + 1, flags[i].size - 1};
        if (*flags[i].at == 'F') {
            if (!is_flags(rest)) return STOP;
            client_flags = rest;
        } else if (*flags[i].at == 'T' && !IS(rest, "0")) return STOP;
    }
    int done = read_value(r, words[2], after, end, &value);
    if (done == DONE) done = store(r, count ? SET_USED : SET, words[1], client_flags, value, 0, 0);
    if (done != DONE || HAS(seen, 'q')) return done;
    APPEND(r, "HD");
    echo(r, flags, count, words[1]);
    return ANSWER(r, "\r\n");
}

static int meta_delete(Runner *r, Word *words, int count) {
    View v;
    u64 seen = read_flags(words + 2, count - 2, "qk", "O");
    if (!seen) return STOP;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    if ((done = known == ABSENT ? delete_miss(r) : delete_item(r, &v)) != DONE) return done;
    if (known == DONE && HAS(seen, 'q')) return DONE;
    if (known == DONE) APPEND(r, "HD");
    else APPEND(r, "NF");
    echo(r, words + 2, count - 2, words[1]);
    return ANSWER(r, "\r\n");
}

static int meta_count(Runner *r, Word *words, int count) {
    Word key = words[1], *flags = words + 2;
    /* Others are none for which the twin has a shortcut, and which note fewer uses where items are shared. */
    int usual = count == 2 || (count == 3 && IS(words[2], "v"));
    u64 seen = read_flags(flags, count -= 2, "vqk", "ODM"), number;
    long long delta = 1;
    int down = 0;
    if (!seen) return STOP;
    for (int i = 0; i < count; i++) {
        Word rest = {flags[i].at + 1, flags[i].size - 1};
        if (*flags[i].at == 'D' && (delta = read_number(rest)) < 0) return STOP;
        if (*flags[i].at != 'M') continue;
        if (rest.size != 1 || !strchr("I+D-", *rest.at)) return STOP;
        down = *rest.at == 'D' || *rest.at == '-';
    }
    View v;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) done = count_miss(r, down);
    else done = usual ? count_in_place(r, &v, (u64)delta, down, &number) : count_in_general(r, &v, (u64)delta, down, &number);
    if (done != DONE) return done;
    if (known == ABSENT) APPEND(r, "NF");
    else if (HAS(seen, 'q')) return DONE;
    else if (HAS(seen, 'v')) {
        char digits[20];
        int length = write_digits(digits, number);
        APPEND(r, "VA ");
        append_number(r, (u64)length);
        echo(r, flags, count, key);
        APPEND(r, "\r\n");
        append(r, digits, length);
        return ANSWER(r, "\r\n");
    } else APPEND(r, "HD");
    echo(r, flags, count, key);
    return ANSWER(r, "\r\n");
}

#define COMMAND(first, second) ((first) << 8 | (second))

/* Carries out the command at `start`; `after` is where the next one begins then. */
static int text_command(Runner *r, const char *start, const char *end, const char **after) {
    if (end - start > 6 && !memcmp(start, "get", 3)) {
        if (start[3] == ' ') return text_get(r, start, start + 4, end, 0, after);
        if (start[3] == 's' && start[4] == ' ' && r->cas) return text_get(r, start, start + 5, end, 1, after);
    }
    Word words[MOST_WORDS];
    int count = read_words(start, end, words, MOST_WORDS, after);
    if (count < 1 || words[0].size < 2) return STOP;
    if (count == 1) return IS(words[0], "mn") ? ANSWER(r, "MN\r\n") : STOP;
    Word first = words[0];
    switch (COMMAND(first.at[0], first.at[1])) {
        case COMMAND('m', 'g'): return first.size == 2 ? meta_get(r, words, count) : STOP;
        case COMMAND('m', 's'): return first.size == 2 ? meta_set(r, words, count, after, end) : STOP;
        case COMMAND('m', 'd'): return first.size == 2 ? meta_delete(r, words, count) : STOP;
        case COMMAND('m', 'a'): return first.size == 2 ? meta_count(r, words, count) : STOP;
        case COMMAND('s', 'e'): return IS(first, "set") ? text_store(r, SET, words, count, after, end) : STOP;
        case COMMAND('a', 'd'): return IS(first, "add") ? text_store(r, ADD, words, count, after, end) : STOP;
        case COMMAND('r', 'e'): return IS(first, "replace") ? text_store(r, REPLACE, words, count, after, end) : STOP;
        case COMMAND('a', 'p'): return IS(first, "append") ? text_store(r, APPEND_TO, words, count, after, end) : STOP;
        case COMMAND('p', 'r'): return IS(first, "prepend") ? text_store(r, PREPEND_TO, words, count, after, end) : STOP;
        case COMMAND('c', 'a'): return IS(first, "cas") ? text_store(r, CAS, words, count, after, end) : STOP;
        case COMMAND('i', 'n'): return IS(first, "incr") ? text_count(r, 0, words, count) : STOP;
        case COMMAND('d', 'e'):
            return IS(first, "decr") ? text_count(r, 1, words, count) : IS(first, "delete") ? text_delete(r, words, count) : STOP;
        case COMMAND('t', 'o'): return IS(first, "touch") ? text_touch(r, words, count) : STOP;
        case COMMAND('g', 'a'): return IS(first, "gat") ? text_gat(r, words, count) : STOP;
        default: return STOP;
    }
}

/* Commands of the binary protocol */

enum {
    OP_GET, OP_SET, OP_DELETE = 4, OP_INCR, OP_DECR, OP_GETQ = 9, OP_NOOP, OP_GETK = 12, OP_GETKQ, OP_APPEND, OP_PREPEND,
    OP_SETQ = 17, OP_DELETEQ = 20, OP_INCRQ, OP_DECRQ, OP_APPENDQ = 25, OP_PREPENDQ, OP_TOUCH = 28
};

typedef struct {
    int opcode;
    u64 cas;
    Word opaque, extras, key, value;
} Packet;

static u64 read_big(const char *at, int size) {
    u64 number = 0;
    for (int i = 0; i < size; i++) number = number << 8 | (unsigned char)at[i];
    return number;
}

static char *write_big(char *to, u64 number, int size) {
    for (int i = size; i--; number >>= 8) to[i] = (char)number;
    return to + size;
}

static void append_header(Runner *r, const Packet *p, int key, int extras, int status, u64 body, u64 unique) {
    char *to = r->reply + r->reply_size;
    *to++ = (char)0x81;
    *to++ = (char)p->opcode;
    to = write_big(to, (u64)key, 2);
    *to++ = (char)extras;
    *to++ = 0;
    to = write_big(to, (u64)status, 2);
    to = write_big(to, body, 4);
    memcpy(to, p->opaque.at, 4);
    write_big(to + 4, unique, 8);
    r->reply_size += HEADER;
}

static void append_big(Runner *r, u64 number, int size) {
    write_big(r->reply + r->reply_size, number, size);
    r->reply_size += size;
}

static int binary_miss(Runner *r, const Packet *p, int with_key) {
    if (with_key) {
        append_header(r, p, (int)p->key.size, 0, 1, (u64)p->key.size, 0);
        append(r, p->key.at, p->key.size);
    } else {
        append_header(r, p, 0, 0, 1, 9, 0);
        APPEND(r, "Not found");
    }
    return DONE;
}

static int binary_get(Runner *r, const Packet *p, View *v, int known) {
    int with_key = p->opcode == OP_GETK || p->opcode == OP_GETKQ, quiet = p->opcode == OP_GETQ || p->opcode == OP_GETKQ;
    int done;
    if (p->extras.size || p->value.size) return STOP;
    if (known == ABSENT) return (done = get_miss(r)) != DONE || quiet ? done : binary_miss(r, p, with_key);
    Word value = {value_at(v), value_size(v)};
    if ((done = make_room(r, value.size + 1024)) != DONE || (r->cas && !v->unique)) return done < DONE ? done : STOP;
    Py_ssize_t key = with_key ? p->key.size : 0;
    append_header(r, p, (int)key, 4, 0, (u64)(4 + key + value.size), v->unique);
    append_big(r, (u64)read_number(flags_of(v, p->key.size)), 4);
    append(r, p->key.at, key);
    append(r, value.at, value.size);
    COUNT(r, hits);
    return use_read(r, v);
}

static int binary_set(Runner *r, const Packet *p, View *v, int known) {
    if (p->cas || p->extras.size != 8 || p->value.size > r->safe_size) return STOP;
    char digits[20];
    Word flags = {digits, write_digits(digits, read_big(p->extras.at, 4))};
    int shown = p->opcode == OP_SET;
    int done = store_for_unique(r, v, known, frame_of(p->key, flags, p->value, (Word){"", 0}), (long long)read_big(p->extras.at + 4, 4), shown);
    if (done == DONE && shown) append_header(r, p, 0, 0, 0, 0, v->unique);
    return done;
}

static int binary_join(Runner *r, const Packet *p, View *v, int known, int before) {
    if (p->cas || p->extras.size || known == ABSENT || (r->cas && !v->unique)) return STOP;
    int done = join(r, v, p->key, p->value, before);
    if (done == DONE && (p->opcode == OP_APPEND || p->opcode == OP_PREPEND)) append_header(r, p, 0, 0, 0, 0, v->unique);
    return done;
}

static int binary_count(Runner *r, const Packet *p, View *v, int known, int down) {
    if (p->cas || p->value.size || p->extras.size != 20 || known == ABSENT || (r->cas && !v->unique)) return STOP;
    u64 number;
    int done = count_in_place(r, v, read_big(p->extras.at, 8), down, &number);
    if (done == DONE && (p->opcode == OP_INCR || p->opcode == OP_DECR)) {
        append_header(r, p, 0, 0, 0, 8, v->unique);
        append_big(r, number, 8);
    }
    return done;
}

static int binary_delete(Runner *r, const Packet *p, const View *v, int known) {
    if (p->cas || p->extras.size || p->value.size) return STOP;
    int done = known == ABSENT ? delete_miss(r) : delete_item(r, v);
    if (done != DONE) return done;
    if (known == ABSENT) return binary_miss(r, p, 0);
    if (p->opcode == OP_DELETE) append_header(r, p, 0, 0, 0, 0, 0);
    return DONE;
}

static int binary_touch(Runner *r, const Packet *p, View *v, int known) {
    if (p->extras.size != 4 || p->value.size || known == ABSENT || (r->cas && !v->unique)) return STOP;
    long long exptime = (long long)read_big(p->extras.at, 4);
#ifndef RECORDS
    if ((exptime != 0) != (v->expires != 0)) return STOP;
#endif
    int done = retime(r, v, exptime);
    if (done != DONE) return done;
    append_header(r, p, 0, 4, 0, 4, v->unique);
    append_big(r, (u64)read_number(flags_of(v, p->key.size)), 4);
    return DONE;
}

/* Takes a packet apart; STOP if it is not complete, has no key or a long one, or is none. */
static int read_packet(const char *start, const char *end, Packet *p, const char **after) {
    if (end - start < HEADER || (unsigned char)*start != 0x80) return STOP;
    Py_ssize_t key = (Py_ssize_t)read_big(start + 2, 2), extras = (unsigned char)start[4], body = (Py_ssize_t)read_big(start + 8, 4);
    p->opcode = (unsigned char)start[1];
    p->opaque = (Word){start + 12, 4};
    p->cas = read_big(start + 16, 8);
    start += HEADER;
    if (body > end - start || key + extras > body || key > LONGEST_KEY || (!key && (p->opcode != OP_NOOP || body))) return STOP;
    p->extras = (Word){start, extras};
    p->key = (Word){start + extras, key};
    p->value = (Word){start + extras + key, body - extras - key};
    *after = start + body;
    return DONE;
}

static int binary_command(Runner *r, const Packet *p) {
    if (p->opcode == OP_NOOP) return p->key.size ? STOP : (append_header(r, p, 0, 0, 0, 0, 0), DONE);
    for (Py_ssize_t i = 0; i < p->key.size; i++) if ((unsigned char)p->key.at[i] <= ' ') return STOP;
    View v = {0};
    int known = look(r, p->key, &v);
    if (known < DONE) return known;
    switch (p->opcode) {
        case OP_GET: case OP_GETQ: case OP_GETK: case OP_GETKQ: return binary_get(r, p, &v, known);
        case OP_SET: case OP_SETQ: return binary_set(r, p, &v, known);
        case OP_APPEND: case OP_APPENDQ: return binary_join(r, p, &v, known, 0);
        case OP_PREPEND: case OP_PREPENDQ: return binary_join(r, p, &v, known, 1);
        case OP_INCR: case OP_INCRQ: return binary_count(r, p, &v, known, 0);
        case OP_DECR: case OP_DECRQ: return binary_count(r, p, &v, known, 1);
        case OP_DELETE: case OP_DELETEQ: return binary_delete(r, p, &v, known);
        case OP_TOUCH: return binary_touch(r, p, &v, known);
        default: return STOP;
    }
}

/* Runs */

/* Takes over the replies of the twin, in order. What is large is not copied. */
static int take_replies(Runner *r) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->replies); i++) {
        PyObject *part = PyList_GET_ITEM(r->replies, i);
        int small = PyBytes_CheckExact(part) && PyBytes_GET_SIZE(part) <= MOST_REPLIES / 8;
        int done = small ? make_room(r, PyBytes_GET_SIZE(part)) : STOP;
        if (done == DONE) append(r, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
        else if (done < 0 || flush_replies(r) < 0 || PyList_Append(r->out, part)) return ERROR;
    }
    return PyList_SetSlice(r->replies, 0, PY_SSIZE_T_MAX, NULL) ? ERROR : DONE;
}

/* Has the twin carry out the command at r->position; STOP if it does not either. */
static int ask(Runner *r, PyObject *twin, PyObject *data, Py_ssize_t *next) {
    PyObject *position = settle(r) < 0 ? NULL : PyObject_CallFunction(twin, "On", data, r->position);
    if (!position) return ERROR;
    *next = PyLong_AsSsize_t(position);
    Py_DECREF(position);
    if (*next < 0 || take_replies(r) < 0) return ERROR;
    return *next > 0 ? follow(r) < 0 ? ERROR : DONE : STOP;
}

static PyObject *run(Runner *r, PyObject *const *args, Py_ssize_t count, int binary) {
    if (count < 2 || count > 3 || !PyBytes_CheckExact(args[0]) || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "bytes and a list are needed");
    PyObject *data = args[0], *reply = NULL;
    if (r->busy || !r->fast_read) return PyErr_Format(PyExc_RuntimeError, "a run is in progress, or nothing can be run");
    Py_ssize_t begin = count > 2 ? PyLong_AsSsize_t(args[2]) : 0;
    if (begin < 0 || begin > PyBytes_GET_SIZE(data))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the position is not in the bytes");
    r->position = begin;
    r->served = 0;
    if (!PyObject_IsTrue(PyList_GET_ITEM(r->fast_read, 0))) Py_RETURN_NONE;  /* commands are observed */
    long long until = number_of(get(r->counters, &r->until));
    if (until <= 1) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);  /* this read is sampled */
    int done = follow(r);
    if (done != DONE) return done < 0 ? NULL : Py_NewRef(Py_None);
    const char *start = PyBytes_AS_STRING(data), *after = start, *end = start + PyBytes_GET_SIZE(data);
    r->busy = 1;
    r->out = args[1];
    r->reply_size = 0;
#ifndef RECORDS
    r->looks = (char)has_many(r);
    r->looked = start;
#endif
    while (start + r->position < end && r->served < r->at_most) {
        Packet packet;
        if (r->reply_size > MOST_REPLIES / 2 && (done = flush_replies(r)) != DONE) break;
        Py_ssize_t before = r->reply_size;
        done = can_run(r) ? make_room(r, 2048) : STOP;
#ifndef RECORDS
        /* Not after an error, which would be cleared, nor again where few keys were found. */
        if (r->looks && done == DONE && r->ahead_next == r->ahead_count && start + r->position >= r->looked
            && (r->served || may_be_several(start + r->position, end, binary)))
            look_ahead(r, start + r->position, end, binary, 0);
#endif
        if (binary) {
            int whole = read_packet(start + r->position, end, &packet, &after);
            if (!whole) break;
            if (done == DONE) done = binary_command(r, &packet);
        } else if (done == DONE) done = text_command(r, start + r->position, end, &after);
        Py_ssize_t next = after - start;
        if (done == STOP) r->reply_size = before;
        if (done == STOP) done = ask(r, binary ? r->binary_twin : r->text_twin, data, &next);
        if (done != DONE) break;
        r->position = next;
        r->served++;
        if (r->whole) break;
    }
    Py_CLEAR(r->line);
#ifndef RECORDS
    forget_ahead(r);
#endif
    r->busy = 0;
    if (!begin && r->position) count_of(r, N_bytes_read, r->position);
    if (done >= 0) {
        int all = start + r->position == end;
        if (all) done = put_new(r->counters, &r->until, PyLong_FromLongLong(until - 1));
        if (r->whole) reply = r->whole;
        else if (all && !PyList_GET_SIZE(r->out)) reply = PyBytes_FromStringAndSize(r->reply, r->reply_size);
        else if (flush_replies(r) == DONE) reply = Py_NewRef(Py_None);
        r->whole = NULL;
        if (reply && reply != Py_None) count_of(r, N_bytes_written, PyBytes_GET_SIZE(reply));
        if (done < 0) Py_CLEAR(reply);
    }
    Py_CLEAR(r->whole);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (settle(r) < 0 || add_counts(r) < 0) Py_CLEAR(reply);
    /* What a twin that failed has answered must not go to the next client. */
    if (PyList_GET_SIZE(r->replies) && PyList_SetSlice(r->replies, 0, PY_SSIZE_T_MAX, NULL)) Py_CLEAR(reply);
    if (type) PyErr_Restore(type, value, trace);
    r->out = NULL;
    return reply;
}

static PyObject *Runner_text(Runner *r, PyObject *const *args, Py_ssize_t count) { return run(r, args, count, 0); }
static PyObject *Runner_binary(Runner *r, PyObject *const *args, Py_ssize_t count) { return run(r, args, count, 1); }

#ifdef RECORDS
#include "records/init.h"
#else
#define MODULE "memlite.server.execution._native"

static int Runner_init(Runner *r, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "item", "full_item", "table", "policy", "shared", "text_twin", "binary_twin", "replies",
                            "at_most", "counts", "epoch", NULL};
    PyObject *engine, *item, *full, *table_type, *policy_type, *shared, *text, *binary, *replies, *counts;
    if (r->engine) return PyErr_Format(PyExc_TypeError, "a runner is made once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!O!O!OOOO!nO!L:Runner", names, &engine, &PyType_Type, &item, &PyType_Type, &full,
                                     &PyType_Type, &table_type, &PyType_Type, &policy_type, &shared, &text, &binary,
                                     &PyList_Type, &replies, &r->at_most, &PyType_Type, &counts, &r->epoch)) return -1;
    r->table_type = Py_NewRef(table_type);
    r->policy_type = Py_NewRef(policy_type);
    r->shared = Py_NewRef(shared);
    r->item_type = Py_NewRef(item);
    r->full_type = Py_NewRef(full);
    r->text_twin = Py_NewRef(text);
    r->binary_twin = Py_NewRef(binary);
    r->replies = Py_NewRef(replies);
    r->engine = Py_NewRef(engine);
    PyObject *usage = r->usage = PyObject_GetAttrString(engine, "usage"), *policy = NULL, *queue = NULL, *ghost = NULL, *cas, *safe;
    r->table = PyObject_GetAttrString(engine, "items");
    r->counters = PyObject_GetAttrString(engine, "counters");
    r->clock = PyObject_GetAttrString(engine, "clock");
    r->count_evictions = PyObject_GetAttrString(engine, "count_evictions");
    r->sizes = PyObject_GetAttrString(engine, "sizes");
    if (r->sizes && (r->chunk_sizes = PyObject_GetAttrString(r->sizes, "chunk_sizes"))) {
        r->beside = number_of(PyObject_GetAttrString(r->sizes, "_beside"));
        r->beside_flags = number_of(PyObject_GetAttrString(r->sizes, "_beside_flags"));
        if (!PyErr_Occurred() && !PyList_CheckExact(r->chunk_sizes)) PyErr_SetString(PyExc_TypeError, "the classes are another list");
    }
    if (PyErr_Occurred()) return -1;
    cas = PyObject_GetAttrString(engine, "cas_enabled");
    safe = PyObject_GetAttrString(engine, "safe_size");
    if (r->table) policy = PyObject_GetAttrString(r->table, "_policy");
    if (policy && (PyObject *)Py_TYPE(policy) == policy_type && (queue = PyObject_GetAttrString(policy, "_small")))
        ghost = PyObject_GetAttrString(policy, "ghost");
    r->zero = PyFloat_FromDouble(0);
    r->popleft = PyUnicode_InternFromString("popleft");
    if (cas) r->cas = (char)PyObject_IsTrue(cas);
    if (safe) r->safe_size = PyLong_AsSsize_t(safe);
    struct { PyObject **list; const char *name; } states[] = {
        {&r->read, "read"}, {&r->used, "used"}, {&r->fast_read, "fast_read"}, {&r->fast_store, "fast_store"},
        {&r->full_store, "full_store"}};
    for (size_t i = 0; usage && i < sizeof states / sizeof *states; i++) {
        PyObject *list = *states[i].list = PyObject_GetAttrString(usage, states[i].name);
        if (list && (!PyList_CheckExact(list) || PyList_GET_SIZE(list) != MASK + 1))
            PyErr_SetString(PyExc_TypeError, "states are lists by the bits of a state");
        if (PyErr_Occurred()) break;
    }
    if (!PyErr_Occurred()) {
        PyObject *tables = (PyObject *)Py_TYPE(r->table), *kind = (PyObject *)Py_TYPE(policy), *count = (PyObject *)Py_TYPE(r->counters);
        /* Those of another policy are not used. */
        PyObject *queues = queue ? (PyObject *)Py_TYPE(queue) : kind, *ghosts = ghost ? (PyObject *)Py_TYPE(ghost) : kind;
        struct { Field *field; PyObject *type; const char *name; } fields[] = {
            {&r->wire, item, "wire"}, {&r->state, item, "state"}, {&r->expires, full, "expires"}, {&r->extra, full, "extra"},
            {&r->until, count, "until_slow_sample"}, {&r->get_by_line, tables, "get_by_line"}, {&r->flushed, tables, "flushed"},
            {&r->version, (PyObject *)Py_TYPE(engine), "_version"}, {&r->fresh_now, (PyObject *)Py_TYPE(usage), "fresh"},
            {&r->garbage, tables, "_garbage"}, {&r->filling, kind, "_filling"}, {&r->left, kind, "_left"}, {&r->ghost, kind, "ghost"}, {&r->small_queue, kind, "_small"}, {&r->main_queue, kind, "_main"},
            {&r->ghost_table, ghosts, "_table"}, {&r->ghost_mask, ghosts, "_mask"}, {&r->ghost_depth, ghosts, "_depth"},
            {&r->ghost_next, ghosts, "_next"}, {&r->push, queues, "push"}, {&r->oldest, queues, "_passed"},
            {&r->older, queues, "_ahead"}, {&r->newest, queues, "_new"}, {&r->evicts, tables, "_evict"},
            {&r->on_evict, tables, "on_evict"}, {&r->observer, (PyObject *)Py_TYPE(engine), "observer"},
            {&r->second, (PyObject *)Py_TYPE(r->clock), "second"}, {&r->evictions, (PyObject *)Py_TYPE(r->sizes), "evictions"},
            {&r->evicted, counts, "evicted"}, {&r->evicted_time, counts, "evicted_time"},
            {&r->evicted_unfetched, counts, "evicted_unfetched"}};
        int done = DONE;
        for (size_t i = 0; done == DONE && i < sizeof fields / sizeof *fields; i++)
            done = find_field(fields[i].field, fields[i].type, fields[i].name) ? ERROR : DONE;
        for (int i = 0; done == DONE && i < COUNTED; i++) done = find_field(&r->counter[i], count, COUNTER_NAMES[i]) ? ERROR : DONE;
        for (int i = 0; done == DONE && i < NUMBERS; i++)
            done = find_field(&r->number[i], i < BELONG_TO_TABLE ? tables : kind, NUMBER_NAMES[i]) ? ERROR : DONE;
    }
    Py_XDECREF(policy);
    Py_XDECREF(queue);
    Py_XDECREF(ghost);
    Py_XDECREF(cas);
    Py_XDECREF(safe);
    return PyErr_Occurred() ? -1 : 0;
}

#define REFERENCES(X) X(engine) X(table) X(counters) X(clock) X(usage) X(item_type) X(full_type) X(table_type) X(policy_type) X(shared) X(read) X(used) X(fast_read) \
    X(fast_store) X(full_store) X(text_twin) X(binary_twin) X(replies) X(find) X(dicts) X(policy) X(line) X(whole) X(fresh[0]) X(fresh[1]) X(fresh[2]) \
    X(fresh[3]) X(zero) X(popleft) X(sizes) X(count_evictions) X(chunk_sizes)
#define FIELDS(r) &(r)->wire, &(r)->state, &(r)->expires, &(r)->extra, &(r)->until, &(r)->get_by_line, &(r)->flushed, \
    &(r)->version, &(r)->fresh_now, &(r)->garbage, &(r)->filling, &(r)->left, &(r)->ghost, &(r)->ghost_table, \
    &(r)->ghost_mask, &(r)->ghost_depth, &(r)->ghost_next, &(r)->small_queue, &(r)->main_queue, &(r)->push, &(r)->oldest, \
    &(r)->older, &(r)->newest, &(r)->evicts, &(r)->on_evict, &(r)->observer, &(r)->second, &(r)->evictions, &(r)->evicted, \
    &(r)->evicted_time, &(r)->evicted_unfetched
#endif

#define VISIT(name) Py_VISIT(r->name);
#define CLEAR(name) Py_CLEAR(r->name);

static int Runner_traverse(Runner *r, visitproc visit, void *arg) {
    REFERENCES(VISIT)
    return 0;
}

static int Runner_clear(Runner *r) {
    REFERENCES(CLEAR)
    return 0;
}

static void Runner_dealloc(Runner *r) {
    PyObject_GC_UnTrack(r);
    Runner_clear(r);
    Field *fields[] = {FIELDS(r)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) Py_CLEAR(fields[i]->name);
    for (int i = 0; i < COUNTED; i++) Py_CLEAR(r->counter[i].name);
    PyMem_Free(r->reply);
#ifdef RECORDS
    PyMem_Free(r->copy);
#else
    for (int i = 0; i < NUMBERS; i++) Py_CLEAR(r->number[i].name);
    PyMem_Free(r->gone);
#endif
    Py_TYPE(r)->tp_free(r);
}

static PyMethodDef Runner_methods[] = {
    {"text", (PyCFunction)(void (*)(void))Runner_text, METH_FASTCALL, "Carry out commands of the text protocol."},
    {"binary", (PyCFunction)(void (*)(void))Runner_binary, METH_FASTCALL, "Carry out commands of the binary protocol."},
    {NULL},
};
static PyMemberDef Runner_members[] = {
    {"position", T_PYSSIZET, offsetof(Runner, position), READONLY, "where the last run ended"},
    {"served", T_PYSSIZET, offsetof(Runner, served), READONLY, "the commands that it carried out"},
    {NULL},
};
static PyTypeObject RunnerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = MODULE ".Runner", .tp_basicsize = sizeof(Runner),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = PyType_GenericNew, .tp_init = (initproc)Runner_init,
    .tp_dealloc = (destructor)Runner_dealloc, .tp_traverse = (traverseproc)Runner_traverse, .tp_clear = (inquiry)Runner_clear,
    .tp_methods = Runner_methods, .tp_members = Runner_members, .tp_doc = "Carries out runs of commands; see runner.py.",
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Runs of commands in C.", -1, NULL};
PyMODINIT_FUNC PyInit__native(void) {
#ifndef RECORDS
    if (dicts_known < 0 && (dicts_known = knows_dicts()) < 0) return NULL;
#endif
    if (PyType_Ready(&RunnerType)) return NULL;
    PyObject *m = PyModule_Create(&module), *names = m ? Py_BuildValue("[ss]", "VERSION", "Runner") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Runner", (PyObject *)&RunnerType)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
