// Readers get only their own data, whatever the server refuses: spymemcached, text and binary. A
// reader retries until it has a value, because the library reconnects after some refusals.
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;

public final class OwnData {
    private static final List<String> USERS = List.of("alice", "bob", "carol", "dave");
    private static int checks = 0;

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        InetSocketAddress server = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
        for (Protocol protocol : Protocol.values()) {
            SerializingTranscoder plain = new SerializingTranscoder(4 << 20);
            plain.setCompressionThreshold(Integer.MAX_VALUE);
            var factory = new ConnectionFactoryBuilder()
                .setProtocol(protocol).setOpTimeout(20_000).setTranscoder(plain).build();
            MemcachedClient client = new MemcachedClient(factory, List.of(server));
            check(client, protocol.name());
            client.shutdown();
        }
        System.out.println("spymemcached: " + checks + " checks passed");
        System.exit(0);
    }

    private static void check(MemcachedClient client, String kind) throws Exception {
        for (String name : USERS) {
            if (!client.set("user:" + name, 0, "data-" + name).get()) {
                fail(kind + ": user:" + name + " could not be stored");
            }
        }
        attempt(() -> client.get("large"));
        readAll(client, kind + " after a large value");
        Map<String, Object> many =
            attempt(() -> client.getBulk("user:alice", "large", "user:bob"));
        for (String name : List.of("alice", "bob")) {
            own(many == null ? null : many.get("user:" + name), name, kind + " many keys");
        }
        readAll(client, kind + " after many keys with a refused one");
        attempt(() -> client.set("user:photo", 0, "x".repeat(2 << 20)).get());
        readAll(client, kind + " after a value that is too large");
        attempt(() -> client.incr("user:alice", 1));
        readAll(client, kind + " after a count of what is no number");
    }

    private static void readAll(MemcachedClient client, String what) throws Exception {
        for (String name : USERS) {
            long end = System.nanoTime() + 20_000_000_000L;
            Object got;
            while ((got = attempt(() -> client.get("user:" + name))) == null) {
                if (System.nanoTime() > end) {
                    fail(what + ": " + name + " reads nothing");
                }
                Thread.sleep(100);
            }
            own(got, name, what);
        }
    }

    private static void own(Object got, String name, String what) {
        checks++;
        if (got != null && !got.equals("data-" + name)) {
            fail(what + ": asked for " + name + ", got " + got);
        }
    }

    private static <T> T attempt(Callable<T> command) {
        try {
            return command.call();
        } catch (Exception refused) {
            return null;
        }
    }

    private static void fail(String why) {
        System.err.println(why);
        System.exit(1);
    }
}
