import java.util.Collection;
import java.util.Map;

/** One library, connected. Values are strings or bytes; times to live are in seconds. */
interface Client extends AutoCloseable {
    /** A value with its cas unique. */
    record Held(Object value, long unique) {}

    /** Returns null for a miss. */
    Object get(String key) throws Exception;

    Map<String, Object> getMany(Collection<String> keys) throws Exception;

    boolean set(String key, Object value, int ttl) throws Exception;

    boolean add(String key, Object value) throws Exception;

    boolean replace(String key, Object value) throws Exception;

    boolean append(String key, String value) throws Exception;

    boolean prepend(String key, String value) throws Exception;

    Held gets(String key) throws Exception;

    boolean cas(String key, Object value, long unique) throws Exception;

    long incr(String key, long delta) throws Exception;

    long decr(String key, long delta) throws Exception;

    long incrOr(String key, long delta, long initial) throws Exception;

    boolean touch(String key, int ttl) throws Exception;

    /** Returns null for a miss; throws UnsupportedOperationException if the library lacks it. */
    Object getAndTouch(String key, int ttl) throws Exception;

    boolean delete(String key) throws Exception;

    void flush() throws Exception;

    Map<String, String> stats() throws Exception;

    String version() throws Exception;
}
