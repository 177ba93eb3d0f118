//go:build linux

package forwarders_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// page is where what is measured is written.
const page = "../../docs/forwarders.md"

// row is what a forwarder makes of answers, in the words of the page's table.
type row struct {
	ttl        string // of records with TTLs 0, 2 and 5
	negative   string // and of what is not there, by epdns 2 and 5
	order      string
	additional string
	many       string // of 200 records
	reverse    string
}

func (r row) String() string {
	return strings.Join([]string{r.ttl, r.negative, r.order, r.additional, r.many, r.reverse}, " | ")
}

// Through each forwarder with its snippet, the answers are epdns's, and what becomes of them on
// the way is what the page says.
func TestForwarders(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := shop(t)
	serve(t, dir)
	at := map[string]string{}
	for _, f := range forwarders {
		at[f.name] = f.address()
		up(t, f.start(t, at[f.name], ""), at[f.name])
	}
	for _, f := range forwarders {
		t.Run(f.name, func(t *testing.T) {
			answers(t, at[f.name])
			got := measure(t, at[f.name])
			if i := slices.IndexFunc(strings.Split(string(text), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "| "+f.name+" ") && strings.HasSuffix(line, " | "+got.String()+" |")
			}); i < 0 {
				t.Errorf("%s should have, behind the forwarder, its version and its snippet: | %v |", page, got)
			}
		})
	}
	t.Run("C libraries", func(t *testing.T) { libraries(t, at) })
	t.Run("a change", func(t *testing.T) { change(t, dir, at) })
}

// answers compares what does not depend on the forwarder.
func answers(t *testing.T, at string) {
	for _, test := range []struct {
		name   string
		qtype  uint16
		rcode  int
		answer []string
	}{
		{"web.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, []string{"10.244.1.11", "10.244.2.12"}},
		{"web.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"db.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, []string{"fd00:10:244:1::20"}},
		{"_http._tcp.web.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess,
			[]string{"0 1 8080 10-244-1-11.web.shop.registry.local.", "0 1 8080 10-244-2-12.web.shop.registry.local."}},
		{"many.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, sorted(pods(200))},
		{"idle.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, nil},
		{"none.shop.registry.local.", dns.TypeA, dns.RcodeNameError, nil},
	} {
		for range 2 { // the second time from a cache
			reply, err := put(at, test.name, test.qtype)
			if err != nil {
				t.Error(err)
				continue
			}
			if got := sorted(data(reply.Answer)); reply.Rcode != test.rcode || !slices.Equal(got, test.answer) {
				t.Errorf("%s %s: %s with %d records %.200q, want %s with %d %.200q", test.name, dns.Type(test.qtype),
					dns.RcodeToString[reply.Rcode], len(got), got, dns.RcodeToString[test.rcode], len(test.answer), test.answer)
			}
		}
	}
}

// measure asks for what depends on it. Names are asked for that nothing has asked for before.
func measure(t *testing.T, at string) (r row) {
	t.Helper()
	must := func(name string, qtype uint16) *dns.Msg {
		t.Helper()
		reply, err := put(at, name+".shop.registry.local.", qtype)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	seconds := func(replies ...*dns.Msg) string {
		var all []string
		for _, m := range replies {
			if n := ttl(m); n >= 0 {
				all = append(all, fmt.Sprint(n))
			} else {
				all = append(all, "no SOA")
			}
		}
		return strings.Join(all, ", ")
	}
	r.ttl = seconds(must("10-244-3-1.zero", dns.TypeA), must("10-244-3-2.brief", dns.TypeA), must("10-244-1-11.web", dns.TypeA))
	r.negative = seconds(must("_http._tcp.idle", dns.TypeSRV), must("gone", dns.TypeA))

	r.order = "kept"
	first := must("db", dns.TypeA)
	for range 10 {
		if !slices.Equal(data(must("db", dns.TypeA).Answer), data(first.Answer)) {
			r.order = "changes"
		}
	}
	var with []string
	for range 2 {
		n := len(data(must("web", dns.TypeSRV).Extra))
		with = append(with, map[bool]string{true: "with", false: "without"}[n > 0])
	}
	r.additional = strings.Join(slices.Compact(with), ", then ")
	r.many = fmt.Sprint(len(must("many", dns.TypeA).Answer))
	reply, err := put(at, "11.1.244.10.in-addr.arpa.", dns.TypePTR)
	if err != nil {
		t.Fatal(err)
	}
	r.reverse = "no"
	if slices.Equal(data(reply.Answer), []string{"10-244-1-11.web.shop.registry.local."}) {
		r.reverse = "yes"
	}
	return r
}

// libraries looks up short names with each forwarder as the only nameserver.
func libraries(t *testing.T, at map[string]string) {
	netns.Mount(t, "/etc/nsswitch.conf", "hosts: files dns\n") // a desktop's gives .local to mDNS
	resolvConf := netns.Mount(t, "/etc/resolv.conf", "")
	for name, address := range at {
		text := "nameserver " + address + "\nsearch shop.registry.local registry.local\noptions ndots:5\n"
		if err := os.WriteFile(resolvConf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, argv := range [][]string{{"getent", "ahosts", "db"}, {musl, "db"}, {"getent", "ahosts", "db.shop"}, {musl, "db.shop"}} {
			out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
			var got []string
			for line := range strings.Lines(string(out)) {
				got = append(got, strings.Fields(line)[0])
			}
			slices.Sort(got)
			if got = slices.Compact(got); err != nil || !slices.Equal(got, db) {
				t.Errorf("%s: %q finds %q (%v), want %q", name, argv, got, err, db)
			}
		}
	}
}

// change has pods come and go, right after all have the answers before: who asks when those are
// over is told.
func change(t *testing.T, dir string, at map[string]string) {
	before, after := []string{"10.244.4.1", "10.244.4.2"}, []string{"10.244.4.2", "10.244.4.3"}
	service(t, dir, "moving", before, nil)
	run.Eventually(t, func() error { return has(epdnsIP, before) })
	for name, address := range at {
		if err := has(address, before); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	service(t, dir, "moving", after, nil)
	run.Eventually(t, func() error { return has(epdnsIP, after) })
	changed := time.Now()
	const bound = 7 * time.Second // the TTL, which some count in whole seconds, and one to spare
	var wg sync.WaitGroup
	for name, address := range at {
		wg.Go(func() {
			for ; ; time.Sleep(50 * time.Millisecond) {
				err, since := has(address, after), time.Since(changed)
				if err == nil {
					t.Logf("%s has the change after %v", name, since.Round(10*time.Millisecond))
					return
				}
				if since > bound || has(address, before) != nil && has(address, after) != nil {
					t.Errorf("%s after %v: %v", name, since, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// has is an error unless Service moving has these addresses there.
func has(at string, want []string) error {
	reply, err := ask("udp", at, "moving.shop.registry.local.", dns.TypeA)
	if err != nil {
		return err
	}
	if got := sorted(data(reply.Answer)); !slices.Equal(got, want) {
		return fmt.Errorf("it answers %q, want %q", got, want)
	}
	return nil
}
