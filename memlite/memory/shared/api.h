/* The interface of the shared table for other modules in C, which `_native` exports as a capsule, API_NAME. It
handles plain items, and leaves the rest to the methods of the table: items that have expired, were flushed or have
meta flags, a flush that is due, and a lack of slots. */

#ifndef MEMLITE_TABLE_API
#define MEMLITE_TABLE_API

#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>

#define API_NAME "memlite.memory.shared._native.api"
#define API_VERSION 2u
#define ANY UINT64_MAX  /* as a condition: matches any item, or none */

typedef struct { const char *key; uint32_t length, hash; uint64_t tag; } Wanted;

typedef struct {
    uint64_t unique;
    double expires;  /* 0: never */
    uint32_t length, state;  /* of the reply; when and how the item had been used */
    _Atomic uint32_t *at;  /* where uses are noted */
} Seen;

enum { TABLE_ERROR = -1, TABLE_OTHER, TABLE_DONE, TABLE_ABSENT, TABLE_CHANGED };
/* How an item is stored: as fetched, like `USED` in layout.py; with one or two more uses; with the expiry of the present
item instead of the one given to `commit`, as that item may have been touched since it was read. */
enum { STORE_FETCHED = 1, STORE_USED = 2, STORE_USED_TWICE = 4, STORE_EXPIRY = 8 };

typedef struct {
    unsigned version;  /* API_VERSION that the table was compiled with */
    PyTypeObject *type;
    /* `hash` is Python's 64-bit hash of "get <key>\r\n". */
    void (*name)(Wanted *, const char *key, uint32_t length, uint64_t hash);
    /* Copies the reply of an item of at most `room` bytes; does not count as a use. DONE, ABSENT or OTHER. */
    int (*read)(PyObject *table, const Wanted *, char *to, uint32_t room, Seen *);
    void (*use)(PyObject *table, const Seen *);
    /* Reserves room for one reply, to be written there before `commit`. NULL: there is no room, or an exception is set. */
    char *(*reserve)(PyObject *table, uint32_t length);
    /* Makes that reply the item, if the present item has the unique `condition` (0: no item); else CHANGED or OTHER. */
    int (*commit)(PyObject *table, const Wanted *, uint32_t length, double expires, uint64_t condition, int how, uint64_t *unique);
    int (*drop)(PyObject *table, const Wanted *);
    /* Counts as a use; `Seen` describes the item before the touch. */
    int (*touch)(PyObject *table, const Wanted *, double expires, char *to, uint32_t room, Seen *);
    /* Whether there are roughly enough items for `fetch` to pay off. */
    int (*many)(PyObject *table);
    /* Prefetches the slots and records of all these keys into the processor's cache at once. */
    void (*fetch)(PyObject *table, const Wanted *, int count);
} TableApi;

#endif
