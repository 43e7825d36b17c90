/* Looking ahead. The data of a command is scattered in memory, and each cache miss costs as much as a hundred
instructions. Therefore, commands/ahead.h finds the keys of the next commands first; then, for each key, the place in the
index, the entry there, the item and its value are prefetched, step by step for all keys at once.

Nothing depends on the result: it is neither kept nor relied on, apart from the hashes, which `look` would compute
anyway. A wrongly guessed key only costs time. */

enum { FEW = 10000 };  /* items that are in the cache anyway */

/* Whether the table has enough items for looking ahead to pay off. */
static int has_many(Runner *r) {
    if (!dicts_known) return 0;
    Py_ssize_t several = PyList_GET_SIZE(r->dicts);
    return PyDict_GET_SIZE(PyList_GET_ITEM(r->dicts, several - 1)) * several >= FEW;
}

/* The hash of a key's line: the one computed by `look_ahead` if there is one, otherwise computed
now. */
static Py_hash_t hash_for(Runner *r, Word key) {
    while (r->ahead_next < r->ahead_count && r->ahead[r->ahead_next].key.at <= key.at) {
        const Ahead *one = &r->ahead[r->ahead_next++];
        if (one->key.at == key.at && one->key.size == key.size) return one->hash;
    }
    return hash_of(key);
}

static void forget_ahead(Runner *r) { r->ahead_next = r->ahead_count = 0; }

static void look_ahead(Runner *r, const char *at, const char *end, int binary, int in_get) {
    Word found[AHEAD];
    struct { const Keys *keys; const char *place; const Entry *entry; PyObject *item; } all[AHEAD];
    Py_ssize_t most = r->at_most - r->served;
    int count = binary ? find_packet_keys(found, at, end, most, &r->looked)
                       : find_keys(found, at, end, most, in_get, &r->looked);
    if (count < 2) return;
    for (int i = 0; i < count; i++) {
        Py_hash_t hash = hash_of(found[i]);
        r->ahead[i] = (Ahead){found[i], hash};
        all[i].keys = keys_of(dict_at(r, hash));
        __builtin_prefetch(all[i].keys);
    }
    r->ahead_next = 0;
    r->ahead_count = count;
    for (int i = 0; i < count; i++) __builtin_prefetch(all[i].place = place_in(all[i].keys, first_place(all[i].keys, r->ahead[i].hash)));
    for (int i = 0; i < count; i++) {
        long long number = all[i].keys->kind ? EMPTY : number_at(all[i].keys, all[i].place);
        const Entry *entry = all[i].entry = number < 0 ? NULL : entries_of(all[i].keys) + number;
        if (!entry) continue;
        __builtin_prefetch(entry);
        __builtin_prefetch(&entry->value);
    }
    for (int i = 0; i < count; i++) {
        const Entry *entry = all[i].entry;
        all[i].item = entry && entry->hash == r->ahead[i].hash ? entry->value : NULL;
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
