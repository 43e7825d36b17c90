import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import net.spy.memcached.transcoders.SerializingTranscoder;

/** spymemcached. */
final class Spy implements Client {
    private final MemcachedClient library;

    Spy(Checks.Server server) throws Exception {
        SerializingTranscoder transcoder = new SerializingTranscoder(4 << 20);
        transcoder.setCompressionThreshold(4 << 20);
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
            .setProtocol(server.binary()
                ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT)
            .setTranscoder(transcoder)
            .setOpTimeout(10_000)
            .setDaemon(true);
        if (server.user() != null) {
            builder.setAuthDescriptor(new AuthDescriptor(new String[] {"PLAIN"},
                new PlainCallbackHandler(server.user(), server.password())));
        }
        List<InetSocketAddress> addresses = AddrUtil.getAddresses(server.host() + ":" + server.port());
        library = new MemcachedClient(builder.build(), addresses);
    }

    @Override
    public Object get(String key) {
        return library.get(key);
    }

    @Override
    public Map<String, Object> getMany(Collection<String> keys) {
        return library.getBulk(keys);
    }

    @Override
    public boolean set(String key, Object value, int ttl) throws Exception {
        return library.set(key, ttl, value).get();
    }

    @Override
    public boolean add(String key, Object value) throws Exception {
        return library.add(key, 0, value).get();
    }

    @Override
    public boolean replace(String key, Object value) throws Exception {
        return library.replace(key, 0, value).get();
    }

    @Override
    public boolean append(String key, String value) throws Exception {
        return library.append(key, value).get();
    }

    @Override
    public boolean prepend(String key, String value) throws Exception {
        return library.prepend(key, value).get();
    }

    @Override
    public Held gets(String key) {
        var held = library.gets(key);
        return new Held(held.getValue(), held.getCas());
    }

    @Override
    public boolean cas(String key, Object value, long unique) {
        return library.cas(key, unique, value) == CASResponse.OK;
    }

    @Override
    public long incr(String key, long delta) {
        return library.incr(key, delta);
    }

    @Override
    public long decr(String key, long delta) {
        return library.decr(key, delta);
    }

    @Override
    public long incrOr(String key, long delta, long initial) {
        return library.incr(key, delta, initial, 0);
    }

    @Override
    public boolean touch(String key, int ttl) throws Exception {
        return library.touch(key, ttl).get();
    }

    @Override
    public Object getAndTouch(String key, int ttl) {
        var held = library.getAndTouch(key, ttl);
        return held == null ? null : held.getValue();
    }

    @Override
    public boolean delete(String key) throws Exception {
        return library.delete(key).get();
    }

    @Override
    public void flush() throws Exception {
        library.flush().get();
    }

    @Override
    public Map<String, String> stats() {
        return library.getStats().values().iterator().next();
    }

    @Override
    public String version() {
        return library.getVersions().values().iterator().next();
    }

    @Override
    public void close() {
        library.shutdown(1, TimeUnit.SECONDS);
    }
}
