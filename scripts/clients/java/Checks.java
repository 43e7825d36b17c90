import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A program that checks a server with spymemcached or xmemcached: java Checks LIBRARY HOST PORT, with
 * TRY_PROTOCOL (text or binary), TRY_USER and TRY_PASSWORD in the environment. A line for each check;
 * exit code 1 if one failed.
 */
final class Checks {
    record Server(String host, int port, boolean binary, String user, String password) {}

    interface Check {
        void run() throws Exception;
    }

    private final String library;
    private final Server server;
    private Client client;
    private boolean failed;

    private Checks(String library, Server server) {
        this.library = library;
        this.server = server;
    }

    public static void main(String[] arguments) {
        Map<String, String> environment = System.getenv();
        Checks checks = new Checks(arguments[0], new Server(
            arguments[1], Integer.parseInt(arguments[2]),
            environment.get("TRY_PROTOCOL").equals("binary"),
            environment.get("TRY_USER"), environment.get("TRY_PASSWORD")));
        checks.all().forEach(checks::tell);
        System.exit(checks.failed ? 1 : 0); // the libraries' threads would keep running
    }

    private Client connect(Server server) throws Exception {
        return library.equals("spymemcached") ? new Spy(server) : new X(server);
    }

    private void tell(String name, Check check) {
        try {
            check.run();
            System.out.println("ok " + name);
        } catch (UnsupportedOperationException e) {
            System.out.println("without " + name);
        } catch (Throwable e) {
            String text = e.toString().replaceAll("\\s+", " ");
            System.out.println("FAILED " + name + ": " + text.substring(0, Math.min(200, text.length())));
            failed = true;
        }
    }

    private Map<String, Check> all() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("connect", this::begin);
        checks.put("set and get", this::setAndGet);
        checks.put("add", this::add);
        checks.put("replace", this::replace);
        checks.put("append and prepend", this::appendAndPrepend);
        checks.put("cas", this::cas);
        checks.put("incr and decr", this::counters);
        checks.put("incr with initial value", this::initialValue);
        checks.put("touch", this::touch);
        checks.put("gat", this::getAndTouch);
        checks.put("delete", this::delete);
        checks.put("multi-get", this::multiGet);
        checks.put("flags", this::flags);
        checks.put("large value", this::largeValue);
        checks.put("odd keys", this::oddKeys);
        checks.put("expiry", this::expiry);
        checks.put("stats", this::stats);
        checks.put("version", this::version);
        checks.put("flush", this::flush);
        checks.put("concurrent", this::concurrent);
        checks.put("too large", this::tooLarge);
        if (server.user() != null) {
            checks.put("wrong password", this::wrongPassword);
        }
        return checks;
    }

    private static void same(String what, Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError(what + ": " + got + " is not " + want);
        }
    }

    private void holds(String key, Object want) throws Exception {
        same("get " + key, client.get(key), want);
    }

    private void missing(String key) throws Exception {
        Object value = client.get(key);
        if (value != null) {
            throw new AssertionError("get " + key + ": unexpected value " + value);
        }
    }

    /** Waits until items with a TTL of one second have expired. */
    private static void pause() throws InterruptedException {
        Thread.sleep(2100);
    }

    private void begin() throws Exception {
        client = connect(server);
        client.flush();
    }

    private void setAndGet() throws Exception {
        missing("nothing");
        same("set", client.set("key", "value", 0), true);
        holds("key", "value");
        same("set", client.set("key", "another", 100), true);
        holds("key", "another");
        same("set empty", client.set("empty", "", 0), true);
        holds("empty", "");
    }

    private void add() throws Exception {
        same("add", client.add("added", "one"), true);
        same("add once more", client.add("added", "two"), false);
        holds("added", "one");
    }

    private void replace() throws Exception {
        same("replace nothing", client.replace("replaced", "one"), false);
        client.set("replaced", "one", 0);
        same("replace", client.replace("replaced", "two"), true);
        holds("replaced", "two");
    }

    private void appendAndPrepend() throws Exception {
        same("append to nothing", client.append("joined", "x"), false);
        client.set("joined", "b", 0);
        same("append", client.append("joined", "c"), true);
        same("prepend", client.prepend("joined", "a"), true);
        holds("joined", "abc");
    }

    private void cas() throws Exception {
        client.set("swapped", "one", 0);
        Client.Held held = client.gets("swapped");
        same("gets", held.value(), "one");
        same("cas", client.cas("swapped", "two", held.unique()), true);
        same("cas once more", client.cas("swapped", "three", held.unique()), false);
        holds("swapped", "two");
        client.delete("swapped");
        same("cas of nothing", client.cas("swapped", "three", held.unique()), false);
    }

    private void counters() throws Exception {
        client.set("count", "10", 0);
        same("incr", client.incr("count", 5), 15L);
        same("decr", client.decr("count", 3), 12L);
        same("decr below 0", client.decr("count", 100), 0L);
    }

    private void initialValue() throws Exception {
        same("at first", client.incrOr("begun", 5, 10), 10L);
        same("then", client.incrOr("begun", 5, 10), 15L);
    }

    private void touch() throws Exception {
        same("touch nothing", client.touch("touched", 100), false);
        client.set("touched", "value", 1);
        same("touch", client.touch("touched", 100), true);
        pause();
        holds("touched", "value");
    }

    private void getAndTouch() throws Exception {
        same("gat nothing", client.getAndTouch("gat", 100) == null, true);
        client.set("gat", "value", 1);
        same("gat", client.getAndTouch("gat", 100), "value");
        pause();
        holds("gat", "value");
    }

    private void delete() throws Exception {
        client.set("deleted", "value", 0);
        same("delete", client.delete("deleted"), true);
        same("delete once more", client.delete("deleted"), false);
        missing("deleted");
    }

    private void multiGet() throws Exception {
        Map<String, Object> many = new LinkedHashMap<>();
        for (int n = 0; n < 200; n++) {
            many.put("many-" + n, "value-" + n);
            client.set("many-" + n, "value-" + n, 0);
        }
        List<String> keys = new ArrayList<>(many.keySet());
        keys.add("nothing");
        same("get", client.getMany(keys), many);
    }

    /** Flags tell the libraries what was made into bytes. */
    private void flags() throws Exception {
        client.set("date", new java.util.Date(1_000_000), 0);
        holds("date", new java.util.Date(1_000_000));
        client.set("list", new ArrayList<>(List.of(1, "two")), 0);
        holds("list", List.of(1, "two"));
    }

    private void largeValue() throws Exception {
        byte[] large = new byte[1_000_000];
        new Random().nextBytes(large);
        same("set", client.set("large", large, 0), true);
        same("get", Arrays.equals((byte[]) client.get("large"), large), true);
    }

    private void oddKeys() throws Exception {
        for (String key : List.of("k".repeat(250), "!\"#$%&'()*+,/:;<=>?@[]^`{|}~", "schlüssel-鍵", "1")) {
            client.set(key, key, 0);
            holds(key, key);
        }
    }

    private void expiry() throws Exception {
        int now = (int) (System.currentTimeMillis() / 1000);
        client.set("soon", "value", 1);
        client.set("then", "value", now + 100);
        client.set("past", "value", now - 100);
        holds("soon", "value");
        holds("then", "value");
        missing("past");
        pause();
        missing("soon");
    }

    private void stats() throws Exception {
        Map<String, String> fields = client.stats();
        same("curr_items and pid", fields.containsKey("curr_items") && fields.containsKey("pid"), true);
    }

    private void version() throws Exception {
        same("version", client.version().contains("."), true);
    }

    private void flush() throws Exception {
        client.set("flushed", "value", 0);
        client.flush();
        missing("flushed");
    }

    /** Many threads, one client, which puts their requests on one connection. */
    private void concurrent() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(50);
        List<Callable<Void>> work = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            String worker = "worker-" + number;
            work.add(() -> {
                for (int n = 0; n < 20; n++) {
                    client.set(worker, worker + n, 0);
                    holds(worker, worker + n);
                }
                return null;
            });
        }
        for (Future<Void> done : threads.invokeAll(work)) {
            done.get();
        }
        threads.shutdown();
    }

    /** The last with this connection: the libraries give it up, or take a moment to go on. */
    private void tooLarge() throws Exception {
        boolean stored;
        try {
            stored = client.set("large", new byte[2_000_000], 0);
        } catch (Exception refused) {
            stored = false;
        }
        same("2 MB are stored", stored, false);
        try (Client other = connect(server)) {
            same("get", other.get("large") == null, true);
        }
    }

    private void wrongPassword() throws Exception {
        Server wrong = new Server(
            server.host(), server.port(), server.binary(), server.user(), server.password() + "x");
        boolean stored;
        try (Client other = connect(wrong)) {
            stored = other.set("key", "value", 0);
        } catch (Exception refused) {
            stored = false;
        }
        same("it is let in", stored, false);
    }
}
