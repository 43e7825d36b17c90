/* Commands of the text protocol, except gets, which depend on how items are stored. */

static int answer_stored(Runner *r, int outcome) {
    switch (outcome) {
        case STORED: return ANSWER(r, "STORED\r\n");
        case NOT_STORED: return ANSWER(r, "NOT_STORED\r\n");
        case EXISTS: return ANSWER(r, "EXISTS\r\n");
        case NOT_FOUND: return ANSWER(r, "NOT_FOUND\r\n");
        default: return outcome;
    }
}

/* `<command> <key> <flags> <exptime> <bytes> [<unique>] [noreply]`. */
static int text_store(Runner *r, enum Mode mode, Word *words, int count, const char **after, const char *end) {
    int expected = mode == CAS ? 6 : 5, quiet = count == expected + 1 && IS(words[expected], "noreply");
    Word value;
    long long unique = 0, exptime;
    if ((count != expected && !quiet) || !is_flags(words[2])) return STOP;
    if ((exptime = read_number(words[3])) < 0 || exptime > INT_MAX) return STOP;
    if (mode == CAS && (quiet || (unique = read_number(words[5])) < 0)) return STOP;
    View v;
    if (words[1].size > LONGEST_KEY) return STOP;
    int done = read_value(r, words[4], after, end, &value);
    if (done != DONE) return done;
    int outcome = store(r, mode, &v, words[1], words[2], value, (u64)unique, exptime);
    return outcome < DONE || quiet ? (outcome < DONE ? outcome : DONE) : answer_stored(r, outcome);
}

#define NON_NUMERIC "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"

static int text_count(Runner *r, int down, Word *words, int count) {
    int quiet = count == 4 && IS(words[3], "noreply");
    long long delta = count == 3 || quiet ? read_number(words[2]) : -1;
    if (delta < 0) return STOP;
    View v;
    u64 number;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    done = known == ABSENT ? count_miss(r, down) : count_in_place(r, &v, (u64)delta, down, &number);
    if (done == STOP && known == DONE && is_no_number(&v)) return quiet ? DONE : ANSWER(r, NON_NUMERIC);
    if (done != DONE) return done;
    if (quiet) return DONE;
    if (known == ABSENT) return ANSWER(r, "NOT_FOUND\r\n");
    append_number(r, number);
    return ANSWER(r, "\r\n");
}

static int text_touch(Runner *r, Word *words, int count) {
    int quiet = count == 4 && IS(words[3], "noreply");
    long long exptime = count == 3 || quiet ? read_number(words[2]) : -1;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    View v;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    if ((done = known == ABSENT ? touch_miss(r) : retime(r, &v, exptime)) != DONE || quiet) return done;
    return known == ABSENT ? ANSWER(r, "NOT_FOUND\r\n") : ANSWER(r, "TOUCHED\r\n");
}

/* Appends an item without END, with its cas unique if that is shown. */
static void append_view(Runner *r, const View *v, int uniques) {
    Py_ssize_t size = v->size - END_SIZE;
    if (uniques) {
        Py_ssize_t head = (const char *)memchr(v->at, '\n', size) - 1 - v->at;
        append(r, v->at, head);
        APPEND(r, " ");
        append_number(r, v->unique);
        append(r, v->at + head, size - head);
    } else append(r, v->at, size);
}

/* The item found for one key of a gat of several keys. */
typedef struct { View v; int known; Name name; } Found;

/* Looks up the keys of a gat, and makes room for the reply; nothing is changed. */
static int find_to_touch(Runner *r, const Word *keys, int count, const char *end, Found *found) {
    Py_ssize_t room = END_SIZE;
    int misses = 0;
    for (int i = 0; i < count; i++) {
        Found *one = found + i;
        if (i + 1 < count && r->looks && r->ahead_next == r->ahead_count) look_ahead(r, keys[i].at, end, 0, 1);
        if ((one->known = look(r, keys[i], &one->v)) < DONE) return one->known;
        if (one->known == ABSENT) misses++;
        else {
            one->name = last_name(r);
            room += one->v.size + 1 + 20;
        }
    }
    int done = misses ? check_never_flushed(r) : DONE;
    return done == DONE ? make_room(r, room + ROOM_TO_TOUCH) : done;
}

/* Makes an item that was found earlier the one that was looked up last. If its key occurs twice,
looks it up once more, as it may have been replaced in the meantime. */
static int return_to(Runner *r, const Word *keys, Found *found, int which) {
    if (!NAMES_LAST) return look(r, keys[which], &found[which].v);
    for (int i = 0; i < which; i++) {
        if (found[i].known == DONE && is_same(found[i].name, found[which].name)) return look(r, keys[which], &found[which].v);
    }
    set_last_name(r, found[which].name);
    return DONE;
}

/* `gat <exptime> <key>*`, and `gats` if the uniques are shown. */
static NOT_INLINE int text_gats(Runner *r, int uniques, Word *words, int count, const char *end) {
    long long exptime = count > 2 ? read_number(words[1]) : -1;
    Found found[MOST_WORDS];
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    words += 2;
    count -= 2;
    int done = find_to_touch(r, words, count, end, found);
    if (done != DONE) return done;
    if (count > 1 && exptime > MONTH) {  /* a key that occurs twice may have expired */
        if (now(r) < 0) return ERROR;
        if ((double)exptime <= r->now) return STOP;
    }
    long long all = r->count[N_cmd_touch], hits = r->count[N_touch_hits], misses = r->count[N_touch_misses];
    for (int i = 0; i < count && done == DONE; i++) {
        View *v = &found[i].v;
        int known = found[i].known;
        if (known == DONE) known = return_to(r, words, found, i);
        done = known == DONE ? retime(r, v, exptime) : known == ABSENT ? touch_miss(r) : known;
        if (done != DONE || known == ABSENT) continue;
        if (uniques) done = assign(r, v, 0);
        append_view(r, v, uniques);
    }
    if (done == DONE) {
        APPEND(r, "END\r\n");
        return DONE;
    }
    /* Another process changed an item first: the counterpart touches all of them again, and counts
    that. */
    r->count[N_cmd_touch] = all;
    r->count[N_touch_hits] = hits;
    r->count[N_touch_misses] = misses;
    return done;
}

/* `gat <exptime> <key>`. */
static int text_gat(Runner *r, Word *words) {
    long long exptime = read_number(words[1]);
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    View v;
    int known = look(r, words[2], &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) return (done = touch_miss(r)) == DONE ? ANSWER(r, "END\r\n") : done;
    if ((done = make_room(r, v.size)) != DONE) return done;
    if ((done = retime(r, &v, exptime)) == DONE) append(r, v.at, v.size);
    return done;
}

static int text_delete(Runner *r, Word *words, int count) {
    int quiet = count == 3 && IS(words[2], "noreply"), done;
    View v;
    if ((count != 2 && !quiet) || IS(words[1], "noreply")) return STOP;
    int known = look(r, words[1], &v);
    if (known < DONE) return known;
    if ((done = known == ABSENT ? delete_miss(r) : delete_item(r, &v)) != DONE || quiet) return done;
    return known == ABSENT ? ANSWER(r, "NOT_FOUND\r\n") : ANSWER(r, "DELETED\r\n");
}

#include "meta.h"

#define COMMAND(first, second) ((first) << 8 | (second))

/* Carries out the command at `start`; `after` is set to where the next one begins. */
static int text_command(Runner *r, const char *start, const char *end, const char **after) {
    if (end - start > 6 && !memcmp(start, "get", 3)) {
        if (start[3] == ' ') return text_get(r, start, start + 4, end, 0, after);
        if (start[3] == 's' && start[4] == ' ') return text_get(r, start, start + 5, end, 1, after);
    }
    Word words[MOST_WORDS];
    int count = read_words(start, end, words, MOST_WORDS, after);
    if (count < 1 || words[0].size < 2) return STOP;
    if (count == 1) return IS(words[0], "mn") ? ANSWER(r, "MN\r\n") : STOP;
    Word first = words[0];
    switch (COMMAND(first.at[0], first.at[1])) {
        case COMMAND('m', 'g'): return first.size == 2 ? meta_get(r, words, count) : STOP;
        case COMMAND('m', 's'): return first.size == 2 ? meta_set(r, words, count, after, end) : STOP;
        case COMMAND('m', 'd'): return first.size == 2 ? meta_delete(r, words, count) : STOP;
        case COMMAND('m', 'a'): return first.size == 2 ? meta_count(r, words, count) : STOP;
        case COMMAND('s', 'e'): return IS(first, "set") ? text_store(r, SET, words, count, after, end) : STOP;
        case COMMAND('a', 'd'): return IS(first, "add") ? text_store(r, ADD, words, count, after, end) : STOP;
        case COMMAND('r', 'e'): return IS(first, "replace") ? text_store(r, REPLACE, words, count, after, end) : STOP;
        case COMMAND('a', 'p'): return IS(first, "append") ? text_store(r, APPEND_TO, words, count, after, end) : STOP;
        case COMMAND('p', 'r'): return IS(first, "prepend") ? text_store(r, PREPEND_TO, words, count, after, end) : STOP;
        case COMMAND('c', 'a'): return IS(first, "cas") ? text_store(r, CAS, words, count, after, end) : STOP;
        case COMMAND('i', 'n'): return IS(first, "incr") ? text_count(r, 0, words, count) : STOP;
        case COMMAND('d', 'e'):
            return IS(first, "decr") ? text_count(r, 1, words, count) : IS(first, "delete") ? text_delete(r, words, count) : STOP;
        case COMMAND('t', 'o'): return IS(first, "touch") ? text_touch(r, words, count) : STOP;
        case COMMAND('g', 'a'): return IS(first, "gat") && count == 3 ? text_gat(r, words)
                                           : IS(first, "gat") || IS(first, "gats") ? text_gats(r, first.size == 4, words, count, end) : STOP;
        default: return STOP;
    }
}
