/* Requests of the usual kinds: the counterpart of recognizer.py. */

/* Returns whether a word is a cas unique in canonical form: at most 19 digits, without leading zeros. */
static int is_unique(const char *at, const char *end) {
    return number(at, end) >= 0 && (end - at == 1 || *at != '0');
}

/* Returns whether [at, end) are flags of a meta set that do not affect its reply: an exptime and flags, each at most once. */
static int are_usual(const char *at, const char *end) {
    for (int seen = 0; at < end;) {
        const char *space = memchr(at, ' ', end - at), *word = space ? space : end;
        int bit = *at == 'T' ? 1 : *at == 'F' ? 2 : 0;
        if (!bit || seen & bit || small_number(at + 1, word) < 0) return 0;
        seen |= bit;
        if (!space) return 1;
        at = space + 1;
    }
    return 0;  /* ends with a space */
}

/* Returns the end of the storage command at `at`, whose line ends at `line`, if its value is complete and has at most `most`
 * bytes; NULL for anything else. Sets `key` and `key_end` to its key. Commands that recognizer.py leaves to the parser are
 * accepted only if `alone`. */
static const char *stored_end(const char *at, const char *line, const char *end, long most, int alone, const char **key,
                              const char **key_end) {
    enum { PLAIN, CAS, META };
    static const struct { const char *name; int size, kind; } kinds[] = {
        {"set ", 4, PLAIN}, {"add ", 4, PLAIN}, {"append ", 7, PLAIN}, {"cas ", 4, CAS}, {"ms ", 3, META}, {"prepend ", 8, PLAIN},
        {"replace ", 8, PLAIN}};
    const char *words[6];
    size_t which = 0, many = sizeof kinds / sizeof *kinds;
    int known = 1;
    while (which < many && (line - at < kinds[which].size || memcmp(at, kinds[which].name, kinds[which].size))) which++;
    /* A known key may have a line feed, which ends a line for nodes. */
    if (which == many || memchr(at, '\n', line - at)) return NULL;
    int kind = kinds[which].kind;
    if (kind != PLAIN && !alone) return NULL;
    *key = words[0] = at + kinds[which].size;
    for (const char *c = words[0]; c < line && known < 6; c++) if (*c == ' ') words[known++] = c + 1;
    if (kind == META ? known < 2 || known > 4 : known != (kind == CAS ? 5 : 4)) return NULL;
    words[known] = line + 1;
    int place = kind == META ? 1 : 3;  /* the place of the length */
    long length = small_number(words[place], words[place + 1] - 1);
    if (length < 0 || length > most || length > end - line - 4) return NULL;
    if (kind == META) {
        if (known > 2 && !are_usual(words[2], line)) return NULL;
    } else if (small_number(words[1], words[2] - 1) < 0 || small_number(words[2], words[3] - 1) < 0
               || (kind == CAS && !is_unique(words[4], line))) return NULL;
    const char *after = line + 4 + length;
    *key_end = words[1] - 1;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

/* Returns the key of a change that is one complete line and has one reply, and sets `key_end`. NULL for anything else. */
static const char *changed_key(const char *at, const char *end, const char **key_end) {
    static const struct { const char *name; int size, number; } kinds[] = {
        {"delete ", 7, 0}, {"incr ", 5, 1}, {"decr ", 5, 1}, {"touch ", 6, 1}, {"md ", 3, 0}};
    if (end - at < 6 || end[-2] != '\r' || end[-1] != '\n') return NULL;
    end -= 2;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (*at != *kinds[i].name || end - at <= kinds[i].size || memcmp(at, kinds[i].name, kinds[i].size)) continue;
        const char *key = at + kinds[i].size, *space = memchr(key, ' ', end - key);
        /* A known key may have a line feed, which ends a line for nodes. */
        if (!space != !kinds[i].number || memchr(key, '\n', end - key)) return NULL;
        if (space && small_number(space + 1, end) < 0) return NULL;
        *key_end = space ? space : end;
        return is_special(key, *key_end - key) ? NULL : key;
    }
    return NULL;
}
