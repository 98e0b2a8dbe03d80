// Every command of spymemcached, text and binary; its registry ships no tests.
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;

public final class CheckSpymemcached {
    // Between client and servers is a proxy, which has no items to list.
    private static final boolean ROUTED = System.getenv("E2E_ROUTED") != null;
    private static int checks = 0;

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        InetSocketAddress server = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
        for (Protocol protocol : Protocol.values()) {
            var factory = new ConnectionFactoryBuilder()
                .setProtocol(protocol).setOpTimeout(20_000).build();
            MemcachedClient client = new MemcachedClient(factory, List.of(server));
            check(client, protocol == Protocol.BINARY);
            client.shutdown();
        }
        System.out.println("spymemcached: " + checks + " checks passed");
        System.exit(0);
    }

    private static void check(MemcachedClient c, boolean isBinary) throws Exception {
        same(c.flush().get(), true, "flush");
        same(c.get("a"), null, "get of nothing");
        same(c.set("a", 100, "one").get(), true, "set");
        same(c.get("a"), "one", "get");
        for (Object value : List.of(7, 1.5, true, List.of("x"), "\u00e9", "x".repeat(500_000))) {
            same(c.set("kinds", 100, value).get(), true, "set of a kind of value");
            same(c.get("kinds"), value, "get of a kind of value");
        }
        same(c.add("a", 100, "two").get(), false, "add over a value");
        same(c.add("b", 100, "two").get(), true, "add");
        same(c.replace("a", 100, "1").get(), true, "replace");
        same(c.replace("none", 100, "1").get(), false, "replace of nothing");
        same(c.append("a", "2").get(), true, "append");
        same(c.prepend("a", "0").get(), true, "prepend");
        same(c.append("none", "2").get(), false, "append to nothing");
        Map<String, Object> many = c.getBulk("a", "b", "none");
        same(new TreeMap<>(many).toString(), "{a=012, b=two}", "getBulk");
        CASValue<Object> found = c.gets("a");
        same(found.getValue(), "012", "gets");
        same(c.cas("a", found.getCas(), "new"), CASResponse.OK, "cas");
        same(c.cas("a", found.getCas(), "newer"), CASResponse.EXISTS, "cas with an old unique");
        same(c.cas("none", 5, "x"), CASResponse.NOT_FOUND, "cas of nothing");
        same(c.incr("n", 5, 10, 100), 10L, "a new count");
        same(c.incr("n", 5), 15L, "incr");
        same(c.decr("n", 100), 0L, "decr stops at zero");
        same(c.incr("nothing", 1), -1L, "incr of nothing");
        same(c.touch("a", 100).get(), true, "touch");
        same(c.touch("none", 100).get(), false, "touch of nothing");
        if (isBinary) {
            same(c.getAndTouch("a", 200).getValue(), "new", "get and touch");
        }
        same(c.delete("a").get(), true, "delete");
        same(c.delete("a").get(), false, "delete of nothing");
        for (int i = 0; i < 500; i++) {
            c.set("m" + i, 100, i);
        }
        String[] keys = new String[500];
        for (int i = 0; i < 500; i++) {
            keys[i] = "m" + i;
        }
        same(c.getBulk(keys).size(), 500, "getBulk of 500");
        if (!ROUTED) {
            Map<String, String> stats = c.getStats().values().iterator().next();
            same(Integer.parseInt(stats.get("curr_items")) > 0, true, "stats");
        }
        same(c.getVersions().size(), 1, "version");
    }

    private static void same(Object got, Object want, String what) {
        checks++;
        if (!Objects.equals(got, want)) {
            System.out.println(what + ": got " + got + ", want " + want);
            System.exit(1);
        }
    }
}
