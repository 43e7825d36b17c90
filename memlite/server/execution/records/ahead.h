/* Looking ahead on records: the counterpart of objects/ahead.h. The table prefetches the records that the next commands need. */

/* Whether the table has enough items for looking ahead to pay off. */
static int has_many(Runner *r) { return r->api->many(r->table); }

/* Sets `r->key` to the name of a key, if it has been computed ahead. */
static int take_ahead(Runner *r, Word key) {
    while (r->ahead_next < r->ahead_count && r->ahead[r->ahead_next].key <= key.at) {
        const Wanted *one = &r->ahead[r->ahead_next++];
        if (one->key != key.at || one->length != (uint32_t)key.size) continue;
        r->key = *one;
        return 1;
    }
    return 0;
}

/* The names refer to input that will be elsewhere the next time. */
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
