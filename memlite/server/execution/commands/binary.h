/* Commands of the binary protocol. */

enum {
    OP_GET, OP_SET, OP_ADD, OP_REPLACE, OP_DELETE, OP_INCR, OP_DECR, OP_GETQ = 9, OP_NOOP, OP_GETK = 12, OP_GETKQ, OP_APPEND,
    OP_PREPEND, OP_SETQ = 17, OP_ADDQ, OP_REPLACEQ, OP_DELETEQ, OP_INCRQ, OP_DECRQ, OP_APPENDQ = 25, OP_PREPENDQ,
    OP_TOUCH = 28, OP_GAT, OP_GATQ, OP_GATK = 35, OP_GATKQ
};
enum { NO_SUCH_KEY = 1, OTHER_UNIQUE = 2, NONE_STORED = 5, NO_NUMBER = 6 };  /* statuses */
#define DO_NOT_CREATE 0xFFFFFFFF  /* an exptime */

typedef struct {
    int opcode;
    u64 cas;
    Word opaque, extras, key, value;
} Packet;

static u64 read_big(const char *at, int size) {
    u64 number = 0;
    for (int i = 0; i < size; i++) number = number << 8 | (unsigned char)at[i];
    return number;
}

static char *write_big(char *to, u64 number, int size) {
    for (int i = size; i--; number >>= 8) to[i] = (char)number;
    return to + size;
}

static void append_header(Runner *r, const Packet *p, int key, int extras, int status, u64 body, u64 unique) {
    char *to = r->reply + r->reply_size;
    *to++ = (char)0x81;
    *to++ = (char)p->opcode;
    to = write_big(to, (u64)key, 2);
    *to++ = (char)extras;
    *to++ = 0;
    to = write_big(to, (u64)status, 2);
    to = write_big(to, body, 4);
    memcpy(to, p->opaque.at, 4);
    write_big(to + 4, unique, 8);
    r->reply_size += HEADER;
}

static void append_big(Runner *r, u64 number, int size) {
    write_big(r->reply + r->reply_size, number, size);
    r->reply_size += size;
}

/* Whether a successful command has no reply. */
static inline int is_quiet(int opcode) { return opcode >= OP_SETQ && opcode <= OP_PREPENDQ; }

/* Appends the reply to a successful change of an item, and assigns the item a cas unique if it has
none; does nothing for a quiet command. */
static inline int succeed(Runner *r, const Packet *p, View *v) {
    if (is_quiet(p->opcode)) return DONE;
    if (!v->unique && assign(r, v, 0) < 0) return ERROR;
    append_header(r, p, 0, 0, 0, 0, v->unique);
    return DONE;
}

static int fail(Runner *r, const Packet *p, int status) {
    const char *text = status == NO_SUCH_KEY ? "Not found" : status == OTHER_UNIQUE ? "Data exists for key."
                       : status == NONE_STORED ? "Not stored." : "Non-numeric server-side value for incr or decr";
    size_t size = strlen(text);
    append_header(r, p, 0, 0, status, size, 0);
    append(r, text, (Py_ssize_t)size);
    return DONE;
}

/* Appends the reply to a get, or a get and touch, that found no item. */
static int binary_miss(Runner *r, const Packet *p, int quiet, int with_key) {
    if (quiet) return DONE;
    if (!with_key) return fail(r, p, NO_SUCH_KEY);
    append_header(r, p, (int)p->key.size, 0, NO_SUCH_KEY, (u64)p->key.size, 0);
    append(r, p->key.at, p->key.size);
    return DONE;
}

/* Appends the reply to a get or a touch that found an item; there must be room. */
static inline int binary_hit(Runner *r, const Packet *p, View *v, int with_key) {
    if (!v->unique && assign(r, v, 0) < 0) return ERROR;
    const char *begin = value_at(v);
    Word value = {begin, p->opcode == OP_TOUCH ? 0 : value_size(v, begin)}, flags = flags_of(v, p->key.size);
    Py_ssize_t key = with_key ? p->key.size : 0;
    append_header(r, p, (int)key, 4, 0, (u64)(4 + key + value.size), v->unique);
    append_big(r, IS_ZERO(flags) ? 0 : (u64)read_number(flags), 4);
    append(r, p->key.at, key);
    append(r, value.at, value.size);
    return DONE;
}

static int binary_get(Runner *r, const Packet *p, View *v, int known) {
    int with_key = p->opcode == OP_GETK || p->opcode == OP_GETKQ, quiet = p->opcode == OP_GETQ || p->opcode == OP_GETKQ;
    int done;
    if (p->extras.size || p->value.size) return STOP;
    if (known == ABSENT) {
        if (asks_for_nodes(p->key)) return STOP;
        return (done = get_miss(r)) != DONE ? done : binary_miss(r, p, quiet, with_key);
    }
    if ((done = make_room(r, v->size + 1024)) != DONE || (done = use_read(r, v)) != DONE) return done;
    COUNT(r, hits);
    return binary_hit(r, p, v, with_key);
}

static int binary_touch(Runner *r, const Packet *p, View *v, int known) {
    int with_key = p->opcode == OP_GATK || p->opcode == OP_GATKQ, quiet = p->opcode == OP_GATQ || p->opcode == OP_GATKQ;
    int done;
    if (p->extras.size != 4 || p->value.size) return STOP;
    if (known == ABSENT) return (done = touch_miss(r)) != DONE ? done : binary_miss(r, p, quiet, with_key);
    if ((done = make_room(r, v->size + ROOM_TO_TOUCH + 1024)) != DONE) return done;
    done = retime(r, v, (long long)read_big(p->extras.at, 4));
    return done != DONE ? done : binary_hit(r, p, v, with_key);
}

/* SET, ADD and REPLACE; if the request has a cas unique, only if it is the item's. */
static int binary_store(Runner *r, const Packet *p, View *v, int known) {
    if (p->extras.size != 8 || p->value.size > r->safe_size) return STOP;
    char digits[20];
    Word flags = {digits, write_digits(digits, read_big(p->extras.at, 4))};
    long long exptime = (long long)read_big(p->extras.at + 4, 4);
    if (exptime > INT_MAX || (p->cas && !r->cas)) return STOP;
    int quiet = is_quiet(p->opcode), plain = (p->opcode == OP_SET || p->opcode == OP_SETQ) && !p->cas;
    enum Mode mode = p->opcode == OP_ADD || p->opcode == OP_ADDQ ? ADD : REPLACE;
    int outcome = plain ? store_for_unique(r, v, known, p->key, flags, p->value, exptime, !quiet)
                        : store_known(r, (p->cas ? CAS : mode) + GENERAL, v, known, p->key, flags, p->value, p->cas, exptime);
    if (outcome == STORED) return succeed(r, p, v);
    if (outcome < DONE) return outcome;
    return fail(r, p, outcome == EXISTS || (outcome == NOT_STORED && mode == ADD) ? OTHER_UNIQUE : NO_SUCH_KEY);
}

static int binary_join(Runner *r, const Packet *p, View *v, int known, int before) {
    if (p->cas || p->extras.size) return STOP;
    int done = known == ABSENT ? store_nothing(r) : join(r, v, p->key, p->value, before, 0);
    return done != DONE ? done : known == ABSENT ? fail(r, p, NONE_STORED) : succeed(r, p, v);
}

static int binary_count(Runner *r, const Packet *p, View *v, int known, int down) {
    if (p->cas || p->value.size || p->extras.size != 20) return STOP;
    u64 number;
    int done;
    if (known == ABSENT) {
        u64 exptime = read_big(p->extras.at + 16, 4);
        if (exptime == DO_NOT_CREATE) return (done = count_miss(r, down)) != DONE ? done : fail(r, p, NO_SUCH_KEY);
        number = read_big(p->extras.at + 8, 8);
        done = exptime > INT_MAX ? STOP : begin_count(r, v, p->key, number, (long long)exptime);
    } else done = count_in_place(r, v, read_big(p->extras.at, 8), down, &number);
    if (done == STOP && known == DONE && is_no_number(v)) return fail(r, p, NO_NUMBER);
    if (done != DONE || is_quiet(p->opcode)) return done;
    if (!v->unique && assign(r, v, 0) < 0) return ERROR;
    append_header(r, p, 0, 0, 0, 8, v->unique);
    append_big(r, number, 8);
    return DONE;
}

static int binary_delete(Runner *r, const Packet *p, const View *v, int known) {
    if (p->cas || p->extras.size || p->value.size) return STOP;
    int done = known == ABSENT ? delete_miss(r) : delete_item(r, v);
    if (done != DONE) return done;
    if (known == ABSENT) return fail(r, p, NO_SUCH_KEY);
    if (p->opcode == OP_DELETE) append_header(r, p, 0, 0, 0, 0, 0);
    return DONE;
}

/* Splits a packet into its parts; STOP if it is incomplete or invalid, or has no key or one that is too long. */
static int read_packet(const char *start, const char *end, Packet *p, const char **after) {
    if (end - start < HEADER || (unsigned char)*start != 0x80) return STOP;
    Py_ssize_t key = (Py_ssize_t)read_big(start + 2, 2), extras = (unsigned char)start[4], body = (Py_ssize_t)read_big(start + 8, 4);
    p->opcode = (unsigned char)start[1];
    p->opaque = (Word){start + 12, 4};
    p->cas = read_big(start + 16, 8);
    start += HEADER;
    if (body > end - start || key + extras > body || key > LONGEST_KEY || (!key && (p->opcode != OP_NOOP || body))) return STOP;
    p->extras = (Word){start, extras};
    p->key = (Word){start + extras, key};
    p->value = (Word){start + extras + key, body - extras - key};
    *after = start + body;
    return DONE;
}

/* Returns how many bytes complete a packet that has arrived up to its value, if it stores one that may be stored; else 0. */
static Py_ssize_t missing_of_packet(Runner *r, const char *start, const char *end) {
    if (end - start < HEADER || (unsigned char)*start != 0x80) return 0;
    Py_ssize_t key = (Py_ssize_t)read_big(start + 2, 2), extras = (unsigned char)start[4], body = (Py_ssize_t)read_big(start + 8, 4);
    Py_ssize_t expected;
    switch ((unsigned char)start[1]) {
        case OP_SET: case OP_SETQ: case OP_ADD: case OP_ADDQ: case OP_REPLACE: case OP_REPLACEQ: expected = 8; break;
        case OP_APPEND: case OP_APPENDQ: case OP_PREPEND: case OP_PREPENDQ: expected = 0; break;
        default: return 0;
    }
    if (extras != expected || key < 1 || key > LONGEST_KEY || body - key - extras > r->safe_size) return 0;
    if (end - start < HEADER + extras + key) return 0;
    Py_ssize_t missing = HEADER + body - (end - start);
    return missing > 0 ? missing : 0;
}

static int binary_command(Runner *r, const Packet *p) {
    if (p->opcode == OP_NOOP) return p->key.size ? STOP : (append_header(r, p, 0, 0, 0, 0, 0), DONE);
    if (word_end(p->key.at, p->key.at + p->key.size) != p->key.at + p->key.size) return STOP;
    View v = {0};
    int known = look(r, p->key, &v);
    if (known < DONE) return known;
    switch (p->opcode) {
        case OP_GET: case OP_GETQ: case OP_GETK: case OP_GETKQ: return binary_get(r, p, &v, known);
        case OP_SET: case OP_SETQ: case OP_ADD: case OP_ADDQ: case OP_REPLACE: case OP_REPLACEQ: return binary_store(r, p, &v, known);
        case OP_APPEND: case OP_APPENDQ: return binary_join(r, p, &v, known, 0);
        case OP_PREPEND: case OP_PREPENDQ: return binary_join(r, p, &v, known, 1);
        case OP_INCR: case OP_INCRQ: return binary_count(r, p, &v, known, 0);
        case OP_DECR: case OP_DECRQ: return binary_count(r, p, &v, known, 1);
        case OP_DELETE: case OP_DELETEQ: return binary_delete(r, p, &v, known);
        case OP_TOUCH: case OP_GAT: case OP_GATQ: case OP_GATK: case OP_GATKQ: return binary_touch(r, p, &v, known);
        default: return STOP;
    }
}
