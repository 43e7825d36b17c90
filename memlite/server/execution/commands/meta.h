/* Meta commands. */

/* Appends the opaque and the key, where requested, in the order of the flags: see `_echo`. */
static void echo(Runner *r, Word *flags, int count, Word key) {
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag != 'O' && flag != 'k') continue;
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 'k') append(r, key.at, key.size);
    }
}

/* Checks the flags: each once, those in `letters` without a value, those in `valued` with one. Returns the set of
letters, as bits from '@' on; 0 for any other flags, which are left to the counterpart. */
static u64 read_flags(Word *flags, int count, const char *letters, const char *valued) {
    u64 seen = 1;
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag < '@' || flag > 'z') return 0;
        u64 bit = (u64)1 << (flag - '@');
        const char *among = flags[i].size == 1 ? letters : valued;
        if (seen & bit || !strchr(among, flag) || flags[i].size > 32) return 0;
        seen |= bit;
    }
    return seen;
}
#define HAS(seen, flag) ((seen) >> ((flag) - '@') & 1)
#define BIT(flag) ((u64)1 << ((flag) - '@'))

/* What an mg rarely requests: touching and recaching, with times that are -1 if absent, and how the
item had been used before. */
typedef struct { long long touch, recache, idle; int recache_first, fetched; } Rare;
#define RARE (BIT('T') | BIT('N') | BIT('R') | BIT('u') | BIT('h') | BIT('l'))

/* Reads these flags; STOP for unusual values. */
static NOT_INLINE int read_rare(Word *flags, int count, u64 seen, Rare *rare) {
    *rare = (Rare){.touch = -1, .recache = -1};
    for (int i = 0; i < count; i++) {
        Word rest = {flags[i].at + 1, flags[i].size - 1};
        char flag = *flags[i].at;
        if (flag != 'T' && flag != 'R' && flag != 'N') continue;
        long long number = read_number(rest);
        if (number < 0 || number > INT_MAX) return STOP;
        if (flag == 'T') rare->touch = number;
        else if (flag == 'R') {
            rare->recache = number;
            rare->recache_first = rare->touch < 0;
        }
    }
    return HAS(seen, 'T') && HAS(seen, 'u') ? STOP : DONE;
}

/* Checks that no client wins the right to recache, and that the item is still present afterwards; STOP otherwise: see
`retrieve`. */
static int check_no_winner(Runner *r, const View *v, const Rare *rare) {
    double expires = v->expires, soon;
    if (rare->touch > MONTH && (double)rare->touch <= r->now) return STOP;  /* it expires at once */
    if (rare->recache < 0) return DONE;
    if (rare->touch >= 0 && !rare->recache_first && expiry(r, rare->touch, &expires) < 0) return ERROR;
    if (expiry(r, rare->recache, &soon) < 0) return ERROR;
    return expires && (long long)expires < (long long)soon ? STOP : DONE;
}

/* Touches or uses an item as requested, and makes room for the reply. */
static NOT_INLINE int use_rare(Runner *r, View *v, u64 seen, Rare *rare) {
    int done = now(r);
    if (done != DONE) return done;
    if (v->expires && v->expires <= r->now) return STOP;  /* it has just expired */
    if ((done = check_no_winner(r, v, rare)) != DONE) return done;
    if ((done = make_room(r, v->size + (HAS(seen, 'T') ? ROOM_TO_TOUCH : 0) + 1024)) != DONE) return done;
    if (HAS(seen, 'l') && (done = idle_seconds(r, v, &rare->idle)) != DONE) return done;
    rare->fetched = was_fetched(v);
    if (HAS(seen, 'T')) return retime(r, v, rare->touch);
    COUNT(r, hits);
    return HAS(seen, 'u') ? DONE : use_read(r, v);
}

static void append_time_to_live(Runner *r, double expires) {
    if (!expires) {
        APPEND(r, "-1");
        return;
    }
    double seconds = expires > r->now ? expires - r->now : 0;
    u64 left = (u64)seconds;
    append_number(r, left + (seconds > (double)left));
}

static int meta_get(Runner *r, Word *words, int count) {
    Word key = words[1], *flags = words + 2;
    View v;
    Rare rare;
    count -= 2;
    u64 seen = read_flags(flags, count, "vsftkqchlu", "OTNR");
    if (!seen || (seen & RARE && read_rare(flags, count, seen, &rare) != DONE)) return STOP;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) {
        if (HAS(seen, 'N')) return STOP;
        if ((done = get_miss(r)) != DONE || HAS(seen, 'q')) return done;
        APPEND(r, "EN");
        echo(r, flags, count, key);
        return ANSWER(r, "\r\n");
    }
    if (seen & RARE) {
        if ((done = use_rare(r, &v, seen, &rare)) != DONE) return done;
    } else {
        if (v.expires && HAS(seen, 't') && now(r) < 0) return ERROR;
        if (v.expires && HAS(seen, 't') && v.expires <= r->now) return STOP;  /* it has just expired */
        if ((done = make_room(r, v.size + 1024)) != DONE || (done = use_read(r, &v)) != DONE) return done;
        COUNT(r, hits);
    }
    if (HAS(seen, 'c') && assign(r, &v, 0) < 0) return ERROR;
    const char *value = value_at(&v);
    Word client_flags = flags_of(&v, key.size), size = size_after(client_flags, value);
    if (HAS(seen, 'v')) {
        APPEND(r, "VA ");
        append(r, size.at, size.size);
    } else APPEND(r, "HD");
    double expires = v.expires;  /* before it was touched */
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag == 'v' || flag == 'q' || flag == 'N' || flag == 'R' || flag == 'u') continue;
        if (flag == 'T') {
            if (expiry(r, rare.touch, &expires) < 0) return ERROR;
            continue;
        }
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 's') append(r, size.at, size.size);
        else if (flag == 'f') append(r, client_flags.at, client_flags.size);
        else if (flag == 'c') append_number(r, v.unique);
        else if (flag == 'k') append(r, key.at, key.size);
        else if (flag == 't') append_time_to_live(r, expires);
        else if (flag == 'h') append_number(r, (u64)rare.fetched);
        else if (flag == 'l') append_number(r, (u64)rare.idle);
    }
    APPEND(r, "\r\n");
    if (HAS(seen, 'v')) append(r, value, value_size(&v, value) + 2);
    return DONE;
}

/* The mode of an ms; -1 if it is left to the counterpart. If `compared` (flag C), SET and REPLACE
become CAS. */
static NOT_INLINE int mode_of(Word letter, int compared) {
    static const char letters[] = "SERAP";
    static const char modes[] = {SET, ADD, REPLACE, APPEND_TO, PREPEND_TO};
    const char *found = letter.size == 1 ? strchr(letters, *letter.at) : NULL;
    if (!found || !*letter.at) return -1;
    int mode = modes[found - letters];
    return !compared ? mode : mode == SET || mode == REPLACE ? CAS : -1;
}

static int meta_set(Runner *r, Word *words, int count, const char **after, const char *end) {
    Word *flags = words + 3, client_flags = {"0", 1}, mode_letter = {"S", 1}, value;
    long long exptime = 0, compared = 0;
    if (count < 3) return STOP;
    count -= 3;
    u64 seen = read_flags(flags, count, "qkcsI", "OFTCM");
    if (!seen) return STOP;
    for (int i = 0; i < count; i++) {
        Word rest = {flags[i].at + 1, flags[i].size - 1};
        switch (*flags[i].at) {
            case 'F':
                if (!is_flags(rest)) return STOP;
                client_flags = rest;
                break;
            case 'T': if ((exptime = read_number(rest)) < 0 || exptime > INT_MAX) return STOP; else break;
            case 'C': if ((compared = read_number(rest)) < 0) return STOP; else break;
            case 'M': mode_letter = rest;
        }
    }
    int mode = !count ? SET : mode_of(mode_letter, HAS(seen, 'C') != 0);
    if (mode < 0 || (mode == CAS && HAS(seen, 'I'))) return STOP;  /* an older value may be stored as stale */
    if (words[1].size > LONGEST_KEY) return STOP;
    View v;
    int outcome = read_value(r, words[2], after, end, &value);
    if (outcome != DONE) return outcome;
    outcome = store(r, count ? mode + GENERAL : mode, &v, words[1], client_flags, value, (u64)compared, exptime);
    if (outcome < DONE || (outcome == STORED && HAS(seen, 'q'))) return outcome;
    if (outcome == STORED && HAS(seen, 'c') && assign(r, &v, 0) < 0) return ERROR;
    if (outcome == STORED) APPEND(r, "HD");
    else if (outcome == NOT_STORED) APPEND(r, "NS");
    else if (outcome == EXISTS) APPEND(r, "EX");
    else APPEND(r, "NF");
    for (int i = 0; i < count; i++) {
        char flag = *flags[i].at;
        if (!strchr("Okcs", flag)) continue;
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 'k') append(r, words[1].at, words[1].size);
        else if (flag == 'c') append_number(r, outcome == STORED ? v.unique : 0);
        else if (flag == 's') append_number(r, (u64)(outcome == STORED ? v.value_size : value.size));
    }
    return ANSWER(r, "\r\n");
}

/* Removes an item or marks it as stale. Returns STORED, EXISTS if its cas unique differs, or an
error. */
static int meta_remove(Runner *r, View *v, u64 seen, long long exptime, u64 compared) {
    if (HAS(seen, 'C')) {
        int done = assign(r, v, compared);
        if (done == DONE && v->unique != compared) count_of(r, N_delete_misses, 1);
        if (done != DONE || v->unique != compared) return done == DONE ? EXISTS : done;
    }
    if (!HAS(seen, 'I')) return delete_item(r, v);
    double expires = v->expires;
    if (HAS(seen, 'T') && expiry(r, exptime, &expires) < 0) return ERROR;
    return mark_stale(r, v, expires);
}

static int meta_delete(Runner *r, Word *words, int count) {
    View v;
    long long exptime = 0, compared = 0;
    u64 seen = read_flags(words + 2, count - 2, "qkI", "OCT");
    if (!seen) return STOP;
    for (int i = 2; i < count; i++) {
        Word rest = {words[i].at + 1, words[i].size - 1};
        if (*words[i].at == 'T' && ((exptime = read_number(rest)) < 0 || exptime > INT_MAX)) return STOP;
        if (*words[i].at == 'C' && (compared = read_number(rest)) < 0) return STOP;
    }
    if ((HAS(seen, 'I') && (HAS(seen, 'C') || !MARKS_STALE)) || (HAS(seen, 'C') && !REMOVES_ON_CONDITION)) return STOP;
    int known = look(r, words[1], &v), done;
    if (known == STOP && HAS(seen, 'I')) {
        if ((done = mark_again(r, words[1], HAS(seen, 'T') ? exptime : -1)) != DONE) return done;
        known = DONE;
    } else if (known < DONE) return known;
    else done = known == ABSENT ? delete_miss(r) : meta_remove(r, &v, seen, exptime, (u64)compared);
    if (done < DONE || (known == DONE && done == DONE && HAS(seen, 'q'))) return done;
    if (done == EXISTS) APPEND(r, "EX");
    else if (known == DONE) APPEND(r, "HD");
    else APPEND(r, "NF");
    echo(r, words + 2, count - 2, words[1]);
    return ANSWER(r, "\r\n");
}

/* The request of an ma. */
typedef struct { long long delta, initial, vivify, touch, made_with; int down; } Counting;

/* Reads the flags of an ma; STOP for unusual values. */
static NOT_INLINE int read_counting(Word *flags, int count, Counting *c) {
    for (int i = 0; i < count; i++) {
        Word rest = {flags[i].at + 1, flags[i].size - 1};
        char flag = *flags[i].at;
        if (flag == 'M') {
            if (rest.size != 1 || !strchr("I+D-", *rest.at)) return STOP;
            c->down = *rest.at == 'D' || *rest.at == '-';
        }
        if (flag == 'M' || !rest.size || flag == 'O') continue;
        long long number = read_number(rest);
        if (number < 0 || ((flag == 'N' || flag == 'T') && number > INT_MAX)) return STOP;
        if (flag == 'D') c->delta = number;
        else if (flag == 'J') c->initial = number;
        else if (flag == 'T') c->touch = c->made_with = number;
        else c->vivify = c->made_with = number;
    }
    return DONE;
}

static int meta_count(Runner *r, Word *words, int count) {
    Word key = words[1], *flags = words + 2;
    /* The counterpart has a shortcut for these forms only; it records fewer uses of the items of a
    shared table. */
    int usual = count == 2 || (count == 3 && IS(words[2], "v"));
    count -= 2;
    u64 seen = read_flags(flags, count, "vqkct", "ODMNJT"), number;
    Counting c = {1, 0, -1, -1, 0, 0};
    double expires, later = 0;
    if (!seen || (!usual && read_counting(flags, count, &c) != DONE)) return STOP;
    if (c.touch >= 0 && expiry(r, c.touch, &later) < 0) return ERROR;
    View v;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    int created = known == ABSENT && c.vivify >= 0;
    if (created) {
        number = (u64)c.initial;
        v.expires = 0;
        done = begin_count(r, &v, key, number, c.made_with);
    } else if (known == ABSENT) {
        if ((done = count_miss(r, c.down)) != DONE) return done;
        APPEND(r, "NF");
        echo(r, flags, count, key);
        return ANSWER(r, "\r\n");
    } else done = usual ? count_in_place(r, &v, (u64)c.delta, c.down, &number)
                      : count_in_general(r, &v, (u64)c.delta, c.down, &number, c.touch < 0 ? NULL : &later);
    if (done == STOP && known == DONE && is_no_number(&v)) return ANSWER(r, NON_NUMERIC);
    if (done != DONE || HAS(seen, 'q')) return done;
    if (HAS(seen, 'c') && assign(r, &v, 0) < 0) return ERROR;
    expires = v.expires;  /* before it was touched */
    if (HAS(seen, 't') && now(r) < 0) return ERROR;
    char digits[20];
    int length = write_digits(digits, number);
    if (HAS(seen, 'v')) {
        APPEND(r, "VA ");
        append_number(r, (u64)length);
    } else APPEND(r, "HD");
    for (int i = 0; i < count; i++) {
        char flag = flags[i].at[0];
        if (flag == 'T') expires = later;
        else if (flag == 'N' && created && expiry(r, c.vivify, &expires) < 0) return ERROR;
        if (!strchr("Okct", flag)) continue;
        APPEND(r, " ");
        append(r, flags[i].at, flags[i].size);
        if (flag == 'k') append(r, key.at, key.size);
        else if (flag == 'c') append_number(r, v.unique);
        else if (flag == 't') append_time_to_live(r, expires);
    }
    APPEND(r, "\r\n");
    if (!HAS(seen, 'v')) return DONE;
    append(r, digits, length);
    return ANSWER(r, "\r\n");
}
