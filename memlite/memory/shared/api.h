/* What other modules in C may do with the shared table. `_native` has it as a capsule, API_NAME; it carries out
what is plain, and leaves the rest to the methods of the table: an item that has expired or was flushed or has
meta flags, a flush that is due, and a lack of slots. */

#ifndef MEMLITE_TABLE_API
#define MEMLITE_TABLE_API

#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>

#define API_NAME "memlite.memory.shared._native.api"
#define API_VERSION 2u
#define ANY UINT64_MAX  /* for a condition: whatever there is */

typedef struct { const char *key; uint32_t length, hash; uint64_t tag; } Wanted;

typedef struct {
    uint64_t unique;
    double expires;  /* 0: never */
    uint32_t length, state;  /* of the reply; when and how it was used, as of then */
    _Atomic uint32_t *at;  /* where uses are noted */
} Seen;

enum { TABLE_ERROR = -1, TABLE_OTHER, TABLE_DONE, TABLE_ABSENT, TABLE_CHANGED };
/* How an item is stored: it counts as fetched, as `USED` of layout.py; it has been used once more, or twice; it expires
when the item there does, whatever `commit` is told, as that may have been touched since it was read. */
enum { STORE_FETCHED = 1, STORE_USED = 2, STORE_USED_TWICE = 4, STORE_EXPIRY = 8 };

typedef struct {
    unsigned version;  /* API_VERSION of whoever made it */
    PyTypeObject *type;
    /* Takes the 64 bits that Python hashes "get <key>\r\n" to. */
    void (*name)(Wanted *, const char *key, uint32_t length, uint64_t hash);
    /* Copies the reply of an item of at most `room` bytes; counts as no use. DONE, ABSENT or OTHER. */
    int (*read)(PyObject *table, const Wanted *, char *to, uint32_t room, Seen *);
    void (*use)(PyObject *table, const Seen *);
    /* Room for a reply, which is to be written there, and for nothing else until `commit`. NULL: there is none,
    or an exception is set. */
    char *(*reserve)(PyObject *table, uint32_t length);
    /* Makes that the item, if the one there has the unique `condition`; 0: there is none. Else CHANGED or OTHER. */
    int (*commit)(PyObject *table, const Wanted *, uint32_t length, double expires, uint64_t condition, int how, uint64_t *unique);
    int (*drop)(PyObject *table, const Wanted *);
    /* Counts as a use; what was seen is the item before. */
    int (*touch)(PyObject *table, const Wanted *, double expires, char *to, uint32_t room, Seen *);
    /* Whether there are so many items that `fetch` pays, about. */
    int (*many)(PyObject *table);
    /* Has what these keys need loaded into the processor's cache, for all of them at once. */
    void (*fetch)(PyObject *table, const Wanted *, int count);
} TableApi;

#endif
