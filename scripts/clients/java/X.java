import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.auth.AuthInfo;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.transcoders.SerializingTranscoder;

/** xmemcached. */
final class X implements Client {
    private final MemcachedClient library;

    X(Checks.Server server) throws Exception {
        // It looks up a connection's user by this name, even if the address was numeric.
        String name = InetAddress.getByName(server.host()).getHostName();
        InetSocketAddress address = new InetSocketAddress(name, server.port());
        XMemcachedClientBuilder builder = new XMemcachedClientBuilder(List.of(address));
        if (server.binary()) {
            builder.setCommandFactory(new BinaryCommandFactory());
        }
        if (server.user() != null) {
            builder.addAuthInfo(address, AuthInfo.plain(server.user(), server.password()));
        }
        SerializingTranscoder transcoder = new SerializingTranscoder(4 << 20);
        transcoder.setCompressionThreshold(4 << 20);
        builder.setTranscoder(transcoder);
        builder.setOpTimeout(10_000);
        library = builder.build();
    }

    @Override
    public Object get(String key) throws Exception {
        return library.get(key);
    }

    @Override
    public Map<String, Object> getMany(Collection<String> keys) throws Exception {
        return library.get(keys);
    }

    @Override
    public boolean set(String key, Object value, int ttl) throws Exception {
        return library.set(key, ttl, value);
    }

    @Override
    public boolean add(String key, Object value) throws Exception {
        return library.add(key, 0, value);
    }

    @Override
    public boolean replace(String key, Object value) throws Exception {
        return library.replace(key, 0, value);
    }

    @Override
    public boolean append(String key, String value) throws Exception {
        return library.append(key, value);
    }

    @Override
    public boolean prepend(String key, String value) throws Exception {
        return library.prepend(key, value);
    }

    @Override
    public Held gets(String key) throws Exception {
        var held = library.gets(key);
        return new Held(held.getValue(), held.getCas());
    }

    @Override
    public boolean cas(String key, Object value, long unique) throws Exception {
        return library.cas(key, 0, value, unique);
    }

    @Override
    public long incr(String key, long delta) throws Exception {
        return library.incr(key, delta);
    }

    @Override
    public long decr(String key, long delta) throws Exception {
        return library.decr(key, delta);
    }

    @Override
    public long incrOr(String key, long delta, long initial) throws Exception {
        return library.incr(key, delta, initial);
    }

    @Override
    public boolean touch(String key, int ttl) throws Exception {
        return library.touch(key, ttl);
    }

    @Override
    public Object getAndTouch(String key, int ttl) throws Exception {
        return library.getAndTouch(key, ttl);
    }

    @Override
    public boolean delete(String key) throws Exception {
        return library.delete(key);
    }

    @Override
    public void flush() throws Exception {
        library.flushAll();
    }

    @Override
    public Map<String, String> stats() throws Exception {
        return library.getStats().values().iterator().next();
    }

    @Override
    public String version() throws Exception {
        return library.getVersions().values().iterator().next();
    }

    @Override
    public void close() throws Exception {
        library.shutdown();
    }
}
