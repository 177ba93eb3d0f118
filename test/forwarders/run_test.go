//go:build linux

package forwarders_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// This file starts programs and asks them.

// addressed is how many forwarders have had an address.
var addressed atomic.Int32

// address is where a forwarder is to be asked: where it always is, or where no other is.
func (f forwarder) address() string {
	if f.at != "" {
		return f.at
	}
	return fmt.Sprintf("10.96.1.%d", addressed.Add(1))
}

// forwarder is a program that asks epdns for others.
type forwarder struct {
	name string
	at   string // its usual address, of which there is one

	// start starts it at an address with the settings of its snippet, and with more, in its own
	// words; instead of the snippet's, if they begin with "only".
	start func(t *testing.T, at, more string) *run.Process
}

// forwarders are all, in the order of the page.
var forwarders = []forwarder{
	{"CoreDNS", "", startCoreDNS},
	{"NodeLocal DNSCache", "169.254.20.10", startNodeLocal},
	{"kube-dns", "", startKubeDNS},
	{"unbound", "", startUnbound},
	{"BIND", "", startBIND},
	{"dnsmasq", "", startDnsmasq},
	{"Knot Resolver", "", startKnot},
	{"systemd-resolved", "127.0.0.53", startResolved},
}

func named(t *testing.T, name string) forwarder {
	t.Helper()
	i := slices.IndexFunc(forwarders, func(f forwarder) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("there is no forwarder %s", name)
	}
	return forwarders[i]
}

// snippet is a file of deploy/snippets, or what stands behind "only".
func snippet(t *testing.T, file, more string) string {
	t.Helper()
	if instead, ok := strings.CutPrefix(more, "only"); ok {
		return instead
	}
	b, err := os.ReadFile(filepath.Join(snippets, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + more + "\n"
}

// write writes a file of a directory that the forwarder may read whoever it runs as.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// program starts a program without our environment.
func program(t *testing.T, argv ...string) *run.Process {
	t.Helper()
	if slices.Contains([]string{"unbound", "named"}, argv[0]) { // which have profiles in Debian
		var err error
		if argv[0], err = run.Copied(argv[0], t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return run.ForTest(t, cmd)
}

// bound has the blocks of a Corefile listen on one address.
func bound(corefile, at string) string {
	return strings.ReplaceAll(corefile, "    errors\n", "    errors\n    bind "+at+"\n")
}

func startCoreDNS(t *testing.T, at, more string) *run.Process {
	t.Helper()
	return program(t, coreDNS, "-conf", write(t, t.TempDir(), "Corefile", bound(snippet(t, "coredns.Corefile", more), at)))
}

func startNodeLocal(t *testing.T, _, more string) *run.Process {
	t.Helper()
	return program(t, coreDNS, "-conf", write(t, t.TempDir(), "Corefile", snippet(t, "nodelocaldns.Corefile", more)))
}

// startKubeDNS runs dnsmasq as kube-dns does, with a server for each of the stub domains of its
// ConfigMap.
func startKubeDNS(t *testing.T, at, more string) *run.Process {
	t.Helper()
	var object struct {
		Data struct{ StubDomains string }
	}
	if err := yaml.Unmarshal([]byte(snippet(t, "nodelocaldns.yaml", "")), &object); err != nil {
		t.Fatal(err)
	}
	var stubs map[string][]string
	if err := json.Unmarshal([]byte(object.Data.StubDomains), &stubs); err != nil {
		t.Fatal(err)
	}
	args := append(dnsmasqBase(at), "--cache-size=1000", "--no-negcache", "--dns-loop-detect")
	for domain, servers := range stubs {
		for _, server := range servers {
			args = append(args, "--server=/"+domain+"/"+server)
		}
	}
	return program(t, append(args, strings.Fields(more)...)...)
}

// dnsmasqBase keeps dnsmasq from what else is on the machine.
func dnsmasqBase(at string) []string {
	return []string{"dnsmasq", "--keep-in-foreground", "--log-facility=-", "--user=root", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
		"--listen-address=" + at, "--bind-interfaces", "--pid-file="}
}

func startDnsmasq(t *testing.T, at, more string) *run.Process {
	t.Helper()
	path := write(t, t.TempDir(), "dnsmasq.conf", snippet(t, "dnsmasq.conf", more))
	return program(t, append(dnsmasqBase(at), "--conf-file="+path)...)
}

func startUnbound(t *testing.T, at, more string) *run.Process {
	t.Helper()
	dir := t.TempDir()
	path := write(t, dir, "part.conf", snippet(t, "unbound.conf", more))
	// As Debian's, which has a trust anchor; what is not ours leads nowhere.
	whole := fmt.Sprintf(`server:
    interface: %s
    access-control: 0.0.0.0/0 allow
    do-daemonize: no
    use-syslog: no
    chroot: ""
    username: ""
    pidfile: ""
    directory: %q
    num-threads: 1
    trust-anchor: ". DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D"
remote-control:
    control-enable: no
include: %q
`, at, dir, path)
	return program(t, "unbound", "-d", "-c", write(t, dir, "unbound.conf", whole))
}

// startBIND takes options and zones in one text, parted by a line "zones:".
func startBIND(t *testing.T, at, more string) *run.Process {
	t.Helper()
	dir := t.TempDir()
	moreOptions, moreZones, _ := strings.Cut(strings.TrimPrefix(more, "only"), "zones:")
	options, zones := moreOptions, moreZones
	if !strings.HasPrefix(more, "only") {
		options, zones = snippet(t, "named.options.conf", moreOptions), snippet(t, "named.zones.conf", moreZones)
	}
	optionsFile, zonesFile := write(t, dir, "named.options.conf", options), write(t, dir, "named.zones.conf", zones)
	whole := fmt.Sprintf(`options {
	directory %q;
	listen-on { %s; };
	listen-on-v6 { none; };
	allow-query { any; };
	allow-recursion { any; };
	pid-file none;
	session-keyfile none;
	dnssec-validation auto;
	include %q;
};
controls { };
include %q;
`, dir, at, optionsFile, zonesFile)
	return program(t, "named", "-g", "-n", "1", "-c", write(t, dir, "named.conf", whole))
}

func startKnot(t *testing.T, at, more string) *run.Process {
	t.Helper()
	dir := t.TempDir()
	whole := fmt.Sprintf("net.listen('%s', 53)\ncache.size = 10 * MB\n%s", at, snippet(t, "kresd.conf", more))
	return program(t, "kresd", "-n", "-c", write(t, dir, "kresd.conf", whole), dir)
}

// startResolved runs systemd-resolved, which looks for everything in fixed places.
func startResolved(t *testing.T, _, more string) *run.Process {
	t.Helper()
	mountEmpty(t, "/run")
	dir := "/run/systemd/resolved.conf.d"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "registry.local.conf", snippet(t, "resolved.conf", more))
	write(t, dir, "test.conf", "[Resolve]\nLLMNR=no\nMulticastDNS=no\nFallbackDNS=\n")
	users(t)
	program := filepath.Join(resolved, "usr/lib/systemd/systemd-resolved")
	if _, err := os.Stat(program); err != nil {
		program = filepath.Join(resolved, "lib/systemd/systemd-resolved") // until Debian 12
	}
	cmd := exec.Command(program)
	libraries, err := filepath.Glob(filepath.Join(resolved, "usr/lib/*/systemd"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + strings.Join(libraries, ":"), "SYSTEMD_LOG_TARGET=console"}
	return run.ForTest(t, cmd)
}

// mountEmpty covers a directory by an empty one until the test ends.
func mountEmpty(t *testing.T, over string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", over, "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount over %s: %v", over, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(over, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", over, err)
		}
	})
}

// users adds the one that systemd-resolved becomes.
func users(t *testing.T) {
	t.Helper()
	for file, line := range map[string]string{
		"/etc/passwd": "systemd-resolve:x:64999:64999::/:/usr/sbin/nologin\n",
		"/etc/group":  "systemd-resolve:x:64999:\n",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		netns.Mount(t, file, string(b)+line)
	}
}

// up waits until a forwarder answers for the zone. Nothing that a test asks for may be in its
// cache then.
func up(t *testing.T, p *run.Process, at string) {
	t.Helper()
	p.Eventually(t, func() error {
		reply, err := ask("udp", at, "dns-version.registry.local.", dns.TypeTXT)
		if err == nil && len(reply.Answer) == 0 {
			err = fmt.Errorf("it answers\n%v", reply)
		}
		return err
	})
}

// serve runs epdns with manifests, where the snippets have it.
func serve(t *testing.T, dir string, args ...string) *run.Process {
	t.Helper()
	p := program(t, append([]string{epdns, "serve", "--lameduck=0", "--listen=" + epdnsIP + ":53", "--reverse=10.244.0.0/16", "--manifests=" + dir}, args...)...)
	p.Eventually(t, func() error {
		_, err := run.Get("http://127.0.0.1:9153/readyz")
		return err
	})
	return p
}

// put puts a question, over UDP, and again over TCP if the reply is cut.
func put(at, name string, qtype uint16) (*dns.Msg, error) {
	reply, err := ask("udp", at, name, qtype)
	if err == nil && reply.Truncated {
		return ask("tcp", at, name, qtype)
	}
	return reply, err
}

func ask(network, at, name string, qtype uint16) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.SetEdns0(1232, false)
	client := dns.Client{Net: network, Timeout: 3 * time.Second}
	reply, _, err := client.Exchange(m, net.JoinHostPort(at, "53"))
	if err != nil {
		return nil, fmt.Errorf("ask %s over %s for %s %s: %w", at, network, name, dns.Type(qtype), err)
	}
	return reply, nil
}

// data are the records of an answer, in order.
func data(rrs []dns.RR) (all []string) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			all = append(all, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
	}
	return all
}

// sorted is a copy in order.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// ttl is how long an answer is still kept here, -1 where it does not say. Of what is not there
// that is the TTL of the SOA, of which MINIMUM is epdns's.
func ttl(m *dns.Msg) int {
	for _, rr := range m.Answer {
		return int(rr.Header().Ttl)
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return int(soa.Hdr.Ttl)
		}
	}
	return -1
}

// object is a manifest.
type object = map[string]any

// service writes a Service with these pods, whose port is named http; an address of IPv6 has a
// slice of its own.
func service(t *testing.T, dir, name string, pods []string, annotations object) {
	t.Helper()
	ports := []object{{"name": "http", "port": 8080, "protocol": "TCP"}}
	items := []object{{"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": "shop", "name": name, "annotations": annotations},
		"spec":     object{"clusterIP": "None", "ports": ports}}}
	for family, sign := range map[string]string{"IPv4": ".", "IPv6": ":"} {
		endpoints := []object{}
		for _, pod := range pods {
			if strings.Contains(pod, sign) {
				endpoints = append(endpoints, object{"addresses": []string{pod}})
			}
		}
		items = append(items, object{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
			"metadata": object{"namespace": "shop", "name": strings.ToLower(name + "-" + family), "labels": object{"kubernetes.io/service-name": name}},
			"ports":    ports, "endpoints": endpoints})
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+".json")
	if err := errors.Join(os.WriteFile(path+".new", text, 0o644), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// pods are so many addresses.
func pods(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.244.%d.%d", 8+i/100, 1+i%100))
	}
	return list
}

// db are the pods of Service db: enough for an order that does not come by chance, and of both
// families.
var db = []string{"10.244.1.20", "10.244.1.21", "10.244.1.22", "10.244.1.23", "10.244.1.24", "10.244.1.25", "fd00:10:244:1::20"}

// shop writes the Services that the tests ask for, and returns the directory.
func shop(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	knob := func(name, value string) object { return object{"registry.local/" + name: value} }
	service(t, dir, "web", []string{"10.244.1.11", "10.244.2.12"}, nil)
	service(t, dir, "db", db, knob("order", "fixed"))
	service(t, dir, "idle", nil, nil)
	service(t, dir, "many", pods(200), nil)
	service(t, dir, "zero", []string{"10.244.3.1"}, knob("ttl", "0s"))
	service(t, dir, "brief", []string{"10.244.3.2"}, knob("ttl", "2s"))
	return dir
}
