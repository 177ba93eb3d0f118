//go:build linux

package clients_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"epdns/test/netns"

	"github.com/miekg/dns"
)

// Programs and libraries that look up when told to, all against the same changing Service. What
// each does becomes its row in the table.
func TestLookups(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	lookupConf(t)
	py, js := startTeller(t, python, "testdata/lookup.py"), startTeller(t, "node", "testdata/lookup.js")
	withDNSPython := py.withTargets(py.way("Python dnspython", "python", "dnspython"), "dnspython-srv")
	withDNSPython.searching = py.way("", "", "dnspython-search").addresses
	ways := append(commandWays(), libraryWays(glibc, machineMusl(t))...)
	ways = append(ways,
		py.way("Python `socket`", "python", "socket"),
		withDNSPython,
		js.way("Node `dns.lookup`", "node", "lookup"),
		js.withTargets(js.way("Node `dns.resolve4`", "node", "resolve4"), "resolveSrv"))
	for i, row := range watchLookups(t, ways) {
		t.Run(ways[i].client, func(t *testing.T) { observed(t, row) })
	}
}

// lookupConf makes epdns the nameserver, and gives this host a network as a Pod has it: an
// address with the prefix of its Node, and a way to all others.
func lookupConf(t *testing.T) {
	t.Helper()
	hosts(t)
	resolvConf(t, "nameserver "+epdnsIP+"\nsearch dock.registry.local\n")
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(`link add pod0 type veth peer name node0
link set node0 up
link set pod0 up
address add 10.30.1.128/24 dev pod0
address add fd00:10:30:1::80/64 dev pod0 nodad
route add default dev pod0
route add ::/0 dev pod0
`)
	if out, err := ip.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v\n%s", err, out)
	}
}

// Pods on the host's own network, and elsewhere. No two have the same number of leading bits in
// common with the host's address, so that who sorts by that leaves nothing to chance.
var (
	near = []string{"10.30.1.129", "10.30.1.130", "10.30.1.132", "10.30.1.136", "10.30.1.144", "10.30.1.160", "10.30.1.192"}
	far  = []string{"10.30.0.1", "10.30.3.1", "10.30.5.1", "10.30.9.1", "10.30.17.1", "10.30.33.1", "10.30.65.1"}
	far6 = []string{"fd00:10:30::1", "fd00:10:30:3::1", "fd00:10:30:5::1", "fd00:10:30:9::1", "fd00:10:30:11::1", "fd00:10:30:21::1", "fd00:10:30:41::1"}
)

const (
	nearName = "near.dock.registry.local."
	farName  = "far.dock.registry.local."
	times    = 5 // a name is looked up to see an order
)

// watchLookups changes a Service and has each way look it up. It returns what they make of it,
// without failing in between: a way that does not follow fails the test.
func watchLookups(t *testing.T, ways []way) []Row {
	t.Helper()
	rows := make([]Row, len(ways))
	// Each returns what there is to say of a way.
	each := func(step string, cell func(r *Row) *string, look func(t *testing.T, w way) string) {
		t.Helper()
		for i, w := range ways {
			t.Run(step+", "+w.client, func(t *testing.T) {
				rows[i].Client, rows[i].Page = w.client, w.page
				*cell(&rows[i]) = look(t, w)
			})
		}
	}
	nothing := func(t *testing.T, w way) string {
		r := w.addresses(t, lampName)
		if r.found != nil {
			t.Errorf("finds %q", r.found)
		}
		return r.says
	}

	t.Run("not synced", func(t *testing.T) {
		serve(t, "livez", "--kubeconfig="+unreachable(t))
		each("SERVFAIL", func(r *Row) *string { return &r.Failed }, nothing)
	})

	// The asker is in zone-a.
	config := filepath.Join(t.TempDir(), "epdns.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: epdns/v1alpha1\nkind: Config\nzones:\n- name: registry.local\n"+
		"clients:\n  places:\n  - {cidr: "+epdnsIP+"/32, zone: zone-a}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, m := manifestsOf(t, addresses(1, 8))
	dir.write(t, "near", near, nil)
	dir.write(t, "far", far, nil)
	serve(t, "readyz", "--manifests="+string(m), "--config="+config)
	w := capture(t)

	each("order", func(r *Row) *string { return &r.Order }, func(t *testing.T, way way) string {
		own, others := orderSeen(t, w, way, nearName, dns.TypeA), orderSeen(t, w, way, farName, dns.TypeA)
		if own == others {
			return own
		}
		return fmt.Sprintf("%s; on its own subnet %s", others, own)
	})
	each("TTL", func(r *Row) *string { return &r.TTL }, func(t *testing.T, way way) string {
		w.reset(t)
		way.again(t, lampName)
		switch n := len(w.answers(t, lampName, dns.TypeA)); n {
		case 0:
			t.Error("asks nothing when told to look up twice")
			return ""
		case 1:
			return "keeps an answer"
		default: // more than two where the machine is too busy for a client that waits 250 ms
			return "asks each time"
		}
	})
	each("search list", func(r *Row) *string { return &r.Search }, func(t *testing.T, way way) string {
		switch {
		case way.addresses(t, "lamp").found != nil:
			return "yes"
		case way.searching != nil && way.searching(t, "lamp").found != nil:
			return "if told to"
		}
		return "no"
	})

	// One comes, most go, nobody is left, two come back.
	follows := func(step string, want []string) {
		t.Helper()
		dir.lamp(t, want, nil)
		for _, way := range ways {
			t.Run(step+", "+way.client, func(t *testing.T) {
				r := way.addresses(t, lampName)
				if slices.Sort(r.found); !slices.Equal(r.found, slices.Sorted(slices.Values(want))) {
					t.Errorf("finds %q %s, want %q", r.found, r.says, want)
				}
			})
		}
	}
	follows("one comes", addresses(1, 9))
	follows("most go", addresses(9, 9))
	dir.lamp(t, nil, twoPods)
	each("nobody is ready", func(r *Row) *string { return &r.Empty }, nothing)
	follows("two come back", twoPods)

	dir.writeIPv6(t)
	for _, way := range ways {
		t.Run("dual-stack, "+way.client, func(t *testing.T) {
			w.reset(t)
			r := way.addresses(t, lampName)
			want := slices.Clone(twoPods)
			if len(w.answers(t, lampName, dns.TypeAAAA)) > 0 { // else it wants one family
				want = append(want, podsIPv6...)
			}
			if slices.Sort(r.found); !slices.Equal(r.found, want) {
				t.Errorf("finds %q %s, want %q", r.found, r.says, want)
			}
		})
	}
	dir.remove(t, "lamp6")

	dir.noLamp(t)
	each("no such Service", func(r *Row) *string { return &r.Gone }, nothing)

	dir.writeWeights(t)
	each("SRV", func(r *Row) *string { return &r.SRV }, func(t *testing.T, way way) string {
		if way.targets == nil {
			return none
		}
		return targetsSeen(t, w, way)
	})

	dir.lamp(t, addresses(1, 200), nil)
	each("200 addresses", func(r *Row) *string { return &r.Many }, func(t *testing.T, way way) string {
		w.reset(t)
		r := way.addresses(t, lampName)
		cut := false
		overTCP := false
		for _, m := range w.answers(t, lampName, dns.TypeA) {
			cut = cut || m.network == "udp" && m.Truncated
			overTCP = overTCP || m.network == "tcp" && len(m.Answer) == 200
		}
		switch {
		case !cut:
			t.Error("no reply over UDP was cut")
		case len(r.found) == 200 && overTCP:
			return "all, over TCP"
		case len(r.found) > 0 && !overTCP:
			return fmt.Sprintf("%d, those in the datagram", len(r.found))
		case len(r.found) > 0:
			return fmt.Sprintf("%d, over TCP", len(r.found))
		}
		return r.says
	})
	return rows
}

// unreachable is a kubeconfig of a cluster that does not answer.
func unreachable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: away, context: {cluster: away, user: nobody}}]
users: [{name: nobody, user: {}}]
current-context: away
`), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// answers are the replies to such questions.
func (w *wire) answers(t *testing.T, name string, typ uint16) (replies []message) {
	t.Helper()
	for _, m := range w.replies(t) {
		if q := m.Question[0]; strings.EqualFold(q.Name, name) && q.Qtype == typ {
			replies = append(replies, m)
		}
	}
	return replies
}

// data is that of the last of these replies.
func data(replies []message) (list []string) {
	for _, rr := range replies[len(replies)-1].Answer {
		switch rr := rr.(type) {
		case *dns.A:
			list = append(list, rr.A.String())
		case *dns.AAAA:
			list = append(list, rr.AAAA.String())
		case *dns.SRV:
			list = append(list, fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, rr.Target))
		}
	}
	return list
}

// lookedUpOnce looks up until a client has had one whole reply to such a question: one that does not
// wait for long asks again on a busy machine, and then has either.
func lookedUpOnce(t *testing.T, w *wire, look func(*testing.T, string) result, name string, typ uint16) (r result, replies []message) {
	t.Helper()
	eventually(t, func() error {
		w.reset(t)
		r = look(t, name)
		replies = w.answers(t, name, typ)
		whole := 0
		for _, m := range replies {
			if !m.Truncated {
				whole++
			}
		}
		if len(replies) == 0 || whole > 1 || len(r.found) == 0 {
			return fmt.Errorf("finds %q %s; replies: %v", r.found, r.says, replies)
		}
		return nil
	})
	return r, replies
}

// orderSeen is what a way makes of the order of addresses.
func orderSeen(t *testing.T, w *wire, way way, name string, family uint16) string {
	t.Helper()
	var sent, had [][]string
	for range times {
		r, replies := lookedUpOnce(t, w, way.addresses, name, family)
		sent, had = append(sent, data(replies)), append(had, r.found)
	}
	return orderOf(t, sent, had)
}

// What is in no row: where glibc puts addresses on its own subnet, and the order of IPv6 addresses.
func TestLibraryOrder(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	lookupConf(t)
	dir, m := manifestsOf(t, append(slices.Clone(far), near...))
	dir.write(t, "far6", far6, nil)
	serve(t, "readyz", "--manifests="+string(m))
	w := capture(t)
	ways := libraryWays(glibc, machineMusl(t))
	for i, want := range []string{sorted, sorted, sorted} {
		t.Run("IPv6, "+ways[i].client, func(t *testing.T) {
			if got := orderSeen(t, w, ways[i], "far6.dock.registry.local.", dns.TypeAAAA); got != want {
				t.Errorf("the order is %s, want %s", got, want)
			}
		})
	}
	t.Run("own subnet first", func(t *testing.T) {
		for range times {
			w.reset(t)
			had := ways[0].addresses(t, lampName).found
			sent := data(w.answers(t, lampName, dns.TypeA))
			others := slices.DeleteFunc(sent, func(a string) bool { return slices.Contains(near, a) })
			if !slices.Equal(had, append(slices.Clone(near), others...)) {
				t.Errorf("glibc has %q; of the others, epdns has sent %q", had, others)
			}
		}
	})
}

// writeIPv6 gives the pods of Service lamp IPv6 addresses, too: a slice of that family beside the
// one there is.
func (dir namespace) writeIPv6(t *testing.T) {
	t.Helper()
	var endpoints []object
	for _, address := range podsIPv6 {
		endpoints = append(endpoints, object{"addresses": []string{address}, "conditions": object{"ready": true}})
	}
	ports := []object{{"name": "http", "port": 8080, "protocol": "TCP"}}
	dir.put(t, "lamp6", object{ // no Service of these pods
		"apiVersion": "v1", "kind": "Service", "metadata": object{"namespace": "dock", "name": "lamp6"}, "spec": object{"ports": ports},
	}, object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata":    object{"namespace": "dock", "name": "lamp-6", "labels": object{"kubernetes.io/service-name": "lamp"}},
		"addressType": "IPv6", "ports": ports, "endpoints": endpoints,
	})
	eventually(t, func() error {
		reply, err := ask("tcp", lampName, dns.TypeAAAA)
		if err == nil && len(reply.Answer) != len(podsIPv6) {
			err = fmt.Errorf("epdns answers\n%v", reply)
		}
		return err
	})
}

// heavy is the target that all others together do not outweigh, in tier a.
const heavy = "10-20-1-3.lamp.dock.registry.local."

// writeWeights makes Service lamp one of two tiers, with weights.
func (dir namespace) writeWeights(t *testing.T) {
	t.Helper()
	var endpoints []object
	for i, address := range addresses(1, 8) {
		zone := "zone-a"
		if i >= 4 {
			zone = "zone-b"
		}
		endpoints = append(endpoints, object{"addresses": []string{address}, "conditions": object{"ready": true}, "zone": zone})
	}
	ports := []object{{"name": "http", "port": 8080, "protocol": "TCP"}}
	dir.put(t, "lamp", object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": "dock", "name": "lamp",
			"annotations": object{"registry.local/weights": "10-20-1-3=65535"}},
		"spec": object{"clusterIP": "None", "ports": ports},
	}, object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata":    object{"namespace": "dock", "name": "lamp-1", "labels": object{"kubernetes.io/service-name": "lamp"}},
		"addressType": "IPv4", "ports": ports, "endpoints": endpoints,
	})
	eventually(t, func() error {
		reply, err := ask("tcp", srvName, dns.TypeSRV)
		if err == nil && len(reply.Answer) != 8 {
			err = fmt.Errorf("epdns answers\n%v", reply)
		}
		return err
	})
}

// targetsSeen is what a way makes of priorities and weights.
func targetsSeen(t *testing.T, w *wire, way way) string {
	t.Helper()
	var sent, had [][]string
	byPriority, heavyFirst := true, true
	for range times {
		r, replies := lookedUpOnce(t, w, way.targets, srvName, dns.TypeSRV)
		sent, had = append(sent, data(replies)), append(had, r.found)
		byPriority = byPriority && slices.IsSortedFunc(r.found, func(a, b string) int { return cmp.Compare(priority(t, a), priority(t, b)) })
		heavyFirst = heavyFirst && strings.HasSuffix(r.found[0], " "+heavy)
	}
	switch order := orderOf(t, sent, had); {
	case order == kept:
		return "in the order of the reply"
	case byPriority && heavyFirst && order == shuffled:
		return "by priority, drawn by weight"
	default:
		return order
	}
}

func priority(t *testing.T, target string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(target)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// goLooks runs the program that looks up with Go's resolver, and returns what it found, each time.
func goLooks(t *testing.T, args ...string) (all []resolved) {
	t.Helper()
	cmd := exec.Command(goLookup, args...)
	cmd.Env = []string{"GODEBUG=netdns=go"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	for line := range strings.Lines(string(out)) {
		var got resolved
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%q: %v: %s", cmd.Args, err, line)
		}
		all = append(all, got)
	}
	if all == nil {
		t.Fatal("lookup prints nothing")
	}
	return all
}

// machineMusl is musl as the machine has it.
func machineMusl(t *testing.T) muslLib {
	t.Helper()
	found, err := filepath.Glob("/lib/ld-musl-*.so.1")
	if err != nil || len(found) != 1 {
		t.Fatalf("musl's loader is one of %q: %v", found, err)
	}
	return newMusl(t, found[0])
}
