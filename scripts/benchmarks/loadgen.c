/* A load generator for the memcached text protocol on 127.0.0.1, in closed or open loop.
 *
 * Each connection sends `--pipeline` requests in one write, waits for the last of their replies, and
 * repeats: at once, or with `--rate` when the next batch is due. Batches are due at times that do not
 * depend on the server (a Poisson process). Latency is measured from these times, even if a batch had
 * to wait for a connection, so that there is no coordinated omission. Each connection is served once
 * before the first batch is due.
 *
 * It uses one thread and one epoll instance, so that it needs less processor time per operation than
 * the server under test. Prints one line of JSON, also on SIGTERM. Any reply that does not match its
 * request ends the run with exit code 1, so that a faulty server cannot look like a fast one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_LEAST = 12,        /* "key-" and eight digits */
    KEY_MOST = 250,
    INPUT = 128 * 1024,    /* bytes per read; large values pass through in pieces */
    LONGEST_LINE = 512,    /* of a reply: "VALUE ", a key, two or three numbers */
    SILENCE_MS = 10000,    /* without any reply for this long, the server counts as hung */
    SPIN_NS = 60000,       /* spin before a batch is due: waking up takes this long */
    SUB_BITS = 5,          /* 32 histogram buckets per power of two: 3% wide */
    BUCKETS = 64 << SUB_BITS,
};

static const char OUT_OF_MEMORY[] = "SERVER_ERROR out of memory";

struct options {
    long port, connections, operations, gets, sets, value_size, keys, pipeline, multiget, seed;
    long key_size, exptime;
    double seconds, rate, skew;
    int prefill, refusals, meta, deletes, absent, hold;
};

struct connection {
    int fd;
    int blocked;           /* epoll also waits for room to write */
    char *output;
    size_t to_write, written;
    char *input;
    size_t have;           /* bytes of an unfinished line at the start of input */
    size_t skip;           /* bytes of a value still to come */
    int line_end_due;      /* the value has arrived, its "\r\n" has not */
    int *expected;         /* per request of the batch: keys asked for, or 0 for a set */
    int requests, replied;
    int blocks;            /* VALUE blocks of the current reply so far */
    uint64_t started;      /* nanoseconds */
};

struct histogram {
    uint64_t counts[BUCKETS], total, most; /* `most`: nanoseconds */
};

static struct options opt = {.connections = 50, .gets = 10, .sets = 1, .value_size = 100,
                             .keys = 10000, .pipeline = 1, .multiget = 1, .seed = 1,
                             .key_size = KEY_LEAST};
static struct connection *connections;
static int poller;
static char *keys; /* `opt.key_size` bytes each */
static char *set_tail; /* of a set request: everything after the key */
static size_t set_tail_length;
static uint64_t random_state, due_state, noticed_state; /* the last two yield the same sequence */
static double *shares;  /* with --skew: the part of each key's column that is its own */
static uint32_t *others; /* the key to which the rest of the column belongs */

/* The current phase: PREFILL, WARM_UP (one batch per connection, in closed loop), or MEASURED. */
static enum { PREFILL, WARM_UP, MEASURED } phase;
static int in_open_loop;
static long to_issue; /* operations not yet sent */
static uint64_t deadline; /* 0 for none */
/* In open loop, the due times of batches are generated twice: when a batch is due, and when a
 * connection is free for it, which may be later. */
static uint64_t next_noticed;
static uint64_t next_due; /* 0 for never */
static struct connection **idle; /* those without a batch */
static long idle_count;
static volatile sig_atomic_t terminated;
static long busy; /* connections that wait for replies */
static uint64_t requests, gets, sets, hits, refused, bytes_in, bytes_out;
static struct histogram latency;
static struct histogram lateness; /* from when a batch is due until the program notices */

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t size) {
    void *memory = calloc(1, size);
    if (memory == NULL) fail("out of memory");
    return memory;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* splitmix64, reduced to 0..end-1 by multiplication. */
static uint32_t random_from(uint64_t *state, uint32_t end) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z >> 32) * end) >> 32);
}

static uint32_t random_below(uint32_t end) {
    return random_from(&random_state, end);
}

/* Prepare the choice of keys by Zipf's law: the probability of the key of rank n is proportional to
 * n^-skew. Walker's alias method (ACM TOMS 3, 1977): a key that is less probable than the mean
 * shares its column with one that is more probable. */
static void prepare_skew(void) {
    long count = opt.keys, few = 0, many = 0;
    double sum = 0;
    uint32_t *lacking = allocate((size_t)count * sizeof *lacking);
    uint32_t *spare = allocate((size_t)count * sizeof *spare);
    shares = allocate((size_t)count * sizeof *shares);
    others = allocate((size_t)count * sizeof *others);
    for (long n = 0; n < count; n++) sum += shares[n] = pow((double)(n + 1), -opt.skew);
    for (long n = 0; n < count; n++) {
        shares[n] *= (double)count / sum;
        if (shares[n] < 1) lacking[few++] = (uint32_t)n;
        else spare[many++] = (uint32_t)n;
    }
    while (few > 0 && many > 0) {
        uint32_t one = lacking[--few], from = spare[many - 1];
        others[one] = from;
        shares[from] -= 1 - shares[one];
        if (shares[from] < 1) {
            many--;
            lacking[few++] = from;
        }
    }
    while (many > 0) shares[spare[--many]] = 1;
    while (few > 0) shares[lacking[--few]] = 1; /* left over because of rounding errors */
    free(lacking);
    free(spare);
}

static uint32_t random_key(void) {
    uint32_t column = random_below((uint32_t)opt.keys);
    if (opt.skew == 0) return column;
    return random_below(UINT32_MAX) < shares[column] * UINT32_MAX ? column : others[column];
}

static void record(struct histogram *into, uint64_t nanoseconds) {
    int shift = 63 - __builtin_clzll(nanoseconds | 1) - SUB_BITS;
    if (shift < 0) shift = 0;
    into->counts[((uint64_t)shift << SUB_BITS) + (nanoseconds >> shift)]++;
    into->total++;
    if (nanoseconds > into->most) into->most = nanoseconds;
}

/* The quantile `share` of the recorded values, in microseconds (the middle of a bucket). */
static double quantile(const struct histogram *of, double share) {
    uint64_t seen = 0;
    for (int index = 0; index < BUCKETS; index++) {
        seen += of->counts[index];
        if (seen > 0 && (double)seen >= share * (double)of->total) {
            int shift = index < 2 << SUB_BITS ? 0 : (index >> SUB_BITS) - 1;
            uint64_t lower = (uint64_t)(index - (shift << SUB_BITS)) << shift;
            double middle = (double)lower + (double)(1ull << shift) / 2;
            return fmin(middle, (double)of->most) / 1000;
        }
    }
    return 0;
}

/* Requests */

static char *put_key(char *end, long index) {
    memcpy(end, keys + index * opt.key_size, (size_t)opt.key_size);
    return end + opt.key_size;
}

static char *put_delete(char *end, long index) {
    memcpy(end, "delete ", 7);
    end = put_key(end + 7, index);
    memcpy(end, "\r\n", 2);
    sets++;
    return end + 2;
}

static char *put_set(char *end, long index) {
    memcpy(end, "set ", 4);
    end = put_key(end + 4, index);
    memcpy(end, set_tail, set_tail_length);
    sets++;
    return end + set_tail_length;
}

static char *put_asked(char *end) {
    char *start = end;
    end = put_key(end, random_key());
    if (opt.absent) memcpy(start, "not", 3);
    return end;
}

static char *put_get(char *end, long count) {
    if (opt.meta) {
        memcpy(end, "mg ", 3);
        end = put_asked(end + 3);
        memcpy(end, " v\r\n", 4);
        gets++;
        return end + 4;
    }
    memcpy(end, "get", 3);
    end += 3;
    for (long n = 0; n < count; n++) {
        *end++ = ' ';
        end = put_asked(end);
    }
    memcpy(end, "\r\n", 2);
    gets += (uint64_t)count;
    return end + 2;
}

static void watch(struct connection *c, int blocked) {
    struct epoll_event event = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) < 0) fail("epoll_ctl: %m");
    c->blocked = blocked;
}

static void send_output(struct connection *c) {
    while (c->written < c->to_write) {
        ssize_t sent = send(c->fd, c->output + c->written, c->to_write - c->written,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("send: %m");
            if (!c->blocked) watch(c, 1);
            return;
        }
        c->written += (size_t)sent;
        bytes_out += (uint64_t)sent;
    }
    if (c->blocked) watch(c, 0);
}

/* Send the next batch, unless the phase is over; its latency counts from `time`. */
static void start_batch(struct connection *c, uint64_t time) {
    char *end = c->output;
    c->requests = c->replied = 0;
    if (deadline != 0 && time >= deadline) to_issue = 0;
    while (c->requests < opt.pipeline && to_issue > 0) {
        long count = 0;
        if (phase == PREFILL) {
            end = put_set(end, opt.keys - to_issue);
        } else if (random_below((uint32_t)(opt.gets + opt.sets)) < (uint32_t)opt.sets) {
            long index = random_key();
            end = opt.deletes ? put_delete(end, index) : put_set(end, index);
        } else {
            count = opt.multiget < to_issue ? opt.multiget : to_issue;
            end = put_get(end, count);
        }
        to_issue -= count > 0 ? count : 1;
        c->expected[c->requests++] = (int)count;
    }
    if (c->requests == 0) return;
    busy++;
    requests += (uint64_t)c->requests;
    c->started = time;
    c->written = 0;
    c->to_write = (size_t)(end - c->output);
    send_output(c);
}

static void finish_batch(struct connection *c) {
    uint64_t time = now();
    record(&latency, time - c->started);
    busy--;
    if (in_open_loop) {
        idle[idle_count++] = c;
    } else {
        start_batch(c, time);
    }
}

/* The interval to the next batch, so that there are `opt.rate` operations per second on average. */
static uint64_t random_gap(uint64_t *state) {
    double uniform = (random_from(state, UINT32_MAX) + 1.0) / UINT32_MAX;
    double of_gets = (double)opt.gets / (double)(opt.gets + opt.sets);
    double operations = (double)opt.pipeline * (of_gets * (double)opt.multiget + 1 - of_gets);
    return 1 + (uint64_t)(-log(uniform) * operations * 1e9 / opt.rate);
}

/* Send the batches that are due, as long as a connection is free. */
static void send_due(void) {
    while (next_due != 0) {
        uint64_t time = now();
        for (; next_noticed <= time; next_noticed += random_gap(&noticed_state))
            record(&lateness, time - next_noticed);
        if (next_due > time || idle_count == 0) return;
        long chosen = random_below((uint32_t)idle_count);
        struct connection *c = idle[chosen];
        idle[chosen] = idle[--idle_count];
        start_batch(c, next_due);
        next_due += random_gap(&due_state);
        if (to_issue == 0 || (deadline != 0 && next_due >= deadline)) next_due = 0;
    }
}

/* Replies */

/* Read "VALUE <key> <flags> <bytes>", a line that ends in "\r\n"; return the bytes. */
static size_t value_size(const char *line, size_t length) {
    const char *space = memrchr(line, ' ', length);
    char *end;
    if (space[1] < '0' || space[1] > '9') fail("unexpected reply: %.*s", (int)length - 2, line);
    unsigned long size = strtoul(space + 1, &end, 10);
    if (*end != '\r') fail("unexpected reply: %.*s", (int)length - 2, line);
    return size;
}

static void take_line(struct connection *c, const char *line, size_t length) {
    if (length < 2 || line[length - 2] != '\r') fail("a reply line without CR LF");
    if (c->line_end_due) {
        if (length != 2) fail("a value that does not end where its length says");
        c->line_end_due = 0;
        if (opt.meta) {
            hits++;
            c->replied++;
        }
        return;
    }
    if (c->replied == c->requests) fail("unexpected reply: %.*s", (int)length - 2, line);
    int expected = c->expected[c->replied];
    if (expected == 0 && length == 8 && memcmp(line, "STORED\r\n", 8) == 0) {
        c->replied++;
    } else if (expected == 0 && opt.refusals && length >= sizeof OUT_OF_MEMORY + 1 &&
               memcmp(line, OUT_OF_MEMORY, sizeof OUT_OF_MEMORY - 1) == 0) {
        refused++;
        c->replied++;
    } else if (expected == 0 && opt.deletes &&
               ((length == 9 && memcmp(line, "DELETED\r\n", 9) == 0) ||
                (length == 11 && memcmp(line, "NOT_FOUND\r\n", 11) == 0))) {
        c->replied++;
    } else if (expected > 0 && opt.meta && length == 4 && memcmp(line, "EN\r\n", 4) == 0) {
        c->replied++;
    } else if (expected > 0 && opt.meta && length > 5 && memcmp(line, "VA ", 3) == 0) {
        c->skip = value_size(line, length);
        c->line_end_due = 1;
    } else if (expected > 0 && length == 5 && memcmp(line, "END\r\n", 5) == 0) {
        hits += (uint64_t)c->blocks;
        c->blocks = 0;
        c->replied++;
    } else if (c->blocks < expected && length > 8 && memcmp(line, "VALUE ", 6) == 0) {
        c->blocks++;
        c->skip = value_size(line, length);
        c->line_end_due = 1;
    } else {
        fail("unexpected reply to a %s: %.*s", expected ? "get" : "set", (int)length - 2, line);
    }
}

static void receive(struct connection *c) {
    ssize_t received = recv(c->fd, c->input + c->have, INPUT - c->have, MSG_DONTWAIT);
    if (received < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("recv: %m");
    }
    if (received == 0) fail("the server closed a connection");
    bytes_in += (uint64_t)received;
    char *position = c->input, *end = c->input + c->have + received;
    while (position < end) {
        if (c->skip > 0) {
            size_t here = (size_t)(end - position) < c->skip ? (size_t)(end - position) : c->skip;
            position += here;
            c->skip -= here;
            continue;
        }
        char *newline = memchr(position, '\n', (size_t)(end - position));
        if (newline == NULL) break;
        take_line(c, position, (size_t)(newline + 1 - position));
        position = newline + 1;
    }
    c->have = (size_t)(end - position);
    if (c->have > LONGEST_LINE) fail("a reply line without an end");
    if (c->have > 0) memmove(c->input, position, c->have);
    if (c->replied == c->requests && c->have == 0 && c->skip == 0 && !c->line_end_due) {
        finish_batch(c);
    }
}

/* Setting up */

static void connect_one(struct connection *c, size_t output_size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0) fail("socket: %m");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect to 127.0.0.1:%ld: %m", opt.port);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->output = allocate(output_size);
    c->input = allocate(INPUT);
    c->expected = allocate((size_t)opt.pipeline * sizeof(int));
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event) < 0) fail("epoll_ctl: %m");
}

static void prepare(void) {
    char text[KEY_MOST + 32];
    random_state = (uint64_t)opt.seed;
    keys = allocate((size_t)(opt.keys * opt.key_size));
    for (long index = 0; index < opt.keys; index++) {
        snprintf(text, sizeof text, "key-%0*ld", (int)opt.key_size - 4, index);
        memcpy(keys + index * opt.key_size, text, (size_t)opt.key_size);
    }
    set_tail = allocate((size_t)opt.value_size + 64);
    int head = sprintf(set_tail, " 0 %ld %ld\r\n", opt.exptime, opt.value_size);
    for (long n = 0; n < opt.value_size; n++) /* any byte: line ends inside values too */
        set_tail[head + n] = (char)random_below(256);
    memcpy(set_tail + head + opt.value_size, "\r\n", 2);
    set_tail_length = (size_t)(head + opt.value_size + 2);

    if (opt.skew > 0) prepare_skew();
    size_t get_size = 5 + (size_t)opt.multiget * ((size_t)opt.key_size + 1);
    size_t set_size = 4 + (size_t)opt.key_size + set_tail_length;
    poller = epoll_create1(0);
    if (poller < 0) fail("epoll_create1: %m");
    connections = allocate((size_t)opt.connections * sizeof *connections);
    idle = allocate((size_t)opt.connections * sizeof *idle);
    for (long n = 0; n < opt.connections; n++)
        connect_one(&connections[n],
                    (size_t)opt.pipeline * (get_size > set_size ? get_size : set_size));
}

/* Wait for replies; in open loop, at most until the next batch is due. */
static int wait_for_events(struct epoll_event *events, int most) {
    if (next_due == 0) return epoll_wait(poller, events, most, SILENCE_MS);
    uint64_t time = now();
    if (next_noticed > time + SPIN_NS) {
        uint64_t nanoseconds = next_noticed - time - SPIN_NS;
        struct timespec least = {.tv_sec = (time_t)(nanoseconds / 1000000000u),
                                 .tv_nsec = (long)(nanoseconds % 1000000000u)};
        struct pollfd any = {.fd = poller, .events = POLLIN};
        ppoll(&any, 1, &least, NULL);
    }
    return epoll_wait(poller, events, most, 0);
}

/* Run one phase from the first request to the last reply; return its seconds. */
static double run(int which, long operations, double seconds) {
    struct epoll_event events[256];
    uint64_t start = now(), heard = start;
    phase = which;
    in_open_loop = opt.rate > 0 && phase == MEASURED;
    to_issue = operations;
    deadline = seconds > 0 ? start + (uint64_t)(seconds * 1e9) : 0;
    requests = gets = sets = hits = refused = bytes_in = bytes_out = 0;
    memset(&latency, 0, sizeof latency);
    memset(&lateness, 0, sizeof lateness);
    busy = idle_count = 0;
    next_due = 0;
    if (in_open_loop) {
        for (long n = 0; n < opt.connections; n++) idle[idle_count++] = &connections[n];
        due_state = noticed_state = ~random_state; /* independent of the choice of keys */
        next_due = start + random_gap(&due_state);
        next_noticed = start + random_gap(&noticed_state);
    } else {
        for (long n = 0; n < opt.connections; n++) start_batch(&connections[n], now());
    }
    while (busy > 0 || next_due != 0) {
        int count = wait_for_events(events, 256);
        uint64_t time = now();
        if (count < 0 && errno != EINTR) fail("epoll_wait: %m");
        if (count > 0 || busy == 0) heard = time;
        if (time - heard >= SILENCE_MS * 1000000ull)
            fail("no reply for %d seconds", SILENCE_MS / 1000);
        for (int n = 0; n < count; n++) {
            struct connection *c = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) send_output(c);
            if (events[n].events & ~(uint32_t)EPOLLOUT) receive(c);
            send_due(); /* not only after all events: handling them can take a while */
        }
        if (terminated) to_issue = 0, next_due = 0;
        send_due();
    }
    return (double)(now() - start) / 1e9;
}

static const char usage[] =
    "usage: loadgen --port N [options]\n"
    "  --connections N   (50)\n"
    "  --seconds S       run for this long, or\n"
    "  --operations N    for this many operations; with neither, only --prefill\n"
    "  --gets G --sets S ratio of requests (10 and 1)\n"
    "  --rate R          operations per second in open loop (default: closed loop)\n"
    "  --value-size N    bytes (100)\n"
    "  --key-size N      bytes, 12 to 250 (12)\n"
    "  --exptime N       of sets, as in the protocol (0: never)\n"
    "  --keys N          chosen at random (10000)\n"
    "  --skew S          choose keys by Zipf's law with this exponent (0: uniformly)\n"
    "  --absent          get keys that do not exist\n"
    "  --pipeline P      requests per write (1)\n"
    "  --multiget M      keys per get, each counted as one operation (1)\n"
    "  --prefill         store every key once before the run\n"
    "  --refusals        in the run, count sets refused for lack of memory instead of failing\n"
    "  --meta            mg instead of get, for one key per request\n"
    "  --deletes         delete instead of set, after --prefill\n"
    "  --hold            once all connections are served, print a line and wait for one; after\n"
    "                    the run, keep them until the input ends\n"
    "  --seed N          of keys and of the order of gets and sets (1)\n";

static long number(const char *name, const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        fail("--%s: not a number from %ld to %ld: %s", name, least, most, text);
    return value;
}

static double positive(const char *name, const char *text, double below) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0 && value < below))
        fail("--%s: not a positive number below %g: %s", name, below, text);
    return value;
}

static void terminate(int signal) {
    (void)signal;
    terminated = 1;
}

static void parse_options(int argc, char **argv) {
    /* getopt_long returns the last column, an index into `numbers` or a letter. */
    static const struct option names[] = {
        {"port", 1, 0, 0}, {"connections", 1, 0, 1}, {"operations", 1, 0, 2}, {"gets", 1, 0, 3},
        {"sets", 1, 0, 4}, {"value-size", 1, 0, 5}, {"keys", 1, 0, 6}, {"pipeline", 1, 0, 7},
        {"multiget", 1, 0, 8}, {"seed", 1, 0, 9}, {"seconds", 1, 0, 's'}, {"prefill", 0, 0, 'p'},
        {"key-size", 1, 0, 10}, {"exptime", 1, 0, 11}, {"rate", 1, 0, 'r'},
        {"refusals", 0, 0, 'f'}, {"meta", 0, 0, 'm'},
        {"deletes", 0, 0, 'd'}, {"skew", 1, 0, 'z'}, {"absent", 0, 0, 'a'},
        {"hold", 0, 0, 'w'}, {"help", 0, 0, 'h'}, {0, 0, 0, 0}};
    const struct { long *target, least, most; } numbers[] = {
        {&opt.port, 1, 65535}, {&opt.connections, 1, 10000}, {&opt.operations, 1, 1000000000000},
        {&opt.gets, 0, 1000000}, {&opt.sets, 0, 1000000}, {&opt.value_size, 0, 1 << 30},
        {&opt.keys, 1, 100000000}, {&opt.pipeline, 1, 100000}, {&opt.multiget, 1, 100000},
        {&opt.seed, 0, INT64_MAX}, {&opt.key_size, KEY_LEAST, KEY_MOST},
        {&opt.exptime, -1, INT32_MAX}};
    int index, choice;
    while ((choice = getopt_long(argc, argv, "", names, &index)) != -1) {
        if (choice == 'h') {
            fputs(usage, stdout);
            exit(0);
        } else if (choice == 'p') {
            opt.prefill = 1;
        } else if (choice == 'f') {
            opt.refusals = 1;
        } else if (choice == 'm') {
            opt.meta = 1;
        } else if (choice == 'd') {
            opt.deletes = 1;
        } else if (choice == 'a') {
            opt.absent = 1;
        } else if (choice == 'w') {
            opt.hold = 1;
        } else if (choice == 'z') {
            opt.skew = positive(names[index].name, optarg, 10);
        } else if (choice == 's') {
            opt.seconds = positive(names[index].name, optarg, 1e6);
        } else if (choice == 'r') {
            opt.rate = positive(names[index].name, optarg, 1e7);
        } else if (choice == '?') {
            fputs(usage, stderr);
            exit(2);
        } else {
            *numbers[choice].target = number(names[index].name, optarg, numbers[choice].least,
                                             numbers[choice].most);
        }
    }
    if (optind < argc || opt.port == 0) {
        fputs(usage, stderr);
        exit(2);
    }
    if (opt.gets + opt.sets == 0) fail("--gets and --sets: one must be positive");
    if (opt.meta && opt.multiget > 1) fail("--meta: a request has one key");
    if (opt.operations == 0 && opt.seconds == 0 && !opt.prefill)
        fail("give --seconds, --operations or --prefill");
}

int main(int argc, char **argv) {
    double seconds = 0;
    parse_options(argc, argv);
    signal(SIGTERM, terminate);
    prctl(PR_SET_TIMERSLACK, 1);
    prepare();
    if (opt.prefill) seconds = run(PREFILL, opt.keys, 0);
    if (opt.hold || opt.rate > 0) {
        /* One batch each, so that the server has accepted all connections. At a high rate, accepting
         * fifty of them delays more than one request in a hundred of a run of a quarter second. */
        run(WARM_UP, opt.connections * opt.pipeline * opt.multiget, 0);
    }
    if (opt.hold) {
        puts("ready");
        fflush(stdout);
        if (getchar() == EOF) return 0;
    }
    if (opt.operations > 0 || opt.seconds > 0)
        seconds = run(MEASURED, opt.operations > 0 ? opt.operations : INT64_MAX, opt.seconds);
    printf("{\"operations\": %ju, \"requests\": %ju, \"seconds\": %.6f, \"gets\": %ju, "
           "\"sets\": %ju, \"refused\": %ju, \"hits\": %ju, \"misses\": %ju, "
           "\"bytes_in\": %ju, \"bytes_out\": %ju, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f, \"late_p99_us\": %.1f, \"late_max_us\": %.1f}\n",
           (uintmax_t)(gets + sets), (uintmax_t)requests, seconds, (uintmax_t)gets,
           (uintmax_t)sets, (uintmax_t)refused, (uintmax_t)hits, (uintmax_t)(gets - hits),
           (uintmax_t)bytes_in, (uintmax_t)bytes_out, quantile(&latency, 0.50),
           quantile(&latency, 0.99), (double)latency.most / 1000,
           quantile(&lateness, 0.99), (double)lateness.most / 1000);
    fflush(stdout);
    while (opt.hold && getchar() != EOF) {
    }
    return 0;
}
