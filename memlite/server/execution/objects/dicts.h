/* Finds an entry in a dict by reading the dict's memory. A lookup through the API makes calls that
compare arbitrary objects, and does not reveal the key object in the dict. The layout of dicts is
internal to CPython: `knows_dicts` checks it on a sample, and the functions below are used only if
the check succeeds. Dicts are changed only through CPython's functions. */

/* A dict's keys object, as in Python 3.11 to 3.14 with the GIL. */
typedef struct {
    Py_ssize_t references;
    uint8_t log_size, log_bytes, kind;  /* logarithms of sizes; `kind` is 0 for keys of any type */
    uint32_t version;
    Py_ssize_t usable, entries;
    char places[];
} Keys;
typedef struct { Py_hash_t hash; PyObject *key, *value; } Entry;
enum { EMPTY = -1, REMOVED = -2 };  /* in place of the number of an entry */

#if defined Py_GIL_DISABLED || defined UNKNOWN_DICTS  /* the latter for tests */
static int dicts_known = 0;
#else
static int dicts_known = -1;  /* until it has been checked */
#endif

static inline const Keys *keys_of(PyObject *dict) { return (const Keys *)((PyDictObject *)dict)->ma_keys; }

static Py_hash_t (*hash_bytes)(const void *, Py_ssize_t);

static inline size_t first_place(const Keys *keys, Py_hash_t hash) {
    return (size_t)hash & (((size_t)1 << keys->log_size) - 1);
}

static inline const char *place_in(const Keys *keys, size_t number) {
    return keys->places + (number << (keys->log_bytes - keys->log_size));
}

/* The number of the entry at a place, or EMPTY or REMOVED. */
static inline long long number_at(const Keys *keys, const char *place) {
    switch (keys->log_bytes - keys->log_size) {
        case 0: return *(const int8_t *)place;
        case 1: return *(const int16_t *)place;
        case 2: return *(const int32_t *)place;
        default: return *(const int64_t *)place;
    }
}

static inline const Entry *entries_of(const Keys *keys) {
    return (const Entry *)(keys->places + ((size_t)1 << keys->log_bytes));
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

/* Stores a known hash in a bytes object that we own exclusively. */
static inline void set_hash(PyObject *bytes, Py_hash_t hash) {
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    ((PyBytesObject *)bytes)->ob_shash = hash;
    _Py_COMP_DIAG_POP
}

/* Whether `line` is the line of `key`. */
static inline int is_line_of(PyObject *line, Word key) {
    return PyBytes_GET_SIZE(line) == key.size + 6 && !memcmp(PyBytes_AS_STRING(line) + 4, key.at, key.size);
}

/* The hash of the line of a key, which is at most LONGEST_KEY long. */
static Py_hash_t hash_of(Word key) {
    char line[LONGEST_KEY + 6] = "get ";
    memcpy(line + 4, key.at, key.size);
    memcpy(line + 4 + key.size, "\r\n", 2);
    Py_hash_t hash = hash_bytes(line, key.size + 6);
    return hash == -1 ? -2 : hash;
}

/* Finds the entry of a key's line, given the keys object of a dict whose keys are lines; NULL if
there is none. */
static inline const Entry *find_entry(const Keys *keys, Py_hash_t hash, Word key) {
    size_t mask = ((size_t)1 << keys->log_size) - 1, more = (size_t)hash, place = first_place(keys, hash);
    for (;;) {
        long long number = number_at(keys, place_in(keys, place));
        if (number >= 0) {
            const Entry *entry = entries_of(keys) + number;
            if (entry->hash == hash && is_line_of(entry->key, key)) return entry;
        } else if (number == EMPTY) return NULL;
        more >>= 5;
        place = (place * 5 + more + 1) & mask;
    }
}

enum { SOME = 300 };

/* Checks the slot table of a dict of SOME lines, `removed` of them deleted. */
static int has_places(const Keys *keys, int removed) {
    int found = 0, gone = 0;
    for (size_t i = 0; i < (size_t)1 << keys->log_size; i++) {
        long long number = number_at(keys, place_in(keys, i));
        if (number < REMOVED || number >= SOME) return 0;
        gone += number == REMOVED;
        if (number < 0) continue;
        const Entry *entry = entries_of(keys) + number;
        if (entry->value != Py_None || !PyBytes_CheckExact(entry->key) || PyObject_Hash(entry->key) != entry->hash) return 0;
        found++;
    }
    return found == SOME - removed && gone == removed;
}

/* Whether dicts have the layout assumed here, checked on a sample: a later Python may change it. */
static int knows_dicts(void) {
    PyObject *dict = PyDict_New();
    int known = 1, removed = 0;
    hash_bytes = PyHash_GetFuncDef()->hash;
    for (int turn = 0; dict && known && turn < 2; turn++) {
        for (int i = 0; dict && i < SOME; i++) {
            char text[20];
            PyObject *line = make_line((Word){text, snprintf(text, sizeof text, "%d", i)});
            if (!line || (!turn ? PyDict_SetItem(dict, line, Py_None) : i % 3 ? 0 : PyDict_DelItem(dict, line))) Py_CLEAR(dict);
            removed += turn && i % 3 == 0;
            Py_XDECREF(line);
        }
        const Keys *keys = dict ? keys_of(dict) : NULL;
        known = keys && keys->references == 1 && keys->entries == SOME && !keys->kind && keys->log_size > 8
                && keys->log_size < 12 && keys->log_bytes == keys->log_size + 1 && has_places(keys, removed);
        for (int i = 0; known && i < SOME; i++) {
            char text[20];
            Word key = {text, snprintf(text, sizeof text, "%d", i)};
            const Entry *entry = find_entry(keys, hash_of(key), key);
            known = turn && i % 3 == 0 ? !entry : entry && is_line_of(entry->key, key);
        }
    }
    Py_XDECREF(dict);
    return PyErr_Occurred() ? -1 : known;
}
