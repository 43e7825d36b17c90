/* Commands of the text protocol; its gets are in what knows the items. */

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
    int done = read_value(r, words[4], after, end, &value);
    if (done != DONE) return done;
    int outcome = store(r, mode, &v, words[1], words[2], value, (u64)unique, exptime);
    return outcome < DONE || quiet ? (outcome < DONE ? outcome : DONE) : answer_stored(r, outcome);
}

static int text_count(Runner *r, int down, Word *words, int count) {
    int quiet = count == 4 && IS(words[3], "noreply");
    long long delta = count == 3 || quiet ? read_number(words[2]) : -1;
    if (delta < 0) return STOP;
    View v;
    u64 number;
    int known = look(r, words[1], &v), done;
    if (known < DONE) return known;
    if ((done = known == ABSENT ? count_miss(r, down) : count_in_place(r, &v, (u64)delta, down, &number)) != DONE) return done;
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

static int text_gat(Runner *r, Word *words, int count) {
    long long exptime = count == 3 ? read_number(words[1]) : -1;
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

/* Carries out the command at `start`; `after` is where the next one begins then. */
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
        case COMMAND('g', 'a'): return IS(first, "gat") ? text_gat(r, words, count) : STOP;
        default: return STOP;
    }
}
