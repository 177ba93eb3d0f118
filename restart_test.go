package epdns_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/internal/fakeapi"
)

// Restarts of the program with a state directory, on an API server that is away.

// put makes a Service of shop, with one slice, be at an address.
func (a *fakeAPI) put(name, address string) {
	a.Apply(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1"}})
	a.Apply(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-1", UID: "2",
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	})
}

func (a *fakeAPI) take(t *testing.T, name string) {
	t.Helper()
	for kind, id := range map[string]fakeapi.ID{"Service": {Namespace: "shop", Name: name}, "EndpointSlice": {Namespace: "shop", Name: name + "-1"}} {
		if err := a.Delete(kind, id); err != nil {
			t.Fatal(err)
		}
	}
}

// address is that of a Service of shop, or the RCODE, with the extended errors.
func (p *program) address(name string) (string, error) {
	r, err := ask(name+".shop."+zone, dns.TypeA).send(p.dns.Port())
	if err != nil {
		return "", err
	}
	out := rcodeName(r.rcode)
	if all := r.asked(); len(all) == 1 {
		out = rdata(all[0])
	}
	for _, code := range r.ede() {
		out += fmt.Sprintf(" ede=%d", code)
	}
	return out, nil
}

// answers waits until a Service has this answer.
func (p *program) answers(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, func() error {
		if got, err := p.address(name); err != nil || got != want {
			return errors.Join(fmt.Errorf("%s is %s, want %s, %v", name, got, want, err), p.running())
		}
		return nil
	})
}

// serial is that of the zone.
func (p *program) serial(t *testing.T) uint32 {
	t.Helper()
	r, err := ask(zone, dns.TypeSOA).send(p.dns.Port())
	if err != nil || len(r.asked()) != 1 {
		t.Fatalf("no SOA: %v, %v", r, err)
	}
	return r.asked()[0].(*dns.SOA).Serial
}

// metric waits until a metric without labels has a value.
func (p *program) metric(t *testing.T, name, value string) {
	t.Helper()
	eventually(t, func() error {
		_, page := p.get(t, "/metrics")
		if !strings.Contains("\n"+page, "\n"+name+" "+value+"\n") {
			return fmt.Errorf("%s is not %s", name, value)
		}
		return nil
	})
}

// A restart while the API is away answers from what was known, marked as such, and goes
// over to what is there when it comes back, without a wrong answer in between.
func TestRestartWithoutAPI(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(t *testing.T, p *program)
		away func(api *fakeAPI)
		back func(t *testing.T, api *fakeAPI)
	}{
		{"told to end, the API server is gone", func(t *testing.T, p *program) { p.stop(t, syscall.SIGTERM) },
			func(api *fakeAPI) { api.shut(true) },
			func(t *testing.T, api *fakeAPI) {
				if err := api.open(); err != nil {
					t.Error(err)
				}
			}},
		{"killed, the API server is gone", func(_ *testing.T, p *program) { p.kill() },
			func(api *fakeAPI) { api.shut(false) },
			func(t *testing.T, api *fakeAPI) {
				if err := api.open(); err != nil {
					t.Error(err)
				}
			}},
		{"killed, the API server is late with one kind", func(_ *testing.T, p *program) { p.kill() },
			func(api *fakeAPI) { api.SlowDown("Service", 2*time.Second) },
			func(*testing.T, *fakeAPI) {}},
		{"told to end, the API server has errors", func(t *testing.T, p *program) { p.stop(t, syscall.SIGTERM) },
			func(api *fakeAPI) { api.Fail(http.StatusInternalServerError) },
			func(_ *testing.T, api *fakeAPI) { api.Fail(0) }},
		{"told to end, all rights are lost", func(t *testing.T, p *program) { p.stop(t, syscall.SIGTERM) },
			func(api *fakeAPI) {
				for _, kind := range []string{"EndpointSlice", "Service", "Node"} {
					api.Forbid(kind, true)
				}
			},
			func(_ *testing.T, api *fakeAPI) {
				for _, kind := range []string{"EndpointSlice", "Service", "Node"} {
					api.Forbid(kind, false)
				}
			}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, false)
			api.put("web", "10.0.0.1")
			api.put("gone", "10.0.0.8")
			args := []string{"--kubeconfig", api.kubeconfig, "--state-dir", filepath.Join(t.TempDir(), "state")}
			first := serve(t, args...)
			first.answers(t, "web", "10.0.0.1")
			first.logged(t, "the state is written")
			serial := first.serial(t)
			c.end(t, first)
			c.away(api)

			began := time.Now()
			p := listen(t, args...)
			p.answers(t, "web", "10.0.0.1 ede=3")
			t.Logf("the first right answer came %d ms after the start", time.Since(began).Milliseconds())
			if code, text := p.get(t, "/readyz"); code != http.StatusOK {
				t.Errorf("/readyz: %d %s", code, text)
			}
			p.answers(t, "gone", "10.0.0.8 ede=3")
			p.answers(t, "nope", "NXDOMAIN ede=19")
			p.metric(t, "epdns_state_restored", "1")
			p.metric(t, "epdns_synced", "0")
			p.logged(t, "restored the state of before", `"services":2`)
			if got := p.serial(t); int32(got-serial) <= 0 {
				t.Errorf("the serial is %d after %d", got, serial)
			}
			serial = p.serial(t)

			// From now on somebody asks all the time.
			var mu sync.Mutex
			seen := map[string]int{}
			stop := make(chan struct{})
			var asking sync.WaitGroup
			asking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					got, err := p.address("web")
					if err != nil {
						got = err.Error()
					}
					mu.Lock()
					if got == "10.0.0.1 ede=3" && seen["10.0.0.2"] > 0 {
						got = "back to " + got
					}
					seen[got]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
			api.put("web", "10.0.0.2")
			api.take(t, "gone")
			api.put("late", "10.0.0.3")
			c.back(t, api)
			p.answers(t, "web", "10.0.0.2")
			p.answers(t, "gone", "NXDOMAIN")
			p.answers(t, "late", "10.0.0.3")
			p.metric(t, "epdns_state_restored", "0")
			p.metric(t, "epdns_synced", "1")
			p.logged(t, "the restored state is served no more")
			eventually(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				if seen["10.0.0.2"] < 10 {
					return errors.New("the one who asks all the time has not seen it")
				}
				return nil
			})
			close(stop)
			asking.Wait()
			for got, n := range seen {
				if got != "10.0.0.1 ede=3" && got != "10.0.0.2" {
					t.Errorf("%d times the answer was %s", n, got)
				}
			}
			eventually(t, func() error {
				if got := p.serial(t); int32(got-serial) <= 0 {
					return fmt.Errorf("the serial is %d after %d", got, serial)
				}
				return nil
			})
		})
	}
}

// The second process with a directory says so, serves, and writes when the first has ended.
func TestStateDirIsShared(t *testing.T) {
	api := newFakeAPI(t, false)
	api.put("web", "10.0.0.1")
	args := []string{"--kubeconfig", api.kubeconfig, "--state-dir", t.TempDir()}
	first := serve(t, args...)
	first.logged(t, "the state is written")
	second := serve(t, args...)
	second.logged(t, "the state is not written", "another process writes to it")
	second.logged(t, "the restored state is served no more")
	second.answers(t, "web", "10.0.0.1")
	second.metric(t, "epdns_state_writes_total", "0")
	first.stop(t, syscall.SIGTERM)
	second.stop(t, syscall.SIGTERM) // it writes at the end at the latest
	if !strings.Contains(second.stderr.String(), "the state is written") {
		t.Errorf("it has not written:\n%v", &second.stderr)
	}
}

// A state that is not ours, or none at all, is told of and not used.
func TestStateIsNotUsed(t *testing.T) {
	api := newFakeAPI(t, false)
	api.put("web", "10.0.0.1")
	dir := t.TempDir()
	first := serve(t, "--kubeconfig", api.kubeconfig, "--state-dir", dir)
	first.logged(t, "the state is written")
	first.stop(t, syscall.SIGTERM)
	api.shut(true)
	state := filepath.Join(dir, "state")
	whole := readFile(t, state)
	for _, c := range []struct {
		what, content string
		args          []string
		says          string
	}{
		{"of other namespaces", whole, []string{"--namespace", "shop"}, "it is the state of https://"},
		{"damaged", whole[:len(whole)-1] + "x", nil, "its checksum is wrong"},
		{"cut", whole[:len(whole)-1], nil, "its content has"},
	} {
		t.Run(c.what, func(t *testing.T) {
			replaceFile(t, state, c.content)
			p := listen(t, append(c.args, "--kubeconfig", api.kubeconfig, "--state-dir", dir)...)
			p.logged(t, "the state of before is not used", c.says)
			p.answers(t, "web", "SERVFAIL ede=14")
			if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
			if got := readFile(t, filepath.Join(dir, "state.bad")); got != c.content {
				t.Errorf("what was set aside has %d octets", len(got))
			}
		})
	}
}
