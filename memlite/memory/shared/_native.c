/* The shared table in C: the counterpart of python_table.py, over the layout in layout.py.

Readers take no lock. Once a slot points to a record, only its expiry changes, and its memory is reused only
when its segment is, which changes the segment's `gen`. A reader loads the slot, then `gen`, then the slot
again (so that `gen` is the generation the slot refers to), copies, and loads `gen` once more. It never writes
to a record, which may have been replaced by then: uses are noted beside the slot.

Writers append to a segment of their own and then change one slot, a single store of 8 bytes, holding the
robust mutex of its region. A writer that is killed leaves either the old item or the new one. Mutexes are
taken in this order: first the log's, then those of regions, one at a time. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "api.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  /* Linux 5.14 */
#endif

#define VERSION 3  /* of the layout */
#define REGIONS 256
#define EMPTY 0u
#define GONE 1u  /* a slot whose item was removed; probing goes on past it */
#define PLACE_BITS 50
#define PLACE ((UINT64_C(1) << PLACE_BITS) - 1)
#define FREQUENCY 3u
#define FETCHED 4u
#define STATE_BITS 5
#define NEVER UINT64_MAX
#define COUNTERS 16
#define LATEST 0x1p64  /* no expiry is later */
#define HEAD 300  /* more than comes before the value in a reply */
#define AHEAD 16  /* records */
#define MANY 4096  /* items, more than a core's own caches hold */
#define COUNTED 8  /* regions sampled to estimate the number of items */
#define PROBES 8  /* slots examined for a key of a later command */
#define EVICTED_AT_MOST 65536
#define MAPPED 65536u  /* bytes at once */
#define NEARLY_EMPTY 16  /* a segment is reused at once if items take at most 1/NEARLY_EMPTY of it */
#define STEP 512  /* bytes of its segment that a worker fills between two steps: see `ahead` */
#define STEP_RECORDS 256  /* examined per step */
#define STEPS_AT_MOST 16  /* at once, where a large item is stored */
#define KEEP_ALL 16  /* after this many victims for one segment, used items are no longer kept */
#define CLEAN_ALL 32  /* and after this many, no segment is cleaned */
#define NOBODY UINT32_MAX  /* owner of the segment that the main queue fills */

enum { FREE, OPEN, SEALED, EVICTING, PARKED };
enum { UNNAMED = 1, META = 2, LIVE = 16, KEEP = 32, USED = 64, DEAD = 128 };
/* Only in calls, beyond the eight bits of a record: refuse if the present item has expired; add this many uses; take
the expiry of the present item. */
enum { PLAIN = 256, USES = 512, EXPIRY = 2048 };
enum { MET_NONE, MET_EXPIRED, MET_EXPIRED_UNFETCHED, MET_FLUSHED };

typedef struct {
    union { pthread_mutex_t mutex; char room[64]; } lock;
    _Atomic uint64_t unique, items, bytes, busy;
    uint64_t spare[4];
} Region;

typedef struct {
    _Atomic uint64_t gen, order, epoch;
    _Atomic uint32_t state, owner, used, main;  /* whether it belongs to the main queue */
    _Atomic uint64_t latest;  /* the bits of the last expiry; NEVER: an item has none */
    uint64_t spare[2];
    _Atomic uint32_t dead[COUNTERS];  /* approximate bytes of dead records, as counted by workers */
} Segment;

typedef struct {
    uint32_t length, hash;
    uint64_t unique;
    _Atomic uint64_t expires;  /* the bits of a double */
    uint32_t stored;
    uint16_t extra;
    uint8_t key;
    _Atomic uint8_t kind;
} Record;

typedef struct {
    char magic[8];
    uint32_t version, regions;
    uint64_t size;
    uint32_t slots, segments, segment_size, spare;
    uint64_t regions_at, slots_at, states_at, ghosts_at, headers_at, segments_at;
    char more[40];
    _Atomic uint64_t epoch, flush_at;  /* at 128 */
    _Atomic uint64_t order;
    char kept[40];
    _Atomic uint64_t parked, to_park;  /* at 192 */
    uint64_t limit;
    /* The segment being evicted step by step, plus one (0: none); the offset reached; how many bytes of items may
    still be kept because they were used; whether all are kept; whether a change of segments is under way. */
    _Atomic uint32_t victim, reached, keep, clean, changing;
} Header;

_Static_assert(sizeof(pthread_mutex_t) <= 64, "the layout has 64 bytes for a mutex");
_Static_assert(sizeof(Region) == 128 && sizeof(Segment) == 128 && sizeof(Record) == 32, "layout.py");

typedef struct {
    PyObject_HEAD
    Py_buffer buffer;
    char *base;
    Header *header;
    Region *regions, *log;
    _Atomic uint64_t *slots;
    _Atomic uint32_t *states;
    _Atomic uint16_t *ghosts;
    Segment *headers, *mine, *filled;  /* `filled`: where `main_with` last found room */
    Segment *next;                 /* becomes `mine` when that is full; NULL: none yet */
    uint32_t soft;                 /* fill level of `mine` at which to prepare the next one */
    uint32_t tries;                /* victims chosen ahead since `mine` was opened */
    int crowded;                   /* whether a region was found with few slots left */
    uint32_t *mapped;              /* for each segment, how many bytes this process has mapped */
    int held;                      /* the region that the caller holds; -1 for none */
    uint64_t epoch;                /* flush epoch when the region was taken; later flushes take effect after its release */
    uint32_t worker, second;
    uint32_t unlikely;             /* how many calls of `nearly_empty` skip the search, after a long one failed */
    double offset;                 /* unix time minus the monotonic clock */
    /* Counted by this process: live items evicted, those never read; expired items, those never read; items kept. */
    unsigned long long evictions, evicted_unfetched, reclaimed, expired_unfetched, reinserted;
    int evicts;                    /* whether live items make room for others */
    int met;                       /* what the last `store` or `delete` found: layout.py */
    PyObject *evicted;             /* list of evicted items while they are watched, else NULL or None: layout.py */
} Table;

#define load(p) atomic_load_explicit(&(p), memory_order_acquire)
#define peek(p) atomic_load_explicit(&(p), memory_order_relaxed)
#define store(p, v) atomic_store_explicit(&(p), (v), memory_order_release)
#define note(p, v) atomic_store_explicit(&(p), (v), memory_order_relaxed)
#define add(p, v) note(p, peek(p) + (v))  /* under a lock */

typedef struct { _Atomic uint64_t *slot; _Atomic uint32_t *state; Record *record; } Found;

static inline uint64_t record_size(uint32_t length, uint32_t extra) {
    return ((uint64_t)sizeof(Record) + length + extra + 7) & ~UINT64_C(7);
}
static inline Record *record_at(Table *t, uint64_t word) { return (Record *)(t->base + (word & PLACE) * 8); }
static inline Segment *segment_of(Table *t, uint64_t word) {
    return t->headers + ((word & PLACE) * 8 - t->header->segments_at) / t->header->segment_size;
}
static inline char *segment_base(Table *t, Segment *s) {
    return t->base + t->header->segments_at + (uint64_t)(s - t->headers) * t->header->segment_size;
}
static inline uint64_t word_of(Table *t, Record *r, uint64_t tag) {
    return (uint64_t)((char *)r - t->base) / 8 | tag << PLACE_BITS;
}
static inline const char *key_of(Record *r) {
    return (char *)(r + 1) + (peek(r->kind) & UNNAMED ? r->length : 6);
}
static inline uint32_t first_slot(Table *t, uint32_t hash) {
    return (uint32_t)(((uint64_t)(uint32_t)(hash << 8) * t->header->slots) >> 32);
}
static double now(Table *t) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec + (double)s.tv_nsec * 1e-9 + t->offset;
}
static inline double as_double(uint64_t bits) { double d; memcpy(&d, &bits, 8); return d; }
static inline uint64_t as_bits(double d) { uint64_t bits; memcpy(&bits, &d, 8); return bits; }

static inline void count_dead(Table *t, Segment *s, uint64_t size) {
    atomic_fetch_add_explicit(&s->dead[t->worker % COUNTERS], (uint32_t)size, memory_order_relaxed);
}
static inline void note_latest(Segment *s, uint64_t expires) {
    if (!expires) expires = NEVER;
    if (expires > peek(s->latest)) note(s->latest, expires);
}
/* The number of the first slot for a hash, among all slots. */
static inline uint64_t first_of(Table *t, uint32_t hash) {
    return (uint64_t)(hash >> 24) * t->header->slots + first_slot(t, hash);
}
/* The place of a key's ghost, and the fingerprint that stands for the key there. */
static inline _Atomic uint16_t *ghost_of(Table *t, uint32_t hash, uint64_t tag, uint16_t *name) {
    *name = (uint16_t)(tag << 2 | (hash & 3)) | 1;
    return t->ghosts + first_of(t, hash);
}

static void name(Wanted *w, const char *key, uint32_t length, uint64_t hash) {
    *w = (Wanted){key, length, (uint32_t)hash, hash >> 50};
}
static int want(PyObject *line, Wanted *w) {
    if (!PyBytes_CheckExact(line)) { PyErr_SetString(PyExc_TypeError, "a line must be bytes"); return -1; }
    Py_ssize_t size = PyBytes_GET_SIZE(line);
    const char *text = PyBytes_AS_STRING(line);
    if (size < 7 || size > 256 || memcmp(text, "get ", 4) || text[size - 1] != '\n' || text[size - 2] != '\r') return 0;
    name(w, text + 4, (uint32_t)size - 6, (uint64_t)PyObject_Hash(line));
    return 1;
}
static inline int same(Record *r, const Wanted *w) {
    return r->hash == w->hash && r->key == w->length && !memcmp(key_of(r), w->key, w->length);
}

/* Locks */

static void recount(Table *t, Region *region);

static int take(Table *t, Region *region) {
    if (region - t->regions == t->held) return 0;
    int error = pthread_mutex_lock(&region->lock.mutex);
    if (error == EOWNERDEAD) {
        if (region != t->log) recount(t, region);
        error = pthread_mutex_consistent(&region->lock.mutex);
    }
    if (error) { errno = error; PyErr_SetFromErrno(PyExc_OSError); return -1; }
    return 0;
}
static void give(Table *t, Region *region) {
    if (region - t->regions != t->held) pthread_mutex_unlock(&region->lock.mutex);
}
static void recount(Table *t, Region *region) {
    uint64_t items = 0, bytes = 0;
    _Atomic uint64_t *slots = t->slots + (region - t->regions) * t->header->slots;
    for (uint32_t i = 0; i < t->header->slots; i++) {
        uint64_t word = peek(slots[i]);
        if (word == EMPTY || word == GONE) continue;
        Record *r = record_at(t, word);
        items++;
        bytes += record_size(r->length, r->extra);
    }
    note(region->items, items);
    note(region->bytes, bytes);
}

/* Flushing */

static inline int due(Table *t) {
    uint64_t at = peek(t->header->flush_at);
    return at && as_double(at) <= now(t);
}
/* Carries out a delayed flush that is due, once for all processes. */
static int settle_due(Table *t) {
    if (t->held >= 0) return 0;  /* `hold` has done so */
    if (take(t, t->log)) return -1;
    if (due(t)) {
        store(t->header->epoch, peek(t->header->epoch) + 1);
        store(t->header->flush_at, 0);
    }
    give(t, t->log);
    return 0;
}
static inline int settle(Table *t) { return due(t) ? settle_due(t) : 0; }

/* Slots, holding the region's mutex */

/* Finds the slot of a key or, with `place`, the one that points there; `free` is where to insert. */
static int look(Table *t, uint32_t hash, const Wanted *w, uint64_t place, Found *found, Found *free) {
    uint32_t slots = t->header->slots, at = first_slot(t, hash);
    uint64_t base = (uint64_t)(hash >> 24) * slots;
    if (free) free->slot = NULL;
    for (uint32_t n = 0; n < slots; n++, at = at + 1 == slots ? 0 : at + 1) {
        Found here = {t->slots + base + at, t->states + base + at, NULL};
        uint64_t word = peek(*here.slot);
        if (word == EMPTY || word == GONE) {
            if (free && !free->slot) *free = here;
            if (word == EMPTY) return 0;
        } else if (w ? word >> PLACE_BITS == w->tag && same(record_at(t, word), w) : (word & PLACE) == place) {
            here.record = record_at(t, word);
            *found = here;
            return 1;
        }
    }
    return 0;
}
/* Empties a slot, and the removed slots before it that only led to it. */
static void clear(Table *t, Region *region, Found *f) {
    uint32_t slots = t->header->slots;
    _Atomic uint64_t *first = t->slots + (region - t->regions) * slots;
    uint32_t at = (uint32_t)(f->slot - first);
    add(region->items, -1);
    add(region->bytes, -record_size(f->record->length, f->record->extra));
    count_dead(t, segment_of(t, peek(*f->slot)), record_size(f->record->length, f->record->extra));
    store(*f->slot, GONE);
    store(f->record->kind, peek(f->record->kind) | DEAD);  /* not earlier: eviction skips dead records */
    if (peek(first[at + 1 == slots ? 0 : at + 1]) != EMPTY) return;
    while (peek(first[at]) == GONE) {
        store(first[at], EMPTY);
        at = at ? at - 1 : slots - 1;
    }
}

static inline int current(Table *t, Segment *s) {
    return load(s->epoch) == (t->held >= 0 ? t->epoch : load(t->header->epoch));
}

/* Classifies the item found where another is to be stored or removed: MET_... */
static int meet(Table *t, Found *f) {
    double expires = as_double(peek(f->record->expires));
    if (!current(t, segment_of(t, peek(*f->slot)))) return MET_FLUSHED;
    if (!expires || expires > now(t)) return MET_NONE;
    return peek(*f->state) & FETCHED ? MET_EXPIRED : MET_EXPIRED_UNFETCHED;
}

/* Segments, holding the log's mutex */

static void begin(Table *t, Segment *s, uint32_t owner, uint32_t main) {
    note(s->order, peek(t->header->order) + 1);
    note(t->header->order, peek(s->order));
    note(s->epoch, load(t->header->epoch));
    note(s->owner, owner);
    note(s->used, 0);
    note(s->main, main);
    note(s->latest, 0);
    for (int i = 0; i < COUNTERS; i++) note(s->dead[i], 0);
    store(s->state, OPEN);
}
static Segment *next_in(Table *t, uint32_t state) {
    Segment *found = NULL;
    for (uint32_t i = 0; i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) == state && (!found || peek(s->order) < peek(found->order))) found = s;
    }
    return found;
}
static int free_segments(Table *t) {  /* 3 means 3 or more */
    int found = 0;
    for (uint32_t i = 0; i < t->header->segments && found < 3; i++) found += peek(t->headers[i].state) == FREE;
    return found;
}
static int fits(Table *t, Segment *s, uint32_t size) {
    return s && load(s->epoch) == load(t->header->epoch) && peek(s->used) + size <= t->header->segment_size;
}
/* Whether a segment is the one that the main queue fills, with room for `size` bytes. */
static int fills_main(Table *t, Segment *s, uint32_t size) {
    return peek(s->state) == OPEN && peek(s->owner) == NOBODY && fits(t, s, size);
}
/* The segment that the main queue fills, with room for `size` bytes; NULL: there is none. */
static Segment *main_with(Table *t, uint32_t size) {
    if (t->filled && fills_main(t, t->filled, size)) return t->filled;  /* as before: no need to look */
    for (uint32_t i = 0; i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) != OPEN || peek(s->owner) != NOBODY) continue;
        if (fits(t, s, size)) return t->filled = s;
        store(s->state, SEALED);
    }
    Segment *s = next_in(t, FREE);
    if (s) begin(t, s, NOBODY, 1);
    return t->filled = s;
}
/* Bytes of dead records in a segment, as far as known without reading them. */
static uint32_t gone(Table *t, Segment *s, double time) {
    uint32_t used = peek(s->used), dead = 0;
    uint64_t latest = peek(s->latest);
    if (load(s->epoch) != load(t->header->epoch) || (latest != NEVER && as_double(latest) <= time)) return used;
    for (int i = 0; i < COUNTERS; i++) dead += peek(s->dead[i]);
    return dead < used ? dead : used;
}
/* Chooses a segment to reuse. `clean`: its items are to be kept. Cleaning pays if a sixth of the segment is dead, or
if its items take no more than half of it: two such segments fit into one. Where nothing may be evicted, cleaning
pays if the items and `need` more bytes fit into one segment. If it does not pay, the policy is S3-FIFO by segments:
new items enter the small queue, a tenth of all; items used at least twice there move to the main queue, and the
others leave a fingerprint among the ghosts, so that they count as used twice when they return. */
static Segment *choose(Table *t, uint64_t need, int *clean) {
    Segment *oldest[2] = {NULL, NULL}, *emptiest = NULL;
    uint32_t least = UINT32_MAX, whole = t->header->segment_size;
    uint32_t small = 0, all = t->header->segments - (uint32_t)peek(t->header->parked);
    double time = now(t);
    for (uint32_t i = 0; i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        uint32_t state = peek(s->state), main = peek(s->main) != 0;
        if (state != FREE && state != PARKED) small += !main;
        if (state != SEALED) continue;
        if (!oldest[main] || peek(s->order) < peek(oldest[main]->order)) oldest[main] = s;
        uint32_t dead = gone(t, s, time), left = peek(s->used) - dead;
        int pays = t->evicts ? dead >= whole / 6 || left <= whole / 2 : left + need <= whole;
        if (pays && left < least) { least = left; emptiest = s; }
    }
    *clean = !t->evicts || emptiest;
    if (*clean) return emptiest;
    return oldest[0] && (small > all / 10 || !oldest[1]) ? oldest[0] : oldest[1];
}
/* The youngest segment with hardly any items, to be reused before one that has been idle for long: it is still in the
caches and page tables of a process that keeps overwriting the same items. */
static Segment *nearly_empty(Table *t) {
    if (t->unlikely) { t->unlikely--; return NULL; }
    Segment *found = NULL;
    double time = now(t);
    for (uint32_t i = 0; i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) != SEALED || (found && peek(s->order) < peek(found->order))) continue;
        if (peek(s->used) - gone(t, s, time) <= t->header->segment_size / NEARLY_EMPTY) found = s;
    }
    if (!found) t->unlikely = t->header->segments / 256;
    return found;
}
/* Notes that a segment is about to be freed; its items move into `into` or, if that is NULL, into the main queue.
If this process is killed meanwhile, the next holder of the log's mutex completes the eviction: see `finish`. */
static void mark_evicted(Table *t, Segment *victim, Segment *into) {
    store(t->header->changing, 1);
    store(victim->owner, into ? (uint32_t)(into - t->headers) : NOBODY);
    store(victim->state, EVICTING);
}
/* Reports an evicted item to watchers: EVICTED in layout.py. */
static void tell_evicted(Table *t, Record *r, uint32_t state) {
    if (!t->evicted || !PyList_CheckExact(t->evicted) || PyList_GET_SIZE(t->evicted) >= EVICTED_AT_MOST) return;
    uint64_t expires = peek(r->expires);
    uint32_t head = r->length < HEAD ? r->length : HEAD;
    PyObject *told = PyBytes_FromStringAndSize(NULL, 20 + r->key + (Py_ssize_t)head);
    char *p = told ? PyBytes_AS_STRING(told) : NULL;
    if (p) {
        memcpy(p, &expires, 8);
        memcpy(p + 8, &state, 4);
        memcpy(p + 12, &r->length, 4);
        memcpy(p + 16, &(uint32_t){r->key}, 4);
        memcpy(p + 20, key_of(r), r->key);
        memcpy(p + 20 + r->key, r + 1, head);
    }
    if (!p || PyList_Append(t->evicted, told)) PyErr_Clear();  /* out of memory: the eviction is not reported */
    Py_XDECREF(told);
}
/* Prefetches a record's slot, state and ghost, which are rarely cached if the table is large; returns its size. */
static uint32_t fetch_ahead(Table *t, Record *r) {
    uint64_t slot = first_of(t, r->hash);
    __builtin_prefetch(t->slots + slot, 1);
    __builtin_prefetch(t->states + slot, 1);
    __builtin_prefetch(t->ghosts + slot, 1);
    return (uint32_t)record_size(r->length, r->extra);
}
static void mark_as(Table *t, Segment *victim, uint32_t state) {
    store(victim->state, state);
    store(t->header->changing, 0);
}
/* Frees a segment. Items that have been used enough, or all live ones if `clean`, move into `into` or, if that is
NULL, into the main queue; `keep` limits the bytes of used items kept. Examines `most` records from `reached` on.
2: there are more; 1: done; 0: there was no room for items that had to be kept; -1: an error. */
static int evict_some(Table *t, Segment *victim, int clean, Segment *into, uint32_t *keep, uint32_t *reached, uint32_t most) {
    mark_evicted(t, victim, into);
    char *base = segment_base(t, victim);
    uint32_t used = load(victim->used), worth = peek(victim->main) ? 1 : 2;
    int live = load(victim->epoch) == load(t->header->epoch);
    double time = now(t);
    uint32_t at = *reached, ahead = at, lead = 0;
    for (; at < used && most; lead--, most--) {
        for (; lead < AHEAD && ahead < used; lead++) ahead += fetch_ahead(t, (Record *)(base + ahead));
        Record *r = (Record *)(base + at);
        uint32_t size = (uint32_t)record_size(r->length, r->extra);
        Region *region = t->regions + (r->hash >> 24);
        Found f;
        at += size;
        if (peek(r->kind) & DEAD) continue;
        if (take(t, region)) return -1;
        if (look(t, r->hash, NULL, (uint64_t)((char *)r - t->base) / 8, &f, NULL)) {
            uint32_t state = peek(*f.state), uses = state & FREQUENCY;
            double expires = as_double(peek(r->expires));
            int expired = expires && expires <= time;
            Segment *target = NULL;
            if (live && !expired && (clean || (uses >= worth && size <= *keep))) {
                target = into ? (fits(t, into, size) ? into : NULL) : main_with(t, size);
                if (!target && clean) {
                    give(t, region);
                    mark_as(t, victim, SEALED);
                    return 0;
                }
            }
            if (target) {
                Record *copy = (Record *)(segment_base(t, target) + peek(target->used));
                memcpy(copy, r, size);
                note_latest(target, peek(r->expires));
                store(*f.slot, word_of(t, copy, peek(*f.slot) >> PLACE_BITS));
                store(target->used, peek(target->used) + size);  /* see `count_last` */
                if (!clean) note(*f.state, worth == 1 ? state - 1 : state & ~FREQUENCY);
                store(r->kind, peek(r->kind) | DEAD);
                count_dead(t, victim, size);
                if (!clean) *keep -= size;
                t->reinserted++;
            } else {
                int unread = !(state & FETCHED);
                if (live && !expired && t->evicted) tell_evicted(t, r, state);
                if (live && !expired && worth == 2) {
                    uint16_t name;
                    _Atomic uint16_t *ghost = ghost_of(t, r->hash, peek(*f.slot) >> PLACE_BITS, &name);
                    note(*ghost, name);
                }
                clear(t, region, &f);
                if (live && expired) {
                    t->reclaimed++;
                    t->expired_unfetched += unread;
                } else if (live) {
                    t->evictions++;
                    t->evicted_unfetched += unread;
                }
            }
        }
        give(t, region);
    }
    if (at < used) {
        *reached = at;
        mark_as(t, victim, SEALED);
        return 2;
    }
    /* While still marked EVICTING: after a kill, no process may continue the steps in a segment that has been reused. */
    if (peek(t->header->victim) == victim - t->headers + 1) note(t->header->victim, 0);
    store(victim->gen, peek(victim->gen) + 1);
    atomic_thread_fence(memory_order_seq_cst);  /* readers see this before anything written there */
    store(victim->used, 0);
    mark_as(t, victim, FREE);
    return 1;
}
/* Evicts all records of a segment; returns as `evict_some` does. */
static int evict(Table *t, Segment *victim, int clean, Segment *into, uint32_t keep) {
    uint32_t reached = 0;
    if (peek(t->header->victim) == victim - t->headers + 1) note(t->header->victim, 0);
    return evict_some(t, victim, clean, into, &keep, &reached, UINT32_MAX);
}
/* Counts the last record of a segment if a process was killed after it had moved an item there, but before it counted
the record as used. In the reverse order, records that no slot points to would take up room. 0: done. */
static int count_last(Table *t, Segment *s) {
    uint64_t used = peek(s->used);
    Record *r = (Record *)(segment_base(t, s) + used);
    Found f;
    if (used + sizeof(Record) > t->header->segment_size) return 0;
    Region *region = t->regions + (r->hash >> 24);  /* it may be garbage: slots decide */
    if (take(t, region)) return -1;
    if (look(t, r->hash, NULL, (uint64_t)((char *)r - t->base) / 8, &f, NULL))
        store(s->used, (uint32_t)(used + record_size(r->length, r->extra)));
    give(t, region);
    return 0;
}
/* Completes an eviction that a killed process had begun, before anything else is done with segments. All items are
kept, as it may have been cleaning. They move into that process's own segment if it was already open; no other
process writes there, as its successor calls this first. */
static int finish(Table *t) {
    int done = 0;
    uint64_t parked = 0;
    if (!load(t->header->changing)) return 0;
    for (uint32_t i = 0; i < t->header->segments; i++) parked += peek(t->headers[i].state) == PARKED;
    note(t->header->parked, parked);
    for (uint32_t i = 0; done >= 0 && i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) != EVICTING) continue;
        Segment *into = peek(s->owner) == NOBODY ? NULL : t->headers + peek(s->owner);
        if (into && peek(into->state) != OPEN) { store(s->state, SEALED); continue; }  /* nothing has moved yet */
        for (uint32_t n = 0; done >= 0 && n < t->header->segments; n++) {
            Segment *o = t->headers + n;
            if (peek(o->state) == OPEN && (into ? o == into : peek(o->owner) == NOBODY)) done = count_last(t, o);
        }
        if (done >= 0) done = evict(t, s, 1, into, 0);
    }
    if (done < 0) return -1;
    store(t->header->changing, 0);
    return 0;
}
/* Takes the log's mutex, to change segments. */
static int take_segments(Table *t) {
    if (take(t, t->log)) return -1;
    if (!finish(t)) return 0;
    give(t, t->log);
    return -1;
}
/* Makes room where nothing may be evicted: moves the items of the emptiest segment into `mine`. */
static int compact(Table *t, uint64_t size) {
    for (int tries = 0; tries < 64; tries++) {
        int clean;
        Segment *own = t->mine, *s = next_in(t, FREE);
        if (own) store(own->state, SEALED);  /* it may be the victim */
        Segment *victim = s ? choose(t, size, &clean) : NULL;
        if (!victim) {
            if (own) store(own->state, OPEN);
            return 0;
        }
        t->mine = NULL;
        mark_evicted(t, victim, s);  /* first: from here on, no segment is free until the victim is */
        begin(t, s, t->worker, 0);
        if (evict(t, victim, 1, s, 0) < 0) return -1;
        t->mine = s;
        if (peek(s->used) + size <= t->header->segment_size) return 1;
    }
    return 0;
}
/* Continues the stepwise eviction of a segment, by `most` records; returns as `evict_some` does. */
static int step(Table *t, uint32_t most) {
    Header *h = t->header;
    Segment *victim = t->headers + peek(h->victim) - 1;
    uint32_t keep = peek(h->keep), reached = peek(h->reached);
    int done = 0;
    if (peek(victim->state) == SEALED) done = evict_some(t, victim, (int)peek(h->clean), NULL, &keep, &reached, most);
    if (done == 2) {
        note(h->keep, keep);
        note(h->reached, reached);
    } else if (done >= 0) note(h->victim, 0);
    return done;
}
static void begin_steps(Table *t, Segment *victim, int clean, uint32_t keep) {
    Header *h = t->header;
    note(h->clean, (uint32_t)clean);
    note(h->keep, keep);
    note(h->reached, 0);
    store(h->victim, (uint32_t)(victim - t->headers) + 1);
}
/* Frees a segment besides the one that is always free. 1: done; 0: not possible; -1: an error. */
static int free_two(Table *t) {
    int done = 0;
    for (uint32_t tries = 0; done >= 0 && tries <= 2 * CLEAN_ALL; tries++) {
        if (free_segments(t) >= 2) return 1;
        if (peek(t->header->victim)) { done = step(t, UINT32_MAX); continue; }
        int clean;
        Segment *victim = choose(t, 0, &clean);
        if (!victim) return 0;
        done = evict(t, victim, clean && tries < CLEAN_ALL, NULL, tries < KEEP_ALL ? UINT32_MAX : 0);
    }
    return done < 0 ? -1 : 0;
}
/* park() -> the number of a segment that is now empty, or -1: enough are parked already, or nothing can be evicted.
Its memory is given back before any process can reuse it. */
static PyObject *park(Table *t, PyObject *none) {
    long found = -1;
    if (peek(t->header->parked) >= peek(t->header->to_park)) return PyLong_FromLong(-1);
    if (take_segments(t)) return NULL;
    if (peek(t->header->parked) < peek(t->header->to_park)) {
        int done = t->evicts || free_segments(t) >= 2 ? free_two(t) : 0;
        if (done < 0) { give(t, t->log); return NULL; }
        Segment *s = done ? next_in(t, FREE) : NULL;
        if (s) {
            madvise(segment_base(t, s), t->header->segment_size, MADV_REMOVE);
            store(t->header->changing, 1);
            store(s->state, PARKED);
            store(t->header->parked, peek(t->header->parked) + 1);
            store(t->header->changing, 0);
            found = s - t->headers;
        }
    }
    give(t, t->log);
    return PyLong_FromLong(found);
}
/* unpark(number): a segment has memory again. */
static PyObject *unpark(Table *t, PyObject *number) {
    unsigned long i = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred() || take_segments(t)) return NULL;
    if (i < t->header->segments && peek(t->headers[i].state) == PARKED) {
        store(t->header->changing, 1);
        store(t->header->parked, peek(t->header->parked) - 1);
        store(t->headers[i].state, FREE);
        store(t->header->changing, 0);
    }
    give(t, t->log);
    Py_RETURN_NONE;
}

/* Maps the next pages of `mine` together, for less than half the cost of a fault for each. On systems that cannot do
this, they are faulted in one by one. `need`: how far it is about to be filled. */
static void map_pages(Table *t, uint64_t need) {
    uint32_t whole = t->header->segment_size, *mapped = t->mapped + (t->mine - t->headers);
    if (need > *mapped) {
        uint32_t end = ((uint32_t)need + MAPPED - 1) / MAPPED * MAPPED;
        if (end > whole) end = whole;
        madvise(segment_base(t, t->mine) + *mapped, end - *mapped, MADV_POPULATE_WRITE);
        *mapped = end;
    }
    if (t->soft > *mapped) t->soft = *mapped;
}
/* Makes `mine` a segment with room for `size` bytes. 1: there is; 0: there is not; -1: an error. */
static int open_segment(Table *t, uint64_t size) {
    if (size > t->header->segment_size) return 0;
    if (t->held >= 0) return 0;  /* see `reserve` */
    if (take_segments(t)) return -1;
    int done = 0;
    Segment *s = t->next;
    t->next = NULL;
    t->tries = 0;
    if (s && (peek(s->state) != OPEN || peek(s->owner) != t->worker || peek(s->used))) s = NULL;
    if (s) goto begins;
    if (free_segments(t) < 2) {  /* one is always free, to receive the items kept from another */
        if (!t->evicts) { done = compact(t, size); goto out; }
        if (t->mine) store(t->mine->state, SEALED);
        t->mine = NULL;
        done = free_two(t);
    } else if (t->evicts && (s = nearly_empty(t)) && (done = evict(t, s, 1, NULL, 0)) != 1) s = NULL;
    if (done < 0) goto out;
    done = 0;
    if (s || (s = next_in(t, FREE))) {
    begins:
        if (t->mine) store(t->mine->state, SEALED);
        begin(t, t->mine = s, t->worker, 0);
        done = 1;
    }
out:
    give(t, t->log);
    t->soft = 0;
    return done;
}
/* Does one step towards freeing the segment needed when `mine` is full: chooses a victim, or evicts some of its
records. No client then waits for the eviction of a whole segment, let alone of several cleaned to gain one. Steps
begin in the last quarter of `mine`, since items evicted early would be missed. 1: done; -1: an error. */
static int ahead(Table *t, uint64_t size) {
    Header *h = t->header;
    uint32_t whole = h->segment_size, first = whole - whole / 4, used = peek(t->mine->used) + (uint32_t)size;
    uint32_t steps = 1 + (uint32_t)size / STEP, pause = STEP;
    int crowded = t->crowded, done = 1, clean = 0;
    t->crowded = 0;
    if (crowded || (!t->next && used > first)) {
        if (take_segments(t)) return -1;
        if (peek(h->victim)) {
            done = step(t, (steps < STEPS_AT_MOST ? steps : STEPS_AT_MOST) * STEP_RECORDS);
            if (!done) t->tries = CLEAN_ALL;  /* there is no room for the items to keep */
        } else {
            int free = crowded ? 0 : free_segments(t);
            Segment *s = free > 2 ? NULL : free == 2 ? next_in(t, FREE) : crowded ? next_in(t, SEALED) : choose(t, 0, &clean);
            if (free == 2) {
                note(s->owner, t->worker);
                note(s->main, 1);  /* does not count towards the small queue until it is filled */
                store(s->state, OPEN);
                t->next = s;
            } else if (!s) {
                pause = whole / 32;
            } else if (crowded) {
                begin_steps(t, s, 0, whole / 2);
            } else {
                begin_steps(t, s, clean && t->tries < CLEAN_ALL, t->tries < KEEP_ALL ? UINT32_MAX : 0);
                t->tries++;
            }
        }
        give(t, t->log);
    }
    t->soft = t->next ? whole : used < first ? first : used + pause < whole ? used + pause : whole;
    return done < 0 ? -1 : 1;
}
static int make_room(Table *t, uint64_t size) {
    uint32_t whole = t->header->segment_size;
    int done = 1;
    if (!t->mine || !current(t, t->mine) || peek(t->mine->used) + size > whole) done = open_segment(t, size);
    else if (!t->evicts) t->soft = whole;
    else if (t->held < 0) done = ahead(t, size);
    if (done == 1) map_pages(t, peek(t->mine->used) + size);
    return done;
}
static inline int room(Table *t, uint64_t size) {
    if (t->mine && peek(t->mine->used) + size <= t->soft && current(t, t->mine)) return 1;
    return make_room(t, size);
}

/* Evicts a segment to free slots rather than bytes. */
static int shed(Table *t) {
    if (t->held >= 0 || !t->evicts) return 0;
    if (take_segments(t)) return -1;
    Segment *victim = next_in(t, SEALED);
    int done = victim ? evict(t, victim, 0, NULL, t->header->segment_size / 2) : 0;
    give(t, t->log);
    return done < 0 ? -1 : 0;
}

/* Methods */

/* A record as found by a reader, without a lock. */
typedef struct {
    Segment *segment;
    uint64_t gen;
    Record *record;
    uint64_t unique;
    double expires;
    uint32_t length;
    int kind;  /* -1: it has been flushed */
    _Atomic uint32_t *state;
} Sight;

/* Whether the record's memory has not been reused since it was found. */
static inline int unchanged(const Sight *f) {
    atomic_thread_fence(memory_order_acquire);
    return peek(f->segment->gen) == f->gen;
}
/* Finds a record, live or not; 0: there is none. */
static int seek(Table *t, const Wanted *w, Sight *f) {
    Header *h = t->header;
    uint32_t slots = h->slots;
    uint64_t base = (uint64_t)(w->hash >> 24) * slots;
    uint32_t at = first_slot(t, w->hash);
    for (uint32_t n = 0; n < slots; n++, at = at + 1 == slots ? 0 : at + 1) {
        _Atomic uint64_t *slot = t->slots + base + at;
    again:;
        uint64_t word = load(*slot);
        if (word == EMPTY) break;
        if (word == GONE || word >> PLACE_BITS != w->tag) continue;
        Segment *s = f->segment = segment_of(t, word);
        f->gen = load(s->gen);
        if (load(*slot) != word) goto again;
        /* Until `gen` is checked, these may be garbage: each is loaded once, and bounded before use. */
        Record *r = f->record = record_at(t, word);
        uint32_t length = f->length = *(volatile uint32_t *)&r->length;
        uint64_t left = (uint64_t)(segment_base(t, s) + h->segment_size - (char *)(r + 1));
        if (length > left) goto again;
        f->kind = peek(r->kind) & ~DEAD;
        const char *key = (char *)(r + 1) + (f->kind & UNNAMED ? length : 6);
        int hit = r->hash == w->hash && r->key == w->length && (uint64_t)(key - (char *)(r + 1)) + w->length <= left
                  && !memcmp(key, w->key, w->length);
        f->expires = as_double(peek(r->expires));
        f->unique = *(volatile uint64_t *)&r->unique;
        if (!current(t, s)) f->kind = -1;
        if (!unchanged(f)) goto again;
        if (!hit) continue;
        f->state = t->states + base + at;
        return 1;
    }
    return 0;
}
static inline int has_expired(Table *t, double expires) { return expires && expires <= now(t); }
static inline void note_use(Table *t, _Atomic uint32_t *state) {
    uint32_t old = peek(*state), bits = old & FREQUENCY;
    uint32_t new = t->second << STATE_BITS | FETCHED | (bits + (bits < 3));
    if (old != new) note(*state, new);
}

static PyObject *find(Table *t, PyObject *line) {
    Wanted w;
    Sight f;
    int wanted = want(line, &w);
    if (wanted <= 0) { if (wanted) return NULL; Py_RETURN_NONE; }
    if (settle(t)) return NULL;
    while (seek(t, &w, &f) && f.kind >= 0 && !has_expired(t, f.expires)) {
        PyObject *reply = NULL;
        if (!f.kind) {
            reply = PyBytes_FromStringAndSize(NULL, f.length);
            if (!reply) return NULL;
            memcpy(PyBytes_AS_STRING(reply), f.record + 1, f.length);
            if (!unchanged(&f)) { Py_DECREF(reply); continue; }
        }
        note_use(t, f.state);
        if (!reply) break;
        return reply;
    }
    Py_RETURN_NONE;
}

/* -> (reply, expires, unique, state, kind, extra) or None; counts as no use. */
static PyObject *get(Table *t, PyObject *line) {
    Wanted w;
    Found f;
    int wanted = want(line, &w);
    if (wanted < 0) return NULL;
    PyObject *result = NULL;
    if (settle(t)) return NULL;
    if (wanted) {
        Region *region = t->regions + (w.hash >> 24);
        if (take(t, region)) return NULL;
        if (look(t, w.hash, &w, 0, &f, NULL) && current(t, segment_of(t, peek(*f.slot)))) {
            Record *r = f.record;
            const char *reply = (char *)(r + 1);
            result = Py_BuildValue("y#dKIiy#", reply, (Py_ssize_t)r->length, as_double(peek(r->expires)),
                                   (unsigned long long)r->unique, (unsigned)peek(*f.state), peek(r->kind) & ~DEAD,
                                   reply + r->length, (Py_ssize_t)r->extra);
            give(t, region);
            return result;
        }
        give(t, region);
    }
    Py_RETURN_NONE;
}

enum { FULL = 100, CROWDED };  /* there is no slot; the region is about to run out of slots */

/* How many items a region has when `parts` of 64 slots are used. */
static inline uint64_t few_slots(Table *t, uint64_t parts) { return t->header->slots * parts / 64; }
/* Begins a record in this process's segment, which has room; no reader sees it yet. */
static Record *prepare(Table *t, const Wanted *w, uint32_t length, uint32_t extra, uint64_t expires, int kind) {
    Record *r = (Record *)(segment_base(t, t->mine) + peek(t->mine->used));
    r->length = length;
    r->hash = w->hash;
    note(r->expires, expires);
    r->stored = t->second;
    r->extra = (uint16_t)extra;
    r->key = (uint8_t)w->length;
    note(r->kind, (uint8_t)(kind & ~(USED | KEEP)));
    return r;
}
/* Makes a record the item of its key, if the present item has the unique `condition`; else `unique` is 0. With `sheds`,
only if the region has slots to spare. */
static int publish(Table *t, const Wanted *w, Record *r, uint64_t condition, int kind, int sheds, uint64_t *unique) {
    Region *region = t->regions + (w->hash >> 24);
    uint64_t size = record_size(r->length, r->extra);
    Found f, free;
    if (take(t, region)) return TABLE_ERROR;
    int exists = look(t, w->hash, w, 0, &f, &free), done = TABLE_DONE;
    *unique = 0;
    if (!exists && sheds && t->held < 0 && t->evicts && peek(region->items) >= few_slots(t, 56)) {
        if (peek(region->items) >= few_slots(t, 57)) {
            done = CROWDED;
            goto out;
        }
        t->crowded = 1;
        t->soft = 0;  /* the next store does a step */
    }
    if (condition != ANY) {
        int live = exists && current(t, segment_of(t, peek(*f.slot))) && !has_expired(t, as_double(peek(f.record->expires)));
        /* An item may get meta flags without a new unique: `KEEP`. */
        if (condition != (live ? f.record->unique : 0) || (live && kind & PLAIN && peek(f.record->kind) & META)) {
            done = TABLE_CHANGED;
            goto out;
        }
    }
    if (!exists && !free.slot) {
        done = FULL;
        goto out;
    }
    int met = exists ? meet(t, &f) : MET_NONE;
    if (met && kind & PLAIN) {
        done = TABLE_OTHER;
        goto out;
    }
    if (kind & EXPIRY && exists) note(r->expires, peek(f.record->expires));
    if (kind & KEEP && exists) {
        *unique = f.record->unique;
    } else {
        uint64_t serial = peek(region->unique) + 1;
        note(region->unique, serial);
        *unique = serial * REGIONS + (w->hash >> 24);
    }
    r->unique = *unique;
    note_latest(t->mine, peek(r->expires));
    store(t->mine->used, (uint32_t)(peek(t->mine->used) + size));
    uint64_t word = word_of(t, r, w->tag);
    t->met = met;
    if (exists) {
        uint32_t bits = (peek(*f.state) & FREQUENCY) + 1 + (uint32_t)kind / USES % 4;
        note(*f.state, t->second << STATE_BITS | (kind & USED ? FETCHED : 0) | (bits < FREQUENCY ? bits : FREQUENCY));
        uint64_t before = record_size(f.record->length, f.record->extra);
        count_dead(t, segment_of(t, peek(*f.slot)), before);
        store(*f.slot, word);
        store(f.record->kind, peek(f.record->kind) | DEAD);  /* the last access: eviction then skips it */
        add(region->bytes, size - before);
    } else {
        uint16_t name;
        _Atomic uint16_t *ghost = ghost_of(t, w->hash, w->tag, &name);
        int known = peek(*ghost) == name;
        if (known) note(*ghost, 0);
        note(*free.state, t->second << STATE_BITS | (known ? 2 : 0));
        store(*free.slot, word);
        add(region->items, 1);
        add(region->bytes, size);
    }
out:
    give(t, region);
    return done;
}

/* store(line, reply, expires, condition, kind, extra) -> unique; 0: another item is there; -1: no room.
With USED, an item that replaces another counts as fetched; with KEEP, it keeps the other's unique. */
static PyObject *put(Table *t, PyObject *const *a, Py_ssize_t count) {
    Wanted w;
    if (count != 6 || !PyBytes_CheckExact(a[1]) || !PyBytes_CheckExact(a[5])) {
        PyErr_SetString(PyExc_TypeError, "store(line, reply, expires, condition, kind, extra)");
        return NULL;
    }
    int wanted = want(a[0], &w);
    double expires = PyFloat_AsDouble(a[2]);
    uint64_t condition = a[3] == Py_None ? ANY : PyLong_AsUnsignedLongLong(a[3]);
    long kind = PyLong_AsLong(a[4]);
    if (wanted < 0 || PyErr_Occurred()) return NULL;
    Py_ssize_t length = PyBytes_GET_SIZE(a[1]), extra = PyBytes_GET_SIZE(a[5]);
    if (!wanted || extra > UINT16_MAX || length > UINT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "not a request line, or too large"); return NULL;
    }
    if (settle(t)) return NULL;
    uint64_t unique, size = record_size((uint32_t)length, (uint32_t)extra);
    int ready = room(t, size);
    if (ready <= 0) return ready ? NULL : PyLong_FromLong(-1);
    Record *r = prepare(t, &w, (uint32_t)length, (uint32_t)extra, as_bits(expires), kind);
    memcpy(r + 1, PyBytes_AS_STRING(a[1]), (size_t)length);
    memcpy((char *)(r + 1) + length, PyBytes_AS_STRING(a[5]), (size_t)extra);
    for (int tries = 0;; tries++) {
        int done = publish(t, &w, r, condition, kind, tries < 4, &unique);
        if (done == CROWDED) { if (shed(t)) return NULL; continue; }
        return done == TABLE_ERROR ? NULL : done == FULL ? PyLong_FromLong(-1) : PyLong_FromUnsignedLongLong(unique);
    }
}

/* delete(line, condition) -> whether a live item was removed */
static PyObject *drop(Table *t, PyObject *const *a, Py_ssize_t count) {
    Wanted w;
    Found f;
    if (count != 2) { PyErr_SetString(PyExc_TypeError, "delete(line, condition)"); return NULL; }
    int wanted = want(a[0], &w), live = 0;
    uint64_t condition = a[1] == Py_None ? ANY : PyLong_AsUnsignedLongLong(a[1]);
    if (wanted < 0 || PyErr_Occurred()) return NULL;
    t->met = MET_NONE;
    if (!wanted) Py_RETURN_FALSE;
    Region *region = t->regions + (w.hash >> 24);
    if (settle(t) || take(t, region)) return NULL;
    if (look(t, w.hash, &w, 0, &f, NULL) && (condition == ANY || condition == f.record->unique)) {
        t->met = meet(t, &f);
        live = t->met == MET_NONE;
        clear(t, region, &f);
    }
    give(t, region);
    return PyBool_FromLong(live);
}

/* touch(line, expires) -> whether there was a live item, which then has that expiry */
static PyObject *touch(Table *t, PyObject *const *a, Py_ssize_t count) {
    Wanted w;
    Found f;
    if (count != 2) { PyErr_SetString(PyExc_TypeError, "touch(line, expires)"); return NULL; }
    int wanted = want(a[0], &w), live = 0;
    double expires = PyFloat_AsDouble(a[1]);
    if (wanted < 0 || PyErr_Occurred()) return NULL;
    if (!wanted) Py_RETURN_FALSE;
    Region *region = t->regions + (w.hash >> 24);
    if (settle(t) || take(t, region)) return NULL;
    if (look(t, w.hash, &w, 0, &f, NULL) && current(t, segment_of(t, peek(*f.slot)))) {
        live = !has_expired(t, as_double(peek(f.record->expires)));
        if (live) {
            note_latest(segment_of(t, peek(*f.slot)), as_bits(expires));
            note(f.record->expires, as_bits(expires));
        }
    }
    give(t, region);
    return PyBool_FromLong(live);
}

/* For other modules in C: api.h */

static int read_plain(PyObject *table, const Wanted *w, char *to, uint32_t most, Seen *seen) {
    Table *t = (Table *)table;
    Sight f;
    if (due(t)) return TABLE_OTHER;
    do {
        if (!seek(t, w, &f)) return TABLE_ABSENT;
        if (f.kind || f.length > most || has_expired(t, f.expires)) return TABLE_OTHER;
        memcpy(to, f.record + 1, f.length);
    } while (!unchanged(&f));
    *seen = (Seen){f.unique, f.expires, f.length, peek(*f.state), f.state};
    return TABLE_DONE;
}
static void use_plain(PyObject *table, const Seen *seen) { note_use((Table *)table, seen->at); }
static char *reserve_plain(PyObject *table, uint32_t length) {
    Table *t = (Table *)table;
    if (due(t) || room(t, record_size(length, 0)) <= 0) return NULL;
    return segment_base(t, t->mine) + peek(t->mine->used) + sizeof(Record);
}
static int commit_plain(PyObject *table, const Wanted *w, uint32_t length, double expires, uint64_t condition, int how, uint64_t *unique) {
    Table *t = (Table *)table;
    int kind = PLAIN | (how & STORE_FETCHED ? USED : 0) | (how & STORE_EXPIRY ? EXPIRY : 0)
               | (how & (STORE_USED | STORE_USED_TWICE)) / STORE_USED * USES;
    Record *r = prepare(t, w, length, 0, as_bits(expires), 0);
    int done = publish(t, w, r, condition, kind, 1, unique);
    return done < FULL ? done : TABLE_OTHER;
}
static int drop_plain(PyObject *table, const Wanted *w) {
    Table *t = (Table *)table;
    Region *region = t->regions + (w->hash >> 24);
    Found f;
    int done = TABLE_ABSENT;
    if (due(t)) return TABLE_OTHER;
    if (take(t, region)) return TABLE_ERROR;
    if (look(t, w->hash, w, 0, &f, NULL)) {
        done = meet(t, &f) ? TABLE_OTHER : TABLE_DONE;
        if (done == TABLE_DONE) clear(t, region, &f);
    }
    give(t, region);
    return done;
}
static int touch_plain(PyObject *table, const Wanted *w, double expires, char *to, uint32_t most, Seen *seen) {
    Table *t = (Table *)table;
    Region *region = t->regions + (w->hash >> 24);
    Found f;
    int done = TABLE_ABSENT;
    if (due(t)) return TABLE_OTHER;
    if (take(t, region)) return TABLE_ERROR;
    if (look(t, w->hash, w, 0, &f, NULL)) {
        Record *r = f.record;
        done = peek(r->kind) || r->length > most || meet(t, &f) ? TABLE_OTHER : TABLE_DONE;
        if (done == TABLE_DONE) {
            *seen = (Seen){r->unique, as_double(peek(r->expires)), r->length, peek(*f.state), f.state};
            memcpy(to, r + 1, r->length);
            note_use(t, f.state);
            note_latest(segment_of(t, peek(*f.slot)), as_bits(expires));
            note(r->expires, as_bits(expires));
        }
    }
    give(t, region);
    return done;
}

/* Estimates the number of items from a few regions. */
static int many_items(PyObject *table) {
    Table *t = (Table *)table;
    uint64_t items = 0;
    for (int i = 0; i < REGIONS; i += REGIONS / COUNTED) items += peek(t->regions[i].items);
    return items >= MANY / (REGIONS / COUNTED);
}
/* Nothing found here is relied on: slots and records may change meanwhile, and prefetching any address is harmless. */
static void fetch_records(PyObject *table, const Wanted *w, int count) {
    Table *t = (Table *)table;
    for (int i = 0; i < count; i++) {
        uint64_t slot = first_of(t, w[i].hash);
        __builtin_prefetch(t->slots + slot);
        __builtin_prefetch(t->states + slot, 1);
    }
    for (int i = 0; i < count; i++) {
        uint64_t slot = first_of(t, w[i].hash), last = ((uint64_t)(w[i].hash >> 24) + 1) * t->header->slots;
        for (int n = 0; n < PROBES && slot < last; n++, slot++) {
            uint64_t word = peek(t->slots[slot]);
            if (word == EMPTY) break;
            if (word == GONE || word >> PLACE_BITS != w[i].tag) continue;
            const char *record = (const char *)record_at(t, word);
            __builtin_prefetch(record);
            __builtin_prefetch(record + 64);
            __builtin_prefetch(record + 128);
            break;
        }
    }
}

/* hold(line, size): keeps other processes from changing a key, and reserves a slot and room for a record `size` bytes
longer. Until the release, no segment can be opened, and flushes are not seen: they take effect after the command. */
static PyObject *hold(Table *t, PyObject *const *a, Py_ssize_t count) {
    Wanted w;
    Found f, free;
    if (count != 2) { PyErr_SetString(PyExc_TypeError, "hold(line, size)"); return NULL; }
    int wanted = want(a[0], &w);
    uint64_t bytes = PyLong_AsUnsignedLongLong(a[1]);
    if (wanted < 0 || PyErr_Occurred()) return NULL;
    if (!wanted) Py_RETURN_NONE;
    Region *region = t->regions + (w.hash >> 24);
    if (settle(t)) return NULL;
    if (bytes && t->held < 0 && room(t, sizeof(Record) + bytes) < 0) return NULL;  /* a step may be due */
    for (int tries = 0;; tries++) {
        if (settle(t) || take(t, region)) return NULL;
        uint64_t need = bytes ? sizeof(Record) + bytes : 0;
        int exists = look(t, w.hash, &w, 0, &f, &free);
        if (bytes && exists) need += (uint64_t)f.record->length + f.record->extra;
        if (need > t->header->segment_size) need = t->header->segment_size;  /* no record is longer */
        t->epoch = load(t->header->epoch);
        int fits = !need || (t->mine && load(t->mine->epoch) == t->epoch
                             && peek(t->mine->used) + need <= t->header->segment_size);
        int crowded = bytes && !exists && t->evicts && tries < 4 && peek(region->items) >= few_slots(t, 57);
        if ((fits && !crowded) || tries == 8) break;
        give(t, region);
        if (crowded && shed(t)) return NULL;
        if (!fits && room(t, need) < 0) return NULL;
    }
    t->held = (int)(w.hash >> 24);
    Py_RETURN_NONE;
}
static PyObject *release(Table *t, PyObject *none) {
    int held = t->held;
    t->held = -1;
    if (held >= 0) give(t, t->regions + held);
    Py_RETURN_NONE;
}

/* flush(at): invalidates every item, now (0) or at a unix time. */
static PyObject *flush(Table *t, PyObject *when) {
    double at = PyFloat_AsDouble(when);
    if (PyErr_Occurred() || take(t, t->log)) return NULL;
    if (!at) store(t->header->epoch, peek(t->header->epoch) + 1);
    store(t->header->flush_at, as_bits(at));
    give(t, t->log);
    Py_RETURN_NONE;
}
/* drop_flushed(line) -> whether there was a flushed item, which is removed */
static PyObject *drop_flushed(Table *t, PyObject *line) {
    Wanted w;
    Found f;
    int wanted = want(line, &w), found = 0;
    if (wanted < 0) return NULL;
    if (!wanted || !load(t->header->epoch)) Py_RETURN_FALSE;
    Region *region = t->regions + (w.hash >> 24);
    if (take(t, region)) return NULL;
    if (look(t, w.hash, &w, 0, &f, NULL) && !current(t, segment_of(t, peek(*f.slot)))) {
        found = 1;
        clear(t, region, &f);
    }
    give(t, region);
    return PyBool_FromLong(found);
}

static PyObject *init_locks(Table *t, PyObject *none) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i <= REGIONS; i++) pthread_mutex_init(&t->regions[i].lock.mutex, &how);
    pthread_mutexattr_destroy(&how);
    Py_RETURN_NONE;
}
/* attach(worker): resumes the segment that an earlier worker with this number left open when it was killed. */
static PyObject *attach(Table *t, PyObject *number) {
    t->worker = (uint32_t)PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred() || take_segments(t)) return NULL;
    t->mine = t->next = NULL;
    t->soft = 0;
    for (uint32_t i = 0; i < t->header->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) != OPEN || peek(s->owner) != t->worker) continue;
        if (!peek(s->used)) { store(s->state, FREE); continue; }  /* it was to be the next */
        if (t->mine) store(s->state, SEALED);  /* at most one, unless two processes had the number */
        else t->mine = s;
    }
    give(t, t->log);
    Py_RETURN_NONE;
}

/* Rebuilding the index of a table kept in a file; no other process uses it yet */

static const char *digits(const char *p, const char *end, uint64_t *number) {
    const char *first = p;
    for (*number = 0; p < end && p - first < 10 && *p >= '0' && *p <= '9'; p++) *number = *number * 10 + (uint64_t)(*p - '0');
    return p == first ? NULL : p;
}
/* Whether a record is a well-formed reply to a get, of the length that it states. */
static int whole(Record *r) {
    int kind = peek(r->kind) & ~(DEAD | LIVE), named = kind & UNNAMED ? 0 : r->key;
    const char *p = (char *)(r + 1), *end = p + r->length;
    uint64_t flags, size;
    if (kind & ~(UNNAMED | META) || !r->key || r->key > 250) return 0;
    if (r->extra != (kind & META ? 9 : 0) + (kind & UNNAMED ? r->key : 0)) return 0;
    if (r->length < 6u + named + 12 || memcmp(p, "VALUE ", 6) || p[6 + named] != ' ') return 0;
    p = digits(p + 7 + named, end, &flags);
    if (!p || p == end || *p != ' ' || !(p = digits(p + 1, end, &size))) return 0;
    return (uint64_t)(end - p) == size + 9 && !memcmp(p, "\r\n", 2) && !memcmp(end - 7, "\r\nEND\r\n", 7);
}
/* Marks the records that slots point to, and stores each one's state in place of its hash; -1: damaged. */
static int64_t mark(Table *t) {
    Header *h = t->header;
    int64_t marked = 0;
    for (uint32_t i = 0; i < h->segments; i++) {
        Segment *s = t->headers + i;
        if (peek(s->state) > EVICTING || peek(s->used) > h->segment_size || peek(s->used) % 8) return -1;
    }
    for (uint64_t i = 0; i < (uint64_t)h->slots * REGIONS; i++) {
        uint64_t word = peek(t->slots[i]), at = (word & PLACE) * 8;
        if (word == EMPTY || word == GONE) continue;
        if (at < h->segments_at || at - h->segments_at >= (uint64_t)h->segments * h->segment_size) return -1;
        Segment *s = segment_of(t, word);
        Record *r = record_at(t, word);
        if ((uint64_t)((char *)(r + 1) - segment_base(t, s)) > peek(s->used)) return -1;
        if (peek(r->kind) & (LIVE | DEAD)) return -1;
        note(r->kind, peek(r->kind) | LIVE);
        r->hash = peek(t->states[i]);
        marked++;
    }
    return marked;
}
/* Gives a record a slot. 1: done; 0: no slot is free; -1: its key already has one; -2: an error. */
static int enter(Table *t, Record *r, uint32_t state) {
    char text[256] = "get ";
    size_t size = r->key;
    memcpy(text + 4, key_of(r), size);
    memcpy(text + 4 + size, "\r\n", 2);
    PyObject *line = PyBytes_FromStringAndSize(text, (Py_ssize_t)size + 6);
    uint64_t hash = line ? (uint64_t)PyObject_Hash(line) : 0;
    if (!line) return -2;
    Py_DECREF(line);
    Wanted w = {text + 4, (uint32_t)size, (uint32_t)hash, hash >> 50};
    Region *region = t->regions + (w.hash >> 24);
    Found f, free;
    if (look(t, w.hash, &w, 0, &f, &free)) return -1;
    if (!free.slot || peek(region->items) >= t->header->slots * 7ull / 8) return 0;
    r->hash = w.hash;
    note(*free.slot, word_of(t, r, w.tag));
    note(*free.state, state);
    add(region->items, 1);
    add(region->bytes, record_size(r->length, r->extra));
    return 1;
}
static uint32_t moved(uint32_t state, long long later) {
    long long second = (long long)(state >> STATE_BITS) + later, most = UINT32_MAX >> STATE_BITS;
    return (uint32_t)(second < 0 ? 0 : second > most ? most : second) << STATE_BITS | (state & ((1u << STATE_BITS) - 1));
}
/* recover(now, shift, later) -> items; see recovery.py */
static PyObject *recover(Table *t, PyObject *const *a, Py_ssize_t count) {
    if (count != 3) { PyErr_SetString(PyExc_TypeError, "recover(now, shift, later)"); return NULL; }
    double time = PyFloat_AsDouble(a[0]), shift = PyFloat_AsDouble(a[1]);
    long long later = PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred()) return NULL;
    Header *h = t->header;
    note(h->victim, 0);
    int64_t left = mark(t), items = 0;
    const char *wrong = "a slot does not point to a record";
    if (left < 0) goto damaged;
    memset(t->slots, 0, (uint64_t)h->slots * REGIONS * (sizeof *t->slots + sizeof *t->states + sizeof *t->ghosts));
    uint64_t serial = 0;
    for (int i = 0; i < REGIONS; i++) {
        if (peek(t->regions[i].unique) > serial) serial = peek(t->regions[i].unique);
        note(t->regions[i].items, 0);
        note(t->regions[i].bytes, 0);
    }
    for (uint32_t i = 0; i <= REGIONS; i++) note(t->regions[i].busy, 0);
    for (uint32_t i = 0; i < h->segments; i++) {
        Segment *s = t->headers + i;
        uint32_t used = peek(s->used), live = 0;
        note(s->latest, 0);
        for (int n = 0; n < COUNTERS; n++) note(s->dead[n], 0);
        for (uint64_t at = 0, size; at < used; at += size) {
            Record *r = (Record *)(segment_base(t, s) + at);
            wrong = "a record exceeds its segment";
            if (at + sizeof(Record) > used || at + (size = record_size(r->length, r->extra)) > used) goto damaged;
            int kind = peek(r->kind);
            note(r->kind, (uint8_t)((kind & ~LIVE) | DEAD));
            if (!(kind & LIVE)) continue;
            left--;
            wrong = "a record is not an item";
            if (!whole(r)) goto damaged;
            double expires = as_double(peek(r->expires));
            wrong = "invalid expiry time";
            if (!(expires >= 0 && expires <= LATEST)) goto damaged;
            wrong = "a cas unique was never assigned";
            if (r->unique / REGIONS > serial) goto damaged;
            if (expires) note(r->expires, as_bits(expires + shift));
            if (peek(s->epoch) != peek(h->epoch) || (expires && expires + shift <= time)) continue;
            wrong = "two records have the same key";
            int entered = enter(t, r, moved(r->hash, later));
            if (entered == -2) return NULL;
            if (entered < 0) goto damaged;
            if (!entered) continue;
            note(r->kind, (uint8_t)(kind & ~(LIVE | DEAD)));
            note_latest(s, peek(r->expires));
            items++;
            live += (uint32_t)size;
        }
        if (live) {
            note(s->state, SEALED);
            note(s->dead[0], used - live);
        } else {
            note(s->state, FREE);
            note(s->used, 0);
            note(s->gen, peek(s->gen) + 1);
        }
    }
    wrong = "a slot points into a record";
    if (left) goto damaged;
    for (int i = 0; i < REGIONS; i++) note(t->regions[i].unique, serial + 1);
    double at = as_double(peek(h->flush_at));
    if (at) note(h->flush_at, as_bits(at + shift));
    return PyLong_FromLongLong(items);
damaged:
    PyErr_SetString(PyExc_ValueError, wrong);
    return NULL;
}

static void dealloc(Table *t) {
    if (t->base) PyBuffer_Release(&t->buffer);
    PyMem_Free(t->mapped);
    Py_XDECREF(t->evicted);
    Py_TYPE(t)->tp_free((PyObject *)t);
}
static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *words) {
    PyObject *memory;
    if (!PyArg_ParseTuple(args, "O", &memory)) return NULL;
    Table *t = (Table *)type->tp_alloc(type, 0);
    if (!t) return NULL;
    if (PyObject_GetBuffer(memory, &t->buffer, PyBUF_WRITABLE)) { Py_DECREF(t); return NULL; }
    t->base = t->buffer.buf;
    Header *h = t->header = (Header *)t->base;
    if ((uint64_t)t->buffer.len < 4096 || memcmp(h->magic, "memlite", 8) || h->version != VERSION
        || h->regions != REGIONS || h->size != (uint64_t)t->buffer.len) {
        PyErr_SetString(PyExc_ValueError, "not a table, or one with a different layout");
        Py_DECREF(t);
        return NULL;
    }
    if (!(t->mapped = PyMem_Calloc(h->segments, sizeof *t->mapped))) {
        Py_DECREF(t);
        return PyErr_NoMemory();
    }
    t->regions = (Region *)(t->base + h->regions_at);
    t->log = t->regions + REGIONS;
    t->slots = (void *)(t->base + h->slots_at);
    t->states = (void *)(t->base + h->states_at);
    t->ghosts = (void *)(t->base + h->ghosts_at);
    t->headers = (void *)(t->base + h->headers_at);
    t->held = -1;
    t->evicts = 1;
    return (PyObject *)t;
}

static PyMethodDef methods[] = {
    {"find", (PyCFunction)find, METH_O, "Return the reply to a get by its line, or None; counts as a use."},
    {"get", (PyCFunction)get, METH_O, "Return a whole item, or None."},
    {"store", (PyCFunction)(void (*)(void))put, METH_FASTCALL, "Store an item, optionally on a condition."},
    {"delete", (PyCFunction)(void (*)(void))drop, METH_FASTCALL, "Remove an item, optionally on a condition."},
    {"touch", (PyCFunction)(void (*)(void))touch, METH_FASTCALL, "Set an expiry."},
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, "Prevent others from changing a key until `release`."},
    {"release", (PyCFunction)release, METH_NOARGS, "End a `hold`."},
    {"flush", (PyCFunction)flush, METH_O, "Invalidate all items, now or at a given time."},
    {"drop_flushed", (PyCFunction)drop_flushed, METH_O, "Forget an item that was flushed."},
    {"init_locks", (PyCFunction)init_locks, METH_NOARGS, "Initialize the locks, once for a mapping."},
    {"park", (PyCFunction)park, METH_NOARGS, "Free a segment, return its memory, and stop using it."},
    {"unpark", (PyCFunction)unpark, METH_O, "Use a segment again."},
    {"recover", (PyCFunction)(void (*)(void))recover, METH_FASTCALL, "Rebuild the index."},
    {"attach", (PyCFunction)attach, METH_O, "Become the worker with this number."},
    {NULL},
};
#include <structmember.h>
static PyMemberDef members[] = {
    {"second", T_UINT, offsetof(Table, second), 0, NULL},
    {"offset", T_DOUBLE, offsetof(Table, offset), 0, NULL},
    {"evictions", T_ULONGLONG, offsetof(Table, evictions), READONLY, NULL},
    {"evicted_unfetched", T_ULONGLONG, offsetof(Table, evicted_unfetched), READONLY, NULL},
    {"reclaimed", T_ULONGLONG, offsetof(Table, reclaimed), READONLY, NULL},
    {"expired_unfetched", T_ULONGLONG, offsetof(Table, expired_unfetched), READONLY, NULL},
    {"evicted", T_OBJECT, offsetof(Table, evicted), 0, NULL},
    {"evicts", T_INT, offsetof(Table, evicts), 0, NULL},
    {"met", T_INT, offsetof(Table, met), READONLY, NULL},
    {"reinserted", T_ULONGLONG, offsetof(Table, reinserted), READONLY, NULL},
    {NULL},
};
static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "memlite.memory.shared._native.Table",
    .tp_doc = "Items by request line, in a mapping shared by processes.", .tp_basicsize = sizeof(Table), .tp_flags = Py_TPFLAGS_DEFAULT, .tp_new = make,
    .tp_dealloc = (destructor)dealloc, .tp_methods = methods, .tp_members = members,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "The shared table in C.", -1, NULL};
PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyType_Ready(&type) ? NULL : PyModule_Create(&module);
    if (!m) return NULL;
    static TableApi api = {API_VERSION, &type, name, read_plain, use_plain, reserve_plain, commit_plain, drop_plain, touch_plain,
                           many_items, fetch_records};
    PyObject *names = Py_BuildValue("[ss]", "VERSION", "Table"), *capsule = PyCapsule_New(&api, API_NAME, NULL);
    if (!names || !capsule || PyModule_AddObjectRef(m, "api", capsule) || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Table", (PyObject *)&type)) {
        Py_XDECREF(names);
        Py_XDECREF(capsule);
        Py_DECREF(m);
        return NULL;
    }
    Py_DECREF(names);
    Py_DECREF(capsule);
    return m;
}
