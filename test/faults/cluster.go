//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"epdns/test/cluster"
	"epdns/test/faults/proxy"
)

// This file is about what happens inside the cluster, and to the rights of epdns in it.

// serial is that of the zone as epdns has it now.
func (t *trial) serial(ctx context.Context) (uint32, error) {
	reply, err := exchange(ctx, "udp", t.server.DNS, new(dns.Msg).SetQuestion(zone, dns.TypeSOA))
	if err != nil {
		return 0, err
	}
	for _, rr := range reply.Answer {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa.Serial, nil
		}
	}
	return 0, errors.New("there is no SOA record")
}

// etcdRestored takes the store back to an older state, as an administrator does with a backup: the
// versions of all objects begin anew from there.
func etcdRestored(ctx context.Context, t *trial) error {
	data, backup := filepath.Join(t.kube.Dir, "etcd"), filepath.Join(t.dir, "backup")
	if err := t.kube.Kill(cluster.Etcd); err != nil {
		return err
	}
	if err := copyDir(ctx, data, backup); err != nil {
		return err
	}
	if err := t.kube.StartComponent(ctx, cluster.Etcd); err != nil {
		return err
	}
	err := t.until(ctx, 20*time.Second, func() error { return t.kube.Request(ctx, http.MethodGet, servicesPath, nil, nil) })
	if err != nil {
		return err
	}
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	if err := t.wait(ctx, 2*time.Second); err != nil { // of changes that will not have been
		return err
	}
	t.calm()
	if err := t.wait(ctx, time.Second); err != nil {
		return err
	}
	before, err := t.serial(ctx)
	if err != nil {
		return err
	}
	t.cut()
	for _, c := range []cluster.Component{cluster.APIServer, cluster.Etcd} {
		if err := t.kube.Kill(c); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := copyDir(ctx, backup, data); err != nil {
		return err
	}
	for _, c := range []cluster.Component{cluster.Etcd, cluster.APIServer} {
		if err := t.kube.StartComponent(ctx, c); err != nil {
			return err
		}
	}
	t.heal()
	// Two lists in a row have to say so.
	const within = 20 * time.Second
	if err := t.again(ctx, within); err != nil {
		return err
	}
	if err := t.settle(ctx, within); err != nil {
		return err
	}
	after, err := t.serial(ctx)
	if err != nil {
		return err
	}
	t.check(int32(after-before) > 0, "the serial goes on", "from %d to %d", before, after)
	// The other components are not part of this: they begin anew.
	for _, c := range []cluster.Component{cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		if err := t.kube.Kill(c); err != nil {
			return err
		}
		if err := t.kube.StartComponent(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func copyDir(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// files writes a kubeconfig whose certificate and token are files.
func (t *trial) files(token string) (kubeconfig, caFile, tokenFile string, err error) {
	kubeconfig, caFile, tokenFile = filepath.Join(t.dir, "of-files"), filepath.Join(t.dir, "ca.crt"), filepath.Join(t.dir, "token")
	err = errors.Join(
		os.WriteFile(caFile, t.proxy.CA(), 0o600),
		os.WriteFile(tokenFile, []byte(token), 0o600),
		os.WriteFile(kubeconfig, t.proxy.KubeconfigOfFiles(caFile, tokenFile), 0o600))
	return kubeconfig, caFile, tokenFile, err
}

// tokenRotated has the token expire, and a new one come a little late.
func tokenRotated(ctx context.Context, t *trial) error {
	kubeconfig, _, tokenFile, err := t.files("one")
	if err != nil {
		return err
	}
	var valid atomic.Pointer[string]
	store := func(token string) { valid.Store(&token) }
	store("one")
	t.proxy.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer "+*valid.Load() {
			proxy.Fail(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return true
		}
		r.Header.Set("Authorization", "Bearer "+t.token)
		return false
	})
	if err := t.begin(ctx, setup{kubeconfig: kubeconfig}); err != nil {
		return err
	}
	return t.refusedFor(ctx, 5*time.Second, func() error {
		store("two")
		t.proxy.Reset()
		return nil
	}, func() error {
		return os.WriteFile(tokenFile, []byte("two"), 0o600)
	}, 70*time.Second) // the file is read again each minute
}

// refusedFor is an outage in which requests are refused, which has to be counted.
func (t *trial) refusedFor(ctx context.Context, d time.Duration, broken, mended func() error, fresh time.Duration) error {
	refused := 0.0
	err := t.outage(ctx, broken, d, func() (err error) {
		if refused, err = t.metric("epdns_watch_errors_total"); err != nil {
			return err
		}
		return mended()
	}, fresh)
	if err != nil {
		return err
	}
	t.check(refused > 0, "refusals are counted", "%.0f", refused)
	return nil
}

// rightsRevoked takes the right to list and watch away, and gives it back.
func rightsRevoked(ctx context.Context, t *trial) error {
	path, err := t.kube.KubeconfigFor(cluster.Limited)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	token := regexp.MustCompile(`token: (\S+)`).FindSubmatch(text)
	if token == nil {
		return fmt.Errorf("%s has no token", path)
	}
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	bind := func() error {
		return t.kube.Request(ctx, http.MethodPost, bindings, object{
			"metadata": object{"name": "faults"},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": cluster.Limited}},
		}, nil)
	}
	unbind := func() error { return t.kube.Request(ctx, http.MethodDelete, bindings+"/faults", nil, nil) }
	if err := bind(); err != nil {
		return err
	}
	defer unbind()
	kubeconfig := filepath.Join(t.dir, "limited")
	if err := os.WriteFile(kubeconfig, t.proxy.Kubeconfig(string(token[1])), 0o600); err != nil {
		return err
	}
	if err := t.wait(ctx, time.Second); err != nil { // until the right has come to the API server
		return err
	}
	if err := t.begin(ctx, setup{kubeconfig: kubeconfig}); err != nil {
		return err
	}
	return t.refusedFor(ctx, t.long(10*time.Second, 5*time.Second), func() error {
		if err := unbind(); err != nil {
			return err
		}
		if err := t.wait(ctx, time.Second); err != nil {
			return err
		}
		t.proxy.Reset() // rights are looked at when a watch begins
		return nil
	}, bind, 8*time.Second)
}

// certificateRenewed restarts the API server with another certificate of the same authority.
func certificateRenewed(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	return t.outage(ctx, func() error { return t.proxy.Renew(false) }, 0, func() error { return nil }, freshWithin)
}

// authorityRenewed restarts it with a certificate of a new authority, which comes into the client's
// file a little late.
func authorityRenewed(ctx context.Context, t *trial) error {
	kubeconfig, caFile, _, err := t.files(t.token)
	if err != nil {
		return err
	}
	if err := t.begin(ctx, setup{kubeconfig: kubeconfig}); err != nil {
		return err
	}
	return t.outage(ctx, func() error { return t.proxy.Renew(true) }, 5*time.Second,
		func() error { return os.WriteFile(caFile, t.proxy.CA(), 0o600) }, 5*time.Minute+20*time.Second)
}

// restarted restarts epdns while the API server is away, with the last state on disk.
func restarted(ctx context.Context, t *trial) error {
	s := setup{config: "stateDir: " + filepath.Join(t.dir, "state") + "\n"}
	if err := os.Mkdir(filepath.Join(t.dir, "state"), 0o700); err != nil {
		return err
	}
	if err := t.begin(ctx, s); err != nil {
		return err
	}
	t.calm()
	if err := t.wait(ctx, lag); err != nil {
		return err
	}
	t.stopAsking()
	first := t.asking.answers()
	t.cut()
	if err := lose(t.proxy.Port()); err != nil {
		return err
	}
	before, err := t.serial(ctx)
	if err != nil {
		return err
	}
	s.listen = t.server.DNS
	if err := t.server.Stop(); err != nil {
		return err
	}
	begun := time.Now()
	if t.server, err = t.start(s); err != nil {
		return err
	}
	var a answer
	err = t.until(ctx, 20*time.Second, func() error {
		if a = ask(ctx, t.server.DNS, t.world.services[0].name, true); a.outcome != answered && a.outcome != nxdomain {
			return errors.New("no answer: " + string(a.outcome))
		}
		return nil
	})
	took := time.Since(begun)
	if err != nil {
		t.check(false, "answers without an API server", "none within 20 s")
		return unfilter()
	}
	after, err := t.serial(ctx)
	if err != nil {
		return err
	}
	t.ask(ctx)
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, t.long(10*time.Second, 3*time.Second)); err != nil {
		return err
	}
	if err := unfilter(); err != nil {
		return err
	}
	t.heal()
	if err := t.again(ctx, freshWithin); err != nil {
		return err
	}
	t.asking.add(first)
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(took <= time.Second, "first answer within 1 s of the start", "%s", brief(took))
	stale := dns.ExtendedErrorCodeStaleAnswer
	if a.outcome == nxdomain { // the Service was just not there
		stale = dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	t.check(len(a.ede) == 1 && a.ede[0] == stale, "marked stale", "EDE %v", a.ede)
	t.check(int32(after-before) >= 0, "the serial does not go back", "%d, then %d", before, after)
	return nil
}

// replica cuts off one of two.
func replica(ctx context.Context, t *trial) error {
	const config = "staleAfter: 5s\n"
	other, err := t.start(setup{direct: true, config: config})
	if err != nil {
		return err
	}
	defer other.Stop()
	if err := t.begin(ctx, setup{config: config}); err != nil {
		return err
	}
	t.cut()
	if err := lose(t.proxy.Port()); err != nil {
		return err
	}
	cutAt := time.Now()
	if err := t.wait(ctx, t.long(30*time.Second, 15*time.Second)); err != nil {
		return err
	}
	bad, err := scrape(t.server)
	if err != nil {
		return err
	}
	good, err := scrape(other)
	if err != nil {
		return err
	}
	sample := ask(ctx, t.server.DNS, t.world.services[0].name, true)
	if err := unfilter(); err != nil {
		return err
	}
	t.heal()
	if err := t.again(ctx, freshWithin); err != nil {
		return err
	}
	apart := time.Since(cutAt)
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	differ := 0
	for _, name := range t.world.names() {
		a, b := ask(ctx, t.server.DNS, name, true), ask(ctx, other.DNS, name, true)
		if a.outcome != b.outcome || fmt.Sprint(a.addresses) != fmt.Sprint(b.addresses) {
			differ++
		}
	}
	t.check(bad["epdns_stale"] == 1 && good["epdns_stale"] == 0, "only the one that is cut off says that it is stale", "%.0f and %.0f", bad["epdns_stale"], good["epdns_stale"])
	t.check(len(sample.ede) == 1 && (sample.ede[0] == 3 || sample.ede[0] == 19), "and marks its answers", "EDE %v", sample.ede)
	t.check(differ == 0, "both say the same afterwards", "%d names differ", differ)
	t.note("cut off for %s", brief(apart))
	return nil
}

// storm is as many changes as the API server takes, of Services that nobody asks for, and each is
// told often: duplicates are allowed.
func storm(ctx context.Context, t *trial) error {
	const where, of, writers, times = "storm", 200, 16, 14
	path := strings.Replace(slicesPath, "/"+namespace+"/", "/"+where+"/", 1)
	if err := t.kube.Request(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": where}}, nil); err != nil && !isStatus(err, http.StatusConflict) {
		return err
	}
	t.proxy.Events(func(e *proxy.Event) int {
		if e.Namespace == where {
			return times
		}
		return 1
	})
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	before, err := scrape(t.server)
	if err != nil {
		return err
	}
	begun := time.Now()
	storming, stop := context.WithTimeout(ctx, t.long(20*time.Second, 6*time.Second))
	defer stop()
	var n atomic.Int64
	for i := range writers {
		t.churns.Go(func() {
			for j := 0; storming.Err() == nil; j++ {
				name := fmt.Sprintf("storm-%d", (i+j*writers)%of)
				o := object{
					"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
					"metadata":  object{"name": name, "namespace": where, "labels": object{"kubernetes.io/service-name": name}},
					"endpoints": []object{{"addresses": []string{t.world.fresh(0).address.String()}}, {"addresses": []string{t.world.fresh(0).address.String()}}},
					"ports":     []object{{"name": "http", "port": 8080}},
				}
				err := t.kube.Request(storming, http.MethodPut, path+"/"+name, o, nil)
				if isStatus(err, http.StatusNotFound) {
					err = t.kube.Request(storming, http.MethodPost, path, o, nil)
				}
				if err == nil {
					n.Add(1)
				}
			}
		})
	}
	<-storming.Done()
	d := time.Since(begun)
	after, err := scrape(t.server)
	if err != nil {
		return err
	}
	if err := t.wait(ctx, time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.note("%s changes and %s events a second, put in service %s times a second", thousands(int(float64(n.Load())/d.Seconds())),
		thousands(int((after["epdns_watch_events_total"]-before["epdns_watch_events_total"])/d.Seconds())),
		thousands(int((after["epdns_publishes_total"]-before["epdns_publishes_total"])/d.Seconds())))
	return t.kube.Request(ctx, http.MethodDelete, path, nil, nil)
}
