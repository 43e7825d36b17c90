/* Operations of commands on the records of a shared table: the counterpart of engine/shared_plain.py. Each reads an item
without a lock, and stores another if the item is still the same: as in Python, other processes may come in between. */

enum { TRIES = 4 };
#define MOST_COPIED ((uint32_t)MOST_REPLIES / 8)  /* bytes of an item; larger ones are left to the counterpart */

/* Forgets the time, as a call into Python may have taken long. The table itself does not move. */
static int follow(Runner *r) {
    r->timed = 0;
    return DONE;
}

static int can_run(Runner *r) { return 1; }

static inline int settle(Runner *r) { (void)r; return DONE; }  /* a run caches none of the table's numbers */

static void name_key(Runner *r, Word key, Wanted *to) {
    char line[LONGEST_KEY + 6] = "get ";
    memcpy(line + 4, key.at, key.size);
    memcpy(line + 4 + key.size, "\r\n", 2);
    Py_hash_t hash = r->hash(line, key.size + 6);
    r->api->name(to, key.at, (uint32_t)key.size, (uint64_t)(hash == -1 ? -2 : hash));
}

#include "ahead.h"

/* Sets `r->key` to the name of a key; the caller keeps its bytes. */
static void name(Runner *r, Word key) {
    if (!take_ahead(r, key)) name_key(r, key, &r->key);
}

static int read_item(Runner *r, Word key, char *to, View *v) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    name(r, key);
    int found = r->api->read(r->table, &r->key, to, MOST_COPIED, &v->seen);
    if (found != TABLE_DONE) return found == TABLE_ABSENT ? ABSENT : STOP;
    v->at = to;
    v->size = v->seen.length;
    v->expires = v->seen.expires;
    v->unique = r->cas ? v->seen.unique : 0;
    return DONE;
}

/* DONE, ABSENT, or STOP for an item that is not plain. */
static int look(Runner *r, Word key, View *v) { return read_item(r, key, r->copy, v); }

/* The name of the item that was looked up last. A touch applies to the item present by then, even if a key comes twice. */
#define NAMES_LAST 1
typedef Wanted Name;
static inline Name last_name(Runner *r) { return r->key; }
static inline void set_last_name(Runner *r, Name key) { r->key = key; }
static inline int is_same(Name one, Name other) { (void)one, (void)other; return 0; }

static inline int was_fetched(const View *v) { return (v->seen.state & FETCHED) != 0; }

/* Bytes of room in addition to the reply, as the item may be replaced by a larger one before it is
touched. */
#define ROOM_TO_TOUCH (MOST_COPIED + 64)

/* The seconds since the last use. */
static int idle_seconds(Runner *r, const View *v, long long *idle) {
    long long second = number_of(get(r->clock, &r->second)), used = r->origin + (v->seen.state >> STATE_BITS);
    *idle = second > used ? second - used : 0;
    return PyErr_Occurred() ? ERROR : DONE;
}

static int use_read(Runner *r, const View *v) {
    r->api->use(r->table, &v->seen);
    return DONE;
}

/* Stores a reply under the key that was named last, if the present item has the unique `condition`: TABLE_CHANGED
if it has not, STOP if the table's methods have to do it. */
static int write_item(Runner *r, const Frame *frame, double expires, u64 condition, int how, View *v) {
    Py_ssize_t size = frame_size(frame);
    char *to = r->api->reserve(r->table, (uint32_t)size);
    if (!to) return PyErr_Occurred() ? ERROR : STOP;
    write_frame(to, frame);
    uint64_t unique;
    int done = r->api->commit(r->table, &r->key, (uint32_t)size, expires, condition, how, &unique);
    if (v) v->unique = r->cas ? unique : 0;
    return done == TABLE_DONE ? DONE : done == TABLE_CHANGED ? TABLE_CHANGED : done == TABLE_ERROR ? ERROR : STOP;
}

/* The lookup of an absent key covers flushed items too. */
static inline int check_never_flushed(Runner *r) { (void)r; return DONE; }

/* Each item has a cas unique. */
static inline int assign(Runner *r, View *v, u64 compared) {
    (void)r, (void)v, (void)compared;
    return DONE;
}

static int stored(Runner *r, int done) {
    if (done != DONE) return done;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}

static inline int store_nothing(Runner *r) {
    COUNT(r, cmd_set);
    return DONE;
}

static int count_item(Runner *r, View *v, u64 delta, int down, u64 *number, int uses, const double *expires) {
    Word key = {r->key.key, r->key.length};
    char digits[20];
    for (int tries = 0;; tries++) {
        int counted = count_of_item(v, delta, down, number, digits);
        if (counted < DONE) return STOP;
        int grows = counted > GROWS;
        Frame frame = frame_of(key, flags_of(v, key.size), (Word){digits, grows ? counted - GROWS : value_size(v, value_at(v))}, (Word){"", 0});
        int how = !grows && v->seen.state & FETCHED ? STORE_FETCHED : 0;  /* it still counts as fetched */
        if (uses || grows) how |= how ? STORE_USED_TWICE : STORE_USED;
        if (!expires) how |= STORE_EXPIRY;
        int done = write_item(r, &frame, expires ? *expires : v->expires, v->seen.unique, how, v);
        if (done == DONE && grows) COUNT(r, total_items);  /* it counts as a new value; see `Engine._count` */
        if (done == DONE) break;
        if (done != TABLE_CHANGED) return done;
        if (tries == TRIES - 1 || look(r, key, v) != DONE) return STOP;
    }
    if (down) COUNT(r, decr_hits);
    else COUNT(r, incr_hits);
    return DONE;
}

static int count_in_place(Runner *r, View *v, u64 delta, int down, u64 *number) { return count_item(r, v, delta, down, number, 0, NULL); }

/* Counts like the counterpart without a shortcut, which looks the item up once more, and again to
mark it as fetched. Sets the expiry unless `expires` is NULL. */
static int count_in_general(Runner *r, View *v, u64 delta, int down, u64 *number, const double *expires) {
    return count_item(r, v, delta, down, number, 1, expires);
}

enum { MARKS_STALE = 0, REMOVES_ON_CONDITION = 0 };  /* neither can be done in one step */
static inline int mark_again(Runner *r, Word key, long long exptime) { (void)r, (void)key, (void)exptime; return STOP; }
static inline int mark_stale(Runner *r, View *v, double expires) { (void)r, (void)v, (void)expires; return STOP; }

/* Stores the first number of a key that is absent; see `_begin_count`. STOP if another process has
stored an item first. */
static int begin_count(Runner *r, View *v, Word key, u64 number, long long exptime) {
    char digits[20];
    double expires;
    Frame frame = frame_of(key, (Word){"0", 1}, (Word){digits, write_digits(digits, number)}, (Word){"", 0});
    if (expiry(r, exptime, &expires) < 0) return ERROR;
    int done = write_item(r, &frame, expires, 0, STORE_USED, v);
    if (done != DONE) return done == TABLE_CHANGED ? STOP : done;
    COUNT(r, total_items);
    return DONE;
}

static int count_miss(Runner *r, int down) {
    count_of(r, down ? N_decr_misses : N_incr_misses, 1);
    return DONE;
}

static int join(Runner *r, View *v, Word key, Word value, int before, int general) {
    for (int tries = 0;; tries++) {
        if (v->size + value.size + SAFE_DIGITS > r->safe_size) return STOP;
        const char *begin = value_at(v);
        Word old = {begin, value_size(v, begin)}, flags = flags_of(v, key.size);
        Frame frame = before ? frame_of(key, flags, value, old) : frame_of(key, flags, old, value);
        v->value_size = old.size + value.size;
        int done = write_item(r, &frame, v->expires, v->seen.unique, general ? STORE_EXPIRY | STORE_USED : STORE_EXPIRY, v);
        if (done != TABLE_CHANGED) return stored(r, done);
        if (tries == TRIES - 1 || look(r, key, v) != DONE) return STOP;
    }
}

/* Touches the present item of the key that was looked up last, which may be another, larger one by now. */
static int retime(Runner *r, View *v, long long exptime) {
    double expires;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    int room = make_room(r, ROOM_TO_TOUCH);
    if (room != DONE) return room;
    if (expiry(r, exptime, &expires) < 0) return ERROR;
    int done = r->api->touch(r->table, &r->key, expires, r->copy, MOST_COPIED, &v->seen);
    if (done != TABLE_DONE) return done == TABLE_ERROR ? ERROR : STOP;
    v->size = v->seen.length;
    v->unique = r->cas ? v->seen.unique : 0;
    v->expires = v->seen.expires;
    COUNT(r, cmd_touch);
    COUNT(r, touch_hits);
    return DONE;
}

static int touch_miss(Runner *r) {
    COUNT(r, cmd_touch);
    COUNT(r, touch_misses);
    return DONE;
}

static int get_miss(Runner *r) {
    COUNT(r, get_misses);
    return DONE;
}

static int delete_miss(Runner *r) {
    COUNT(r, delete_misses);
    return DONE;
}

/* Removes the present item of the key that was looked up last, which may be another by now. */
static int delete_item(Runner *r, const View *v) {
    int done = r->api->drop(r->table, &r->key);
    if (done != TABLE_DONE) return done == TABLE_ERROR ? ERROR : STOP;
    COUNT(r, delete_hits);
    return DONE;
}

/* `get <key>*`, and `gets` if the uniques are shown. No use is recorded before all items are known to be plain. */
static int text_get(Runner *r, const char *start, const char *at, const char *end, int uniques, const char **after) {
    _Atomic uint32_t *places[MOST_KEYS];
    Py_ssize_t hits = 0, misses = 0;
    View v;
    for (;; at++) {
        Word key = {at, 0};
        at = word_end(at, end);
        key.size = at - key.at;
        if (at == end || hits + misses == MOST_KEYS) return STOP;
        if (*at == ' ' && r->looks && r->ahead_next == r->ahead_count) look_ahead(r, key.at, end, 0, 1);
        int done = make_room(r, MOST_COPIED + 1 + 20 + END_SIZE);
        if (done != DONE) return done;
        char *to = r->reply + r->reply_size;
        int known = read_item(r, key, to, &v);
        if (known < DONE) return known;
        if (known == ABSENT) {
            if (asks_for_nodes(key)) return STOP;
            misses++;
        } else {
            places[hits++] = v.seen.at;
            Py_ssize_t size = v.size - END_SIZE;
            if (uniques) {
                char digits[20], *head = (char *)memchr(to, '\n', size) - 1;
                int length = write_digits(digits, v.unique);
                memmove(head + 1 + length, head, to + size - head);
                *head = ' ';
                memcpy(head + 1, digits, length);
                size += 1 + length;
            }
            r->reply_size += size;
        }
        if (*at == '\r' && at + 1 < end && at[1] == '\n') break;
        if (*at != ' ') return STOP;
    }
    *after = at + 2;
    APPEND(r, "END\r\n");
    for (Py_ssize_t i = 0; i < hits; i++) r->api->use(r->table, &(Seen){.at = places[i]});
    if (hits) count_of(r, N_hits, hits);
    if (misses) count_of(r, N_get_misses, misses);
    return DONE;
}

/* Stores a value under the key that was looked up last with the result `known`; returns one of STORED to NOT_FOUND, or STOP
if the counterpart has to do it. Afterwards, the view has the unique. */
static inline int store_known(Runner *r, int how, View *v, int known, Word key, Word flags, Word value, u64 unique, long long exptime) {
    enum Mode mode = how % GENERAL;
    int general = how >= GENERAL, uses = general ? STORE_USED : 0;
    double expires;
    Frame frame = frame_of(key, flags, value, (Word){"", 0});
    if (expiry(r, exptime, &expires) < 0) return ERROR;
    v->value_size = value.size;
    if (mode == SET) return stored(r, write_item(r, &frame, expires, ANY, uses, v));
    for (int tries = 0; tries < TRIES; tries++) {
        int done;
        if (tries && (known = look(r, key, v)) < DONE) return known;
        if (mode == ADD && known == ABSENT) done = write_item(r, &frame, expires, 0, uses, v);
        else if (known == ABSENT || mode == ADD) {
            COUNT(r, cmd_set);
            if (mode == CAS) COUNT(r, cas_misses);
            return mode == CAS ? NOT_FOUND : NOT_STORED;
        } else if (mode == APPEND_TO || mode == PREPEND_TO) return join(r, v, key, value, mode == PREPEND_TO, general);
        else if (mode == CAS && (!r->cas || v->unique != unique)) {
            COUNT(r, cmd_set);
            COUNT(r, cas_badval);
            return EXISTS;
        } else done = write_item(r, &frame, expires, v->seen.unique, uses, v);
        if (done == TABLE_CHANGED) continue;
        if (done == DONE && mode == CAS) COUNT(r, cas_hits);
        return stored(r, done);
    }
    return STOP;
}

static int store(Runner *r, int how, View *v, Word key, Word flags, Word value, u64 unique, long long exptime) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    if (how % GENERAL == SET) {  /* unconditional: as `store_known` does, but without a lookup */
        double expires;
        Frame frame = frame_of(key, flags, value, (Word){"", 0});
        name(r, key);
        v->value_size = value.size;
        if (expiry(r, exptime, &expires) < 0) return ERROR;
        return stored(r, write_item(r, &frame, expires, ANY, how == SET ? 0 : STORE_USED, v));
    }
    int known = look(r, key, v);
    return known < DONE ? known : store_known(r, how, v, known, key, flags, value, unique, exptime);
}

/* Stores like a set in general: afterwards, the view has the unique. */
static int store_for_unique(Runner *r, View *v, int known, Word key, Word flags, Word value, long long exptime, int shown) {
    (void)shown;
    return store_known(r, SET + GENERAL, v, known, key, flags, value, 0, exptime);
}
