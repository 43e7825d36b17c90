/* Looking ahead on records: the counterpart of objects/ahead.h. The table fetches what the next commands need into the cache. */

/* Whether the table has so many items that looking ahead pays. */
static int has_many(Runner *r) { return r->api->many(r->table); }

/* Makes `r->key` the name of a key, if that has been made. */
static int take_ahead(Runner *r, Word key) {
    while (r->ahead_next < r->ahead_count && r->ahead[r->ahead_next].key <= key.at) {
        const Wanted *one = &r->ahead[r->ahead_next++];
        if (one->key != key.at || one->length != (uint32_t)key.size) continue;
        r->key = *one;
        return 1;
    }
    return 0;
}

/* The names are those of bytes that are received next time elsewhere. */
static void forget_ahead(Runner *r) { r->ahead_next = r->ahead_count = 0; }

static void look_ahead(Runner *r, const char *at, const char *end, int binary, int in_get) {
    Word found[AHEAD];
    Py_ssize_t most = r->at_most - r->served;
    int count = binary ? find_packet_keys(found, at, end, most, &r->looked)
                       : find_keys(found, at, end, most, in_get, &r->looked);
    if (count < 2) return;
    for (int i = 0; i < count; i++) name_key(r, found[i], &r->ahead[i]);
    r->ahead_next = 0;
    r->ahead_count = count;
    r->api->fetch(r->table, r->ahead, count);
}
