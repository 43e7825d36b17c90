/* Looking ahead. What commands need lies anywhere in memory, and a processor waits for each piece of it as long as for
a hundred instructions. Therefore the keys of the next commands are looked for first, and of each of them the place in
the index, the entry there, the item and its value are fetched into the cache, step by step for all of them at once. commands/ahead.h finds the keys.

Nothing depends on it: what is found is neither kept nor believed, apart from the lines, which are those that `look`
would make. A key that is guessed wrongly costs time. */

enum { FEW = 10000 };  /* items that are in the cache anyway */

/* A dict's keys, as in Python 3.11 to 3.14 with its lock; see `knows_dicts`. */
typedef struct {
    Py_ssize_t references;
    uint8_t log_size, log_bytes, kind;  /* of the places; 0 for keys of any type */
    uint32_t version;
    Py_ssize_t usable, entries;
    char places[];
} Keys;
typedef struct { Py_hash_t hash; PyObject *key, *value; } Entry;

#ifdef Py_GIL_DISABLED
static int dicts_known = 0;
static const Keys *keys_of(PyObject *dict) { (void)dict; return NULL; }
#else
static int dicts_known = -1;  /* until it has been tried */
static const Keys *keys_of(PyObject *dict) { return (const Keys *)((PyDictObject *)dict)->ma_keys; }
#endif

static inline const char *place_in(const Keys *keys, Py_hash_t hash) {
    size_t first = (size_t)hash & (((size_t)1 << keys->log_size) - 1);
    return keys->places + (first << (keys->log_bytes - keys->log_size));
}

/* The entry at a place; NULL for none. */
static inline const Entry *entry_at(const Keys *keys, const char *place) {
    long long number;
    switch (keys->log_bytes - keys->log_size) {
        case 0: number = *(const int8_t *)place; break;
        case 1: number = *(const int16_t *)place; break;
        default: number = *(const int32_t *)place;
    }
    return number < 0 ? NULL : (const Entry *)(keys->places + ((size_t)1 << keys->log_bytes)) + number;
}

/* Whether dicts are laid out as they are here, which is tried with one: a later Python may change it. */
static int knows_dicts(void) {
    enum { SOME = 300 };
    PyObject *dict = PyDict_New();
    for (long i = 0; dict && i < SOME; i++) {
        PyObject *key = PyBytes_FromFormat("%ld", i);
        if (!key || PyDict_SetItem(dict, key, Py_None)) Py_CLEAR(dict);
        Py_XDECREF(key);
    }
    const Keys *keys = dict ? keys_of(dict) : NULL;
    int known = keys && keys->references == 1 && keys->entries == SOME && !keys->kind && keys->log_size > 8
                && keys->log_size < 12 && keys->log_bytes == keys->log_size + 1, found = 0;
    for (Py_ssize_t i = 0; known && i < (Py_ssize_t)1 << keys->log_size; i++) {
        const Entry *first = (const Entry *)(keys->places + ((size_t)1 << keys->log_bytes));
        const Entry *entry = entry_at(keys, keys->places + 2 * i);
        if (!entry) continue;
        known = entry < first + SOME && entry->value == Py_None && PyObject_Hash(entry->key) == entry->hash;
        found++;
    }
    Py_XDECREF(dict);
    return PyErr_Occurred() ? -1 : known && found == SOME;
}

/* Whether the table has so many items that looking ahead pays. */
static int has_many(Runner *r) {
    if (!dicts_known) return 0;
    Py_ssize_t several = PyList_GET_SIZE(r->dicts);
    return PyDict_GET_SIZE(PyList_GET_ITEM(r->dicts, several - 1)) * several >= FEW;
}

static PyObject *make_line(Word key) {
    PyObject *line = PyBytes_FromStringAndSize(NULL, key.size + 6);
    if (!line) return NULL;
    char *to = PyBytes_AS_STRING(line);
    memcpy(to, "get ", 4);
    memcpy(to + 4, key.at, key.size);
    memcpy(to + 4 + key.size, "\r\n", 2);
    return line;
}

/* The line of a key: that which has been made, or a new one. */
static PyObject *line_for(Runner *r, Word key) {
    while (r->ahead_next < r->ahead_count && r->ahead[r->ahead_next].key.at <= key.at) {
        Ahead one = r->ahead[r->ahead_next++];
        if (one.key.at == key.at && one.key.size == key.size) return one.line;
        Py_DECREF(one.line);
    }
    return make_line(key);
}

static void forget_ahead(Runner *r) {
    while (r->ahead_next < r->ahead_count) Py_DECREF(r->ahead[r->ahead_next++].line);
}

static void look_ahead(Runner *r, const char *at, const char *end, int binary, int in_get) {
    Word found[AHEAD];
    struct { const Keys *keys; const char *place; const Entry *entry; PyObject *item; } all[AHEAD];
    Py_hash_t hash[AHEAD];
    Py_ssize_t most = r->at_most - r->served;
    int count = binary ? find_packet_keys(found, at, end, most, &r->looked)
                       : find_keys(found, at, end, most, in_get, &r->looked);
    if (count < 2) return;
    r->ahead_next = r->ahead_count = 0;
    for (int i = 0; i < count; i++) {
        PyObject *line = make_line(found[i]);
        if (!line) {
            PyErr_Clear();
            count = i;
            break;
        }
        r->ahead[i] = (Ahead){found[i], line};
        hash[i] = PyObject_Hash(line);
        all[i].keys = keys_of(dict_of(r, line));
        __builtin_prefetch(all[i].keys);
    }
    r->ahead_count = count;
    for (int i = 0; i < count; i++) __builtin_prefetch(all[i].place = place_in(all[i].keys, hash[i]));
    for (int i = 0; i < count; i++) {
        const Entry *entry = all[i].entry = all[i].keys->kind ? NULL : entry_at(all[i].keys, all[i].place);
        if (!entry) continue;
        __builtin_prefetch(entry);
        __builtin_prefetch(&entry->value);
    }
    for (int i = 0; i < count; i++) {
        const Entry *entry = all[i].entry;
        all[i].item = entry && entry->hash == hash[i] ? entry->value : NULL;
        if (!all[i].item) continue;
        __builtin_prefetch(all[i].item);
        __builtin_prefetch(entry->key);
        __builtin_prefetch((const char *)entry->key + 48);
    }
    for (int i = 0; r->wire.at >= 0 && i < count; i++) {
        const char *item = (const char *)all[i].item;
        if (!item) continue;
        const char *wire = *(const char **)(item + r->wire.at);
        __builtin_prefetch(wire);
        __builtin_prefetch(wire + 64);
        __builtin_prefetch(wire + 128);
        if (Py_TYPE(all[i].item) != (PyTypeObject *)r->full_type || r->expires.at < 0 || r->extra.at < 0) continue;
        __builtin_prefetch(*(const char **)(item + r->expires.at));
        __builtin_prefetch(*(const char **)(item + r->extra.at));
    }
}
