//go:build linux

package clients_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file starts programs, says what there is in the cluster, and waits for things.

// grace is how long anything may take that is over in a moment on an idle machine.
const grace = run.Grace

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	run.Eventually(t, try)
}

// within tries, again and again, until there is no error, which may take so long.
func within(t *testing.T, limit, every time.Duration, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("after %v still", limit))
	defer cancel()
	if err := run.Until(ctx, every, try); err != nil {
		t.Fatal(err)
	}
}

// start starts a program.
func start(t *testing.T, argv ...string) *run.Process {
	t.Helper()
	return run.ForTest(t, exec.Command(argv[0], argv[1:]...))
}

// serve runs epdns and returns when it is ready, or only alive.
func serve(t *testing.T, page string, args ...string) *run.Process {
	t.Helper()
	p := start(t, append([]string{epdns, "serve", "--lameduck=0", "--listen=" + epdnsIP + ":53"}, args...)...)
	p.Eventually(t, func() error {
		_, err := run.Get("http://127.0.0.1:9153/" + page)
		return err
	})
	return p
}

// namespace is namespace dock.
type namespace struct{ keeper }

// keeper is where the objects of the namespace are for epdns to read.
type keeper interface {
	put(t *testing.T, name string, service, slice object)
	remove(t *testing.T, name string) // both of that name
}

type object = map[string]any

// manifests is a directory.
type manifests string

func (dir manifests) put(t *testing.T, name string, service, slice object) {
	t.Helper()
	dir.list(t, name, service, slice)
}

// list makes these objects all that there is under a name.
func (dir manifests) list(t *testing.T, name string, items ...object) {
	t.Helper()
	data, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(string(dir), name+".json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (dir manifests) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(dir), name+".json")); err != nil {
		t.Fatal(err)
	}
}

// manifestsOf returns the namespace with Service lamp of these ready pods, and where its
// manifests are.
func manifestsOf(t *testing.T, lamp []string) (namespace, manifests) {
	t.Helper()
	m := manifests(t.TempDir())
	dir := namespace{m}
	// Something else is always there.
	dir.write(t, "bulb", []string{"10.20.9.9"}, nil)
	dir.write(t, "lamp", lamp, nil)
	return dir, m
}

// serveLamp runs epdns with Service lamp of so many ready pods.
func serveLamp(t *testing.T, ready int, args ...string) namespace {
	t.Helper()
	first, last := 1, ready
	if ready == 2 {
		first, last = 11, 12
	}
	dir, m := manifestsOf(t, addresses(first, last))
	serve(t, "readyz", append([]string{"--manifests=" + string(m)}, args...)...)
	return dir
}

// lamp makes these the pods of Service lamp, and waits until epdns tells the ready ones.
func (dir namespace) lamp(t *testing.T, ready, unready []string) {
	t.Helper()
	dir.write(t, "lamp", ready, unready)
	eventually(t, func() error {
		family := dns.TypeA
		if len(ready) > 0 && strings.Contains(ready[0], ":") {
			family = dns.TypeAAAA
		}
		reply, err := ask("tcp", lampName, family)
		if err == nil && (len(reply.Answer) != len(ready) || reply.Rcode != dns.RcodeSuccess) {
			err = fmt.Errorf("epdns answers\n%v", reply)
		}
		return err
	})
}

// noLamp takes Service lamp away.
func (dir namespace) noLamp(t *testing.T) {
	t.Helper()
	dir.remove(t, "lamp")
	eventually(t, func() error {
		reply, err := ask("tcp", "lamp.dock.registry.local.", dns.TypeA)
		if err == nil && reply.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("epdns answers\n%v", reply)
		}
		return err
	})
}

// addresses are those of pods, by number.
func addresses(first, last int) (list []string) {
	for i := first; i <= last; i++ {
		list = append(list, fmt.Sprintf("10.20.1.%d", i))
	}
	return list
}

func (dir namespace) write(t *testing.T, name string, ready, unready []string) {
	t.Helper()
	family, endpoints := "IPv4", []object{}
	for i, group := range [][]string{ready, unready} {
		for _, address := range group {
			if strings.Contains(address, ":") {
				family = "IPv6" // all of them
			}
			endpoints = append(endpoints, object{"addresses": []string{address}, "conditions": object{"ready": i == 0}})
		}
	}
	dir.put(t, name, object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": "dock", "name": name},
		"spec": object{"clusterIP": "None",
			"ports": []object{{"name": "http", "port": 8080, "protocol": "TCP"}}},
	}, object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": object{"namespace": "dock", "name": name + "-1",
			"labels": object{"kubernetes.io/service-name": name}},
		"addressType": family,
		"ports":       []object{{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints":   endpoints,
	})
}

// ask puts a question to epdns, without EDNS.
func ask(network, name string, typ uint16) (*dns.Msg, error) {
	return exchange(network, new(dns.Msg).SetQuestion(name, typ))
}

// exchange does so from an address that the capture does not look at.
func exchange(network string, m *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, Timeout: 3 * time.Second, Dialer: &net.Dialer{}}
	if network == "tcp" {
		client.Dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}
	} else {
		client.Dialer.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)}
	}
	reply, _, err := client.Exchange(m, epdnsIP+":53")
	return reply, err
}

// serveOther answers at port 53 of this address with what answer says, until the test ends. What
// it returns are the names it has been asked for.
func serveOther(t *testing.T, ip string, answer dns.HandlerFunc) func() []string {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	conn, err := net.ListenPacket("udp", ip+":53")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", ip+":53")
	if err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		mu.Lock()
		asked = append(asked, m.Question[0].Name)
		mu.Unlock()
		answer(w, m)
	})
	for _, server := range []*dns.Server{{PacketConn: conn, Handler: handler}, {Listener: listener, Handler: handler}} {
		started, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			if err := server.ActivateAndServe(); err != nil {
				t.Error(err)
			}
		}()
		<-started
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), asked...)
	}
}

// servePods serves HTTP at port 8080 of all pods: who was asked.
func servePods(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp4", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)))
		fmt.Fprint(w, host)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
}

// whoServes asks this address by HTTP, over a connection of its own, and returns which pod had that,
// or the status if there was an error.
func whoServes(address string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: grace}
	resp, err := client.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status, nil
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// resolvConf makes this the resolver's configuration.
func resolvConf(t *testing.T, content string) {
	t.Helper()
	netns.Mount(t, "/etc/resolv.conf", content)
}

// hosts has names looked up as on a server; a desktop's resolver gives .local to mDNS.
func hosts(t *testing.T) {
	t.Helper()
	netns.Mount(t, "/etc/nsswitch.conf", "hosts: files dns\n")
}
