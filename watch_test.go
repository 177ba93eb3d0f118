package epdns_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// watched is a line of "epdns watch -o json".
type watched struct {
	Time                               time.Time
	Type, Namespace, Service           string
	Address, Pod, Hostname, Zone, Node string
	Ready, Serving, Terminating        bool
	Slice                              string
	Ports                              []struct {
		Name, Protocol string
		Number         uint16
	}
	Was *watched
}

func (w watched) String() string {
	return w.Type + " " + w.Namespace + "/" + w.Service + " " + w.Address
}

// watching starts "epdns watch -o json".
func watching(t *testing.T, args ...string) *program {
	t.Helper()
	return launch(t, environment(), append([]string{"watch", "-o", "json"}, args...)...)
}

// changes are all changes so far.
func (p *program) changes(t *testing.T) (all []watched) {
	t.Helper()
	for _, line := range p.stdout.lines() {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var w watched
		if err := d.Decode(&w); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if since := time.Since(w.Time); since < -time.Minute || since > time.Hour || w.Time.Location() != time.UTC {
			t.Fatalf("at the wrong time: %q", line)
		}
		all = append(all, w)
	}
	return all
}

// showed waits until these changes, and no others, have been printed since the
// first n. It returns how many there are now.
func (p *program) showed(t *testing.T, n int, want ...string) int {
	t.Helper()
	eventually(t, func() error {
		var got []string
		for _, c := range p.changes(t)[n:] {
			got = append(got, c.String())
		}
		if !slices.Equal(got, want) {
			return errors.Join(fmt.Errorf("it showed %q, expected %q", got, want), p.running())
		}
		return nil
	})
	return n + len(want)
}

// said are the lines for people on standard error, behind the program's name.
func (p *program) said() (out []string) {
	for _, line := range p.stderr.lines() {
		out = append(out, strings.TrimPrefix(line, "epdns: "))
	}
	return out
}

// says waits until the lines for people have these texts, one each.
func (p *program) says(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := p.said(); !slices.EqualFunc(got, want, strings.Contains) {
			return errors.Join(fmt.Errorf("it said %q, expected %q", got, want), p.running())
		}
		return nil
	})
}

// Somebody watches a Service in files that somebody else edits, from before it is
// there until it is gone.
func TestWatchManifests(t *testing.T) {
	t.Parallel()
	dir := writeService(t, t.TempDir(), "shop", "api", "10.9.0.1")
	p := watching(t, "shop/web", "--manifests", dir)
	p.says(t, "there is no Service shop/web; waiting for it")

	writeService(t, dir, "shop", "web", "10.3.0.2", "10.3.0.1")
	n := p.showed(t, 0, "ADDED shop/web 10.3.0.1", "ADDED shop/web 10.3.0.2")
	c := p.changes(t)[0]
	if !c.Ready || !c.Serving || c.Terminating || c.Slice != "web-1" || len(c.Ports) != 1 || c.Ports[0].Name != "http" ||
		c.Ports[0].Protocol != "TCP" || c.Ports[0].Number != 8080 {
		t.Errorf("the first one is %+v", c)
	}
	writeService(t, dir, "shop", "web", "10.3.0.3", "10.3.0.1")
	n = p.showed(t, n, "REMOVED shop/web 10.3.0.2", "ADDED shop/web 10.3.0.3")

	path := filepath.Join(dir, "web.json")
	replaceFile(t, path, strings.Replace(readFile(t, path), `"conditions":{}`, `"conditions":{"ready":false,"serving":true,"terminating":true}`, 1))
	n = p.showed(t, n, "CHANGED shop/web 10.3.0.3")
	if c := p.changes(t)[n-1]; c.Ready || !c.Serving || !c.Terminating || c.Was == nil || !c.Was.Ready || c.Was.Terminating {
		t.Errorf("the one that leaves is %+v", c)
	}

	writeService(t, dir, "shop", "api", "10.9.0.2") // nobody's business
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n = p.showed(t, n, "REMOVED shop/web 10.3.0.1", "REMOVED shop/web 10.3.0.3")
	none := "there is no Service shop/web; waiting for it"
	p.says(t, none, none)
	p.stop(t, os.Interrupt)
	p.showedNoMore(t, n)
}

// showedNoMore checks that nothing has been printed since the first n changes.
func (p *program) showedNoMore(t *testing.T, n int) {
	t.Helper()
	if all := p.changes(t); len(all) != n {
		t.Errorf("it showed %v besides", all[n:])
	}
}

// The table of all Services has one header, and every column of a line stands
// under its head.
func TestWatchTable(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/cluster")); err != nil {
		t.Fatal(err)
	}
	p := launch(t, environment(), "watch", "--all", "--manifests", dir)
	find := func(words ...string) func() error {
		return func() error {
			for _, line := range p.stdout.lines() {
				if got := strings.Fields(line); len(got) > 0 && slices.Equal(got[1:], words) {
					return nil
				}
			}
			return errors.Join(fmt.Errorf("there is no line of %q:\n%v", words, &p.stdout), p.running())
		}
	}
	eventually(t, find("ADDED", "shop/web", "10.1.3.11", "ready", "zone-c", "node-c1", "web-6d8f9c7b54-r5jqd", "web-k7tq9"))
	for _, words := range [][]string{
		{"ADDED", "shop/jobs", "10.1.2.41", "not-ready", "zone-b", "node-b1", "jobs-5f7c9d6b8-n8szk", "jobs-t4z8g"},
		{"ADDED", "shop/jobs", "10.1.3.41", "serving,terminating", "zone-c", "node-c1", "jobs-6b8d5c4f7-v2jhm", "jobs-t4z8g"},
	} {
		if err := find(words...)(); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(dir, "jobs.yaml")
	replaceFile(t, path, strings.Replace(readFile(t, path), "ready: true", "ready: false", 1))
	eventually(t, find("CHANGED", "shop/jobs", "10.1.1.41", "serving", "zone-a", "node-a1", "jobs-5f7c9d6b8-q4xwd", "jobs-t4z8g", "ready"))

	lines := p.stdout.lines()
	heads := regexp.MustCompile(`\S+`).FindAllStringIndex(lines[0], -1)
	if !strings.HasPrefix(lines[0], "TIME ") || len(heads) != 10 {
		t.Fatalf("the header is %q", lines[0])
	}
	for _, line := range lines[1:] {
		if strings.HasPrefix(line, "TIME") {
			t.Errorf("a second header: %q", line)
		}
		for i, cell := range regexp.MustCompile(`\S+`).FindAllStringIndex(line, -1) {
			if cell[0] != heads[i][0] {
				t.Errorf("column %d does not stand under its head:\n%s\n%s", i, lines[0], line)
			}
		}
	}
	p.stop(t, syscall.SIGTERM)
}

// A door is an address that stays while the server behind it changes.
type door struct {
	net.Listener
	mu   sync.Mutex
	to   string // host:port, empty for nobody
	open map[net.Conn]struct{}
}

func newDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l, open: map[net.Conn]struct{}{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { d.pass(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		d.mu.Lock()
		for c := range d.open {
			c.Close()
		}
		d.mu.Unlock()
		wg.Wait()
	})
	return d
}

// leadTo names the server behind the door.
func (d *door) leadTo(p *program) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = ""
	if p != nil {
		d.to = strings.TrimPrefix(p.http, "http://")
	}
}

func (d *door) url() string { return "http://" + d.Addr().String() }

func (d *door) pass(c net.Conn) {
	defer c.Close()
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	if to == "" {
		return
	}
	s, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return
	}
	defer s.Close()
	d.mu.Lock()
	d.open[c] = struct{}{}
	d.mu.Unlock()
	go func() {
		io.Copy(s, c)
		s.Close()
	}()
	io.Copy(c, s)
	d.mu.Lock()
	delete(d.open, c)
	d.mu.Unlock()
}

// Somebody watches through a server that is stopped, and another time killed,
// while the files change: what is shown are the changes, once each, and nobody
// stays who has gone meanwhile.
func TestWatchServer(t *testing.T) {
	dir := writeService(t, t.TempDir(), "shop", "web", "10.3.0.1", "10.3.0.2")
	server := serve(t, "--manifests", dir)
	front := newDoor(t)
	front.leadTo(server)
	p := watching(t, "shop/web", "--server", front.url())
	all := watching(t, "--all", "--server", front.url()+"/")
	n := 0
	show := func(want ...string) {
		t.Helper()
		all.showed(t, n, want...)
		n = p.showed(t, n, want...)
	}
	show("ADDED shop/web 10.3.0.1", "ADDED shop/web 10.3.0.2")
	writeService(t, dir, "shop", "web", "10.3.0.1", "10.3.0.2", "10.3.0.3")
	show("ADDED shop/web 10.3.0.3")

	// Stopped in good order: open streams do not hold it up.
	begun := time.Now()
	front.leadTo(nil)
	server.stop(t, syscall.SIGTERM)
	if took := time.Since(begun); took > 6*time.Second {
		t.Errorf("with a stream open the server took %v to stop", took)
	}
	p.says(t, "connecting again")
	writeService(t, dir, "shop", "web", "10.3.0.2", "10.3.0.4")
	server = serve(t, "--manifests", dir)
	front.leadTo(server)
	show("REMOVED shop/web 10.3.0.1", "REMOVED shop/web 10.3.0.3", "ADDED shop/web 10.3.0.4")

	// Killed, and nothing changes meanwhile.
	front.leadTo(nil)
	server.kill()
	p.says(t, "connecting again", "connected again", "connecting again")
	front.leadTo(serve(t, "--manifests", dir))
	p.says(t, "connecting again", "connected again", "connecting again", "connected again")
	writeService(t, dir, "shop", "web", "10.3.0.4")
	show("REMOVED shop/web 10.3.0.2")

	// The Service goes, and leaves a file: without any nothing would change.
	if err := os.WriteFile(filepath.Join(dir, "nothing.yaml"), []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "web.json")); err != nil {
		t.Fatal(err)
	}
	show("REMOVED shop/web 10.3.0.4")
	p.stop(t, os.Interrupt)
	p.showedNoMore(t, n)
}

// kill ends a program without a chance to do anything.
func (p *program) kill() {
	p.stopped = true
	p.cmd.Process.Kill()
	<-p.ended
}

// The stream is what anybody can read: server-sent events.
func TestWatchStream(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(p.http + "/watch?service=shop/web")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type: %s", got)
	}
	timeout := time.AfterFunc(grace, func() { resp.Body.Close() })
	defer timeout.Stop()
	var got []string
	for lines := bufio.NewScanner(resp.Body); len(got) < 6; {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v, after %q", lines.Err(), got)
		}
		line := lines.Text()
		var c watched
		switch data, isData := strings.CutPrefix(line, "data: "); {
		case line == "", strings.HasPrefix(line, ":"):
		case isData && json.Unmarshal([]byte(data), &c) == nil:
			got = append(got, c.String())
		default:
			got = append(got, line)
		}
	}
	want := []string{"ADDED shop/web 10.1.1.11", "ADDED shop/web 10.1.1.12", "ADDED shop/web 10.1.2.11", "ADDED shop/web 10.1.3.11",
		"event: services", "data: 1"}
	if !slices.Equal(got, want) {
		t.Errorf("the stream is %q, expected %q", got, want)
	}
	for path, says := range map[string]string{"/watch": `"service"`, "/watch?service=web": `"service"`, "/watch?all=x": `"all"`,
		"/lookup": `"name"`, "/lookup?name=a&type=x": `"type"`, "/lookup?name=a&from=x": `"from"`} {
		if code, body := p.get(t, path); code != http.StatusBadRequest || !strings.Contains(body, says) {
			t.Errorf("%s: %d %q, expected 400 and %s", path, code, body, says)
		}
	}
}

// Others than this machine get no details.
func TestDetailsElsewhere(t *testing.T) {
	address := ourAddress(t)
	p := serve(t, "--manifests", "testdata/cluster", "--http", net.JoinHostPort(address, "0"))
	for _, path := range []string{"/watch?all=true", "/lookup?name=web.shop.registry.local"} {
		if code, body := p.get(t, path); code != http.StatusForbidden || !strings.Contains(body, "httpDetails: true") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	for _, args := range []string{"watch --all", "lookup web.shop.registry.local"} {
		_, stderr, code := once(t, environment(), append(strings.Fields(args), "--server", p.http)...)
		if code != 1 {
			t.Errorf("%s: exit status %d", args, code)
		}
		if err := oneLine(stderr, "403 Forbidden", "for this machine only"); err != nil {
			t.Error(err)
		}
	}
}

// ourAddress is an IPv4 address of this machine that is not loopback.
func ourAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

func TestWatchMistakes(t *testing.T) {
	nobody := closedPort(t)
	mistakes(t, []mistake{
		{"watch", 2, []string{"NAMESPACE/SERVICE", "--all"}},
		{"watch web", 2, []string{`"web"`, "NAMESPACE/SERVICE"}},
		{"watch shop/web/1", 2, []string{`"shop/web/1"`}},
		{"watch shop/Web", 2, []string{`"Web"`}},
		{"watch shop web", 2, []string{"epdns watch --help"}},
		{"watch shop/web --all", 2, []string{"--all", `"shop/web"`}},
		{"watch shop/web -o xml", 2, []string{"--output", `"xml"`, "table, wide, json or yaml"}},
		{"watch shop/web --color sometimes", 2, []string{"--color", `"sometimes"`, "auto, always or never"}},
		{"watch shop/web --namespace data", 2, []string{"shop/web", "--namespace"}},
		{"watch shop/web --server 127.0.0.1:9153", 2, []string{"--server", `"127.0.0.1:9153"`, "http://127.0.0.1:9153"}},
		{"watch shop/web --server=", 2, []string{"--server", `""`}},
		{"watch shop/web --server http://127.0.0.1:1 --manifests testdata/cluster", 2, []string{"--server", "--manifests"}},
		{"watch --all --server http://127.0.0.1:1 --namespace shop", 2, []string{"--server", "--namespace"}},
		{"watch shop/web --server http://" + nobody, 1, []string{nobody, "connection refused"}},
		{"watch shop/web --manifests testdata/missing", 1, []string{"testdata/missing", "no such file"}},
		{"watch shop/web", 1, []string{"--kubeconfig", "--manifests"}},
		{"completion", 2, []string{"completion for what?", "epdns completion --help"}},
		{"completion tcsh", 2, []string{`"tcsh"`, "epdns completion --help"}},
	})
}

// mistake is a command that ends with one line.
type mistake struct {
	args string
	code int
	says []string
}

func mistakes(t *testing.T, all []mistake) {
	t.Helper()
	for _, m := range all {
		t.Run(m.args, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := once(t, environment(), strings.Fields(m.args)...)
			if code != m.code || stdout != "" {
				t.Errorf("exit status %d, expected %d; on standard output %q", code, m.code, stdout)
			}
			if err := oneLine(stderr, m.says...); err != nil {
				t.Error(err)
			}
		})
	}
}

// closedPort is an address on which nobody listens: the port is bound, so that
// nobody can begin to.
func closedPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

func TestCompletion(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}, "powershell": nil} {
		stdout, stderr, code := once(t, environment(), "completion", shell)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "epdns") {
			t.Errorf("%s: exit status %d, %d octets, %s", shell, code, len(stdout), stderr)
		}
		if check == nil {
			continue
		}
		path, err := exec.LookPath(check[0])
		if err != nil && shell != "bash" {
			continue // not everybody has all shells
		}
		cmd := exec.CommandContext(t.Context(), path, check[1:]...)
		cmd.Stdin = strings.NewReader(stdout)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", shell, err, out)
		}
	}
	// What the scripts call. The last line is what else to do with the values: 0 for
	// files, 4 for none, 8 for files with these ends.
	for args, want := range map[string]string{
		"lookup web.shop.registry.local A": "A AAAA SRV PTR CNAME TXT SOA NS ANY :4",
		"lookup --output ":                 "text table wide json yaml :4",
		"watch -o ":                        "table wide json yaml :4",
		"version --output=":                "text json yaml :4",
		"lookup --color ":                  "auto always never :4",
		"man wa":                           "watch :4",
		"watch --manifests testdata/cluster shop/j":                 "shop/jobs :4",
		"watch --manifests testdata/cluster -n shop j":              "jobs :4",
		"lookup --manifests testdata/cluster jobs.shop":             "jobs.shop.registry.local :4",
		"explain --zone k8s.test --manifests testdata/cluster jobs": "jobs.shop.k8s.test :4",
		"watch --manifests testdata/cluster --namespace sh":         "shop :4",
		"watch --manifests testdata/missing sh":                     ":4",
		"serve --log-level ":                                        "debug info warn error :4",
		"serve --log-format ":                                       "text json :4",
		"serve --config ":                                           "yaml yml :8",
		"lookup --config ":                                          "yaml yml :8",
		"watch --manifests ":                                        "yaml yml json :8",
		"serve --kubeconfig ":                                       ":0",
		"serve --listen ":                                           ":4",
		"watch ":                                                    ":4",
	} {
		stdout, _, code := once(t, environment(), append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if got := strings.Join(strings.Fields(stdout), " "); code != 0 || got != want {
			t.Errorf("%q: exit status %d, %q, expected %q", args, code, got, want)
		}
	}
}

// A pod of a Deployment is deleted: its address goes, and that of the new pod comes.
func TestKubeWatch(t *testing.T) {
	k := newKube(t)
	ns := k.namespace("epdns-watch")
	p := watching(t, "--kubeconfig", k.config, ns+"/web")
	p.says(t, "there is no Service "+ns+"/web")
	k.create(ns, deployment("web"))

	// ready is who is, as the lines add up.
	ready := func() map[string]watched {
		out := map[string]watched{}
		for _, c := range p.changes(t) {
			if id := c.Pod + " " + c.Address; c.Type != "REMOVED" && c.Ready {
				out[id] = c
			} else {
				delete(out, id)
			}
		}
		return out
	}
	follow := func() (pods map[string]string) { // name → address
		eventually(t, func() error {
			pods = map[string]string{}
			var want []string
			for name, pod := range k.ready(ns, "app=web") {
				pods[name] = pod.Status.PodIP
				want = append(want, name+" "+pod.Status.PodIP)
			}
			if len(want) != 3 {
				return fmt.Errorf("%d pods are ready, not 3", len(want))
			}
			var got []string
			for _, c := range ready() {
				got = append(got, c.Pod+" "+c.Address)
			}
			return equal("watch", got, want)
		})
		return pods
	}
	before := follow()
	name := slices.Sorted(mapKeys(before))[0]
	n := len(p.changes(t))
	k.delete("Pod", ns, name)
	eventually(t, func() error {
		if _, still := k.ready(ns, "app=web")[name]; still {
			return errors.New("the pod is still ready")
		}
		return nil
	})
	after := follow()

	var fresh []string
	for pod, address := range after {
		if _, old := before[pod]; !old {
			fresh = append(fresh, pod+" "+address)
		}
	}
	eventually(t, func() error {
		var removed, added []string
		for _, c := range p.changes(t)[n:] {
			switch c.Type {
			case "REMOVED":
				removed = append(removed, c.Pod+" "+c.Address)
			case "ADDED":
				added = append(added, c.Pod+" "+c.Address)
			}
		}
		return errors.Join(equal("removed", removed, []string{name + " " + before[name]}), equal("added", added, slices.Clone(fresh)))
	})

	// The same through a server, from the beginning on.
	server := serve(t, "--kubeconfig", k.config)
	remote := watching(t, "--server", server.http, ns+"/web")
	eventually(t, func() error {
		var got, want []string
		for _, c := range remote.changes(t) {
			got = append(got, c.String())
		}
		for _, address := range after {
			want = append(want, "ADDED "+ns+"/web "+address)
		}
		return equal("watch through a server", got, want)
	})
}
