import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Hashtable;
import java.util.List;
import javax.naming.NamingEnumeration;
import javax.naming.NamingException;
import javax.naming.directory.InitialDirContext;

/**
 * Looks up what each line of standard input says, "HOW NAME", and prints a line of what it found: "ok" and the
 * results, or "no" and the failure, apart by tabs.
 */
public class Lookup {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] question = line.split(" ");
            List<String> out = new ArrayList<>();
            try {
                out.add("ok");
                switch (question[0]) {
                    case "inet" -> out.addAll(addresses(question[1]));
                    case "srv" -> out.addAll(targets(question[1]));
                    case "policy" -> out.add(policy(question[1]));
                    default -> throw new IllegalArgumentException(line);
                }
            } catch (UnknownHostException | NamingException e) {
                String message = e.getMessage(); // "NAME: why"
                out = List.of("no", message.substring(message.indexOf(':') + 1).trim());
            }
            System.out.println(String.join("\t", out));
        }
    }

    static List<String> addresses(String name) throws UnknownHostException {
        List<String> found = new ArrayList<>();
        for (InetAddress a : InetAddress.getAllByName(name)) {
            found.add(a.getHostAddress());
        }
        return found;
    }

    /** For how many seconds answers are kept ("get"), or failures ("getNegative"). */
    static String policy(String which) throws ReflectiveOperationException {
        return Class.forName("sun.net.InetAddressCachePolicy").getMethod(which).invoke(null).toString();
    }

    /** What the class library has for SRV. "dns:" is the servers of /etc/resolv.conf. */
    static List<String> targets(String name) throws NamingException {
        Hashtable<String, String> env = new Hashtable<>();
        env.put("java.naming.factory.initial", "com.sun.jndi.dns.DnsContextFactory");
        env.put("java.naming.provider.url", "dns:");
        List<String> found = new ArrayList<>();
        NamingEnumeration<?> all = new InitialDirContext(env).getAttributes(name, new String[] {"SRV"}).get("SRV").getAll();
        while (all.hasMore()) {
            found.add(all.next().toString());
        }
        return found;
    }
}
