package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"epdns/registry"
)

var discard = slog.New(slog.DiscardHandler)

// slice and service are documents.

func slice(name, service string, addresses ...string) string {
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  namespace: shop
  labels: {kubernetes.io/service-name: %s}
addressType: IPv4
endpoints:
- addresses: [%s]
ports:
- {name: http, port: 8080}
`, name, service, strings.Join(addresses, "]\n- addresses: ["))
}

func service(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {ports: [{port: 80}]}\n", name)
}

func docs(text ...string) string { return strings.Join(text, "---\n") }

// describe says what a store holds, one "ns/name address..." for each Service.
func describe(store *registry.Store, names ...string) string {
	var out []string
	for _, n := range names {
		ns, name, ok := strings.Cut(n, "/")
		if !ok {
			ns, name = "shop", n
		}
		svc := store.Snapshot(ns, name)
		if svc == nil {
			continue
		}
		for _, s := range svc.Slices {
			for _, e := range s.Endpoints.All() {
				n += " " + e.Addr.String()
			}
		}
		out = append(out, n)
	}
	return strings.Join(out, ", ")
}

func TestGood(t *testing.T) {
	for _, tc := range []struct {
		name    string
		files   map[string]string
		ask     []string
		want    string
		ignored int
		byObj   bool   // Services exist with their objects
		zone    string // of all endpoints of shop/web
	}{
		{name: "nothing"},
		{name: "empty file", files: map[string]string{"a.yaml": ""}},
		{name: "comments only", files: map[string]string{"a.yaml": "# nothing\n---\n# here\n--- # nor here\n...\n"}},
		{name: "null", files: map[string]string{"a.yaml": "null\n---\n~\n"}},
		{name: "slices alone", files: map[string]string{"a.yaml": slice("web-1", "web", "10.0.0.1")},
			ask: []string{"web"}, want: "web 10.0.0.1"},
		{name: "a Service anywhere makes Services count",
			files: map[string]string{"a.yaml": slice("web-1", "web", "10.0.0.1"), "b.yaml": service("api")},
			ask:   []string{"web", "api"}, want: "api", byObj: true},
		{name: "documents", files: map[string]string{"a.yaml": docs(service("web"), slice("web-1", "web", "10.0.0.1"), slice("web-2", "web", "10.0.0.2", "10.0.0.3"))},
			ask: []string{"web"}, want: "web 10.0.0.1 10.0.0.2 10.0.0.3", byObj: true},
		{name: "windows line ends and a byte order mark", files: map[string]string{
			"a.yaml": "\ufeff" + strings.ReplaceAll(docs(service("web"), slice("web-1", "web", "10.0.0.1")), "\n", "\r\n")},
			ask: []string{"web"}, want: "web 10.0.0.1", byObj: true},
		{name: "directives and ends", files: map[string]string{
			"a.yaml": "%YAML 1.1\n---\n" + slice("web-1", "web", "10.0.0.1") + "...\n# more\n%YAML 1.1\n--- # second\n" + slice("web-2", "web", "10.0.0.2")},
			ask: []string{"web"}, want: "web 10.0.0.1 10.0.0.2"},
		{name: "flow style", files: map[string]string{"a.yaml": "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}"},
			ask: []string{"web"}, want: "web", byObj: true},
		{name: "flow style behind the marker", files: map[string]string{"a.yml": "--- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}\n"},
			ask: []string{"web"}, want: "web", byObj: true},
		{name: "json, one after the other", files: map[string]string{
			"a.json": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}} {"apiVersion":"v1","kind":"Service","metadata":{"name":"api","namespace":"shop"}}`},
			ask: []string{"default/web", "api"}, want: "default/web, api", byObj: true},
		{name: "List", files: map[string]string{"a.yaml": `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}
- {apiVersion: v1, kind: Secret, metadata: {name: web, namespace: shop}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: w, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv6, endpoints: [{addresses: ["fd00::1"]}]}
`}, ask: []string{"web"}, want: "web fd00::1", ignored: 1, byObj: true},
		{name: "a Node, whose zone its endpoints have", files: map[string]string{"a.yaml": docs(
			"apiVersion: v1\nkind: NodeList\nitems: [{metadata: {name: n1, labels: {topology.kubernetes.io/zone: zone-a}}}]\n",
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: w, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1], nodeName: n1}]\n")},
			ask: []string{"web"}, want: "web 10.0.0.1", zone: "zone-a"},
		{name: "typed lists, items without a type", files: map[string]string{"a.yaml": `
apiVersion: v1
kind: ServiceList
items: [{metadata: {name: web, namespace: shop}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSliceList
items: [{metadata: {name: w, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}]}]
`}, ask: []string{"web"}, want: "web 10.0.0.1", byObj: true},
		{name: "other kinds, unknown fields", files: map[string]string{"a.yaml": docs(
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nitems: 7\n",
			"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web}\n",
			"apiVersion: v1\nkind: Endpoints\nmetadata: {name: web}\n",
			"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, colour: red}\nspec: {future: [1, 2]}\n")},
			ask: []string{"web", "default/web"}, want: "web", ignored: 3, byObj: true},
		{name: "sub-directories, hidden files, other names", files: map[string]string{
			"a/b/c.yml":       slice("web-1", "web", "10.0.0.1"),
			".hidden.yaml":    "not: [valid",
			"..data/x.yaml":   "not: [valid",
			"a/.git/x.yaml":   "not: [valid",
			"README.md":       "not: [valid",
			"backup.yaml~":    "not: [valid",
			"values.yaml.tpl": "not: [valid",
		}, ask: []string{"web"}, want: "web 10.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range tc.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			s := New(fsys, "manifests", discard)
			store := registry.NewStore(discard)
			if err := s.Load(); err != nil {
				t.Fatal(err)
			}
			s.feed(open(store))
			if have := describe(store, tc.ask...); have != tc.want {
				t.Errorf("have %q, want %q", have, tc.want)
			}
			for _, m := range store.Snapshot("shop", "web").Members() {
				if m.Zone != tc.zone {
					t.Errorf("zone %q of %v, want %q", m.Zone, m.Addr, tc.zone)
				}
			}
			if st := s.Status(); st.Ignored != tc.ignored || st.Broken != 0 {
				t.Errorf("status %+v", st)
			}
			if have := store.Stats().ServicesAreListed; have != tc.byObj {
				t.Errorf("Services are listed: %v", have)
			}
		})
	}
}

// open opens the feeds of a store, as Run does.
func open(store *registry.Store) feeds {
	return feeds{store.Slices(""), store.Services(""), store.Nodes()}
}

func TestBad(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string // the whole error, "*" for a part that is the library's
	}{
		{"syntax", map[string]string{"web.yaml": docs(service("a"), service("b"), "a: 1\nb: [\nc: }\n")},
			"manifests/web.yaml: document 3 (line 11): yaml: line 1*: *"},
		{"json syntax", map[string]string{"web.json": "\n\n{\"apiVersion\": \"v1\",,}"},
			"manifests/web.json: document 1 (line 3): invalid character ',' *"},
		{"json cut off", map[string]string{"web.json": `{"apiVersion": "v1"`},
			"manifests/web.json: document 1 (line 1): unexpected EOF"},
		{"a scalar", map[string]string{"web.yaml": "hello"},
			"manifests/web.yaml: document 1 (line 1): not an object: *"},
		{"a sequence", map[string]string{"web.yaml": "# list\n- a\n- b\n"},
			"manifests/web.yaml: document 1 (line 2): not an object: *"},
		{"no kind", map[string]string{"web.yaml": "apiVersion: v1\n"},
			"manifests/web.yaml: document 1 (line 1): not a Kubernetes object: apiVersion and kind are needed"},
		{"no apiVersion", map[string]string{"web.yaml": "kind: Service\n"},
			"manifests/web.yaml: document 1 (line 1): not a Kubernetes object: apiVersion and kind are needed"},
		{"old slices", map[string]string{"sub/web.yaml": "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}\n"},
			"manifests/sub/web.yaml: document 1 (line 1): EndpointSlice: apiVersion discovery.k8s.io/v1beta1 is not read, write discovery.k8s.io/v1"},
		{"list of old slices", map[string]string{"web.yaml": "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSliceList\nitems: []\n"},
			"manifests/web.yaml: document 1 (line 1): EndpointSliceList: apiVersion discovery.k8s.io/v1beta1 is not read, write discovery.k8s.io/v1"},
		{"no name", map[string]string{"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {generateName: web-}\n"},
			"manifests/web.yaml: document 1 (line 1): Service without metadata.name"},
		{"wrong type of field", map[string]string{"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: many}]}\n"},
			"manifests/web.yaml: document 1 (line 1), line 4: Service \"web\": spec.ports[0].port: expected a whole number, found \"many\""},
		{"no name in a list", map[string]string{"web.yaml": "apiVersion: v1\nkind: ServiceList\nitems: [{metadata: {name: a}}, {}]\n"},
			"manifests/web.yaml: document 1 (line 1), item 2: Service without metadata.name"},
		{"items are none", map[string]string{"web.yaml": "apiVersion: v1\nkind: List\nitems: {a: b}\n"},
			"manifests/web.yaml: document 1 (line 1), line 3: items: expected a list, found keys with values"},
		{"lists in lists", map[string]string{"web.yaml": strings.Repeat("{apiVersion: v1, kind: List, items: [", 9) + strings.Repeat("]}", 9)},
			"manifests/web.yaml: document 1 (line 1), item 1: lists nested too deep"},
		{"twice in a file", map[string]string{"web.yaml": docs(service("web"), slice("web", "web", "10.0.0.1"), service("web"))},
			"manifests/web.yaml: document 3 (line 18): Service \"shop/web\" is in document 1 (line 1) already"},
		{"in two files", map[string]string{"a.yaml": docs(service("api"), service("web")), "b.yaml": docs("# here\n" + service("web"))},
			"manifests/b.yaml: document 1 (line 2): Service \"shop/web\" is in manifests/a.yaml, document 2 (line 6), too"},
		{"several", map[string]string{"a.yaml": docs("x\n", "y"), "b.yaml": "z"},
			"manifests/a.yaml: document 1 (line 1): not an object: * (and 2 more)"},
		{"alias bomb", map[string]string{"a.yaml": bomb()}, "manifests/a.yaml: document 1 (line 1): *"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range tc.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			s := New(fsys, "manifests", discard)
			err := s.Load()
			if err == nil {
				t.Fatal("no error")
			}
			if !like(err.Error(), tc.want) {
				t.Errorf("have %q\nwant %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Error("several lines")
			}
			var faults Faults
			if !errors.As(err, &faults) || s.Status().Broken == 0 {
				t.Error("no Faults")
			}
			if runErr := s.Run(t.Context(), registry.NewStore(discard)); runErr == nil || runErr.Error() != err.Error() {
				t.Errorf("Run: %v", runErr)
			}
		})
	}
}

// TestWrongFields: each field of the wrong kind is told, with its line and without
// words of Go.
func TestWrongFields(t *testing.T) {
	for _, tc := range []struct {
		name, file, text string
		want             []string // behind the file's name
	}{
		{"annotations", "a.yaml", "# first\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: q\n  annotations:\n" +
			"    registry.local/topology: off\n    registry.local/limit: 8\n    registry.local/ttl: 2s\n    registry.local/weights: {web-0: 10}\n", []string{
			`document 1 (line 3), line 8: Service "q": annotation registry.local/topology: off is a boolean; write it in quotes`,
			`document 1 (line 3), line 9: Service "q": annotation registry.local/limit: 8 is a number; write it in quotes`,
			`document 1 (line 3), line 11: Service "q": annotation registry.local/weights: expected text, found keys with values`,
		}},
		{"of several documents", "a.yaml", docs("apiVersion: v1\nkind: Service\nmetadata: {name: 5}\n", service("a"), "apiVersion: v1\nkind: Service\nmetadata:\n  name: b\n  labels:\n    tier: yes\nspec:\n  ports: []\n  publishNotReadyAddresses: \"no\"\n"), []string{
			`document 1 (line 1), line 3: Service: metadata.name: 5 is a number; write it in quotes`,
			`document 3 (line 10), line 15: Service "b": metadata.labels.tier: yes is a boolean; write it in quotes`,
			`document 3 (line 10), line 18: Service "b": spec.publishNotReadyAddresses: expected true or false, found "no"`,
		}},
		{"of a slice", "a.yaml", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: w, creationTimestamp: soon}\naddressType: IPv4\nendpoints:\n- addresses: 10.0.0.1\n  conditions: {ready: on, serving: 1}\nports:\n- port: 8e4\n- port: 99999999999\n", []string{
			`document 1 (line 1), line 3: EndpointSlice "w": metadata.creationTimestamp: expected a time such as 2030-01-31T09:30:00Z, found "soon"`,
			`document 1 (line 1), line 6: EndpointSlice "w": endpoints[0].addresses: expected a list, found "10.0.0.1"`,
			`document 1 (line 1), line 7: EndpointSlice "w": endpoints[0].conditions.serving: expected true or false, found 1`,
			`document 1 (line 1), line 10: EndpointSlice "w": ports[1].port: expected a whole number that is not so large, found 99999999999`,
		}},
		{"behind an alias", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- &a\n  apiVersion: v1\n  kind: Service\n  metadata:\n    name: a\n    annotations: {x: 1}\n- {apiVersion: v1, kind: Node, metadata: {name: n1, labels: [a]}}\n- *a\n", []string{
			`document 1 (line 1), item 1, line 9: Service "a": annotation x: 1 is a number; write it in quotes`,
			`document 1 (line 1), item 2, line 10: Node "n1": metadata.labels: expected keys with values, found a list`,
			`document 1 (line 1), item 3, line 9: Service "a": annotation x: 1 is a number; write it in quotes`,
			`document 1 (line 1), item 3: Service "default/a" is in document 1 (line 1), item 1 already`,
		}},
		{"a merged key, whose line is not known", "a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a, <<: {namespace: 7}}\n", []string{
			`document 1 (line 1): Service "a": metadata.namespace: 7 is a number; write it in quotes`,
		}},
		{"JSON", "a.json", "{}\n\n{\n  \"apiVersion\": \"v1\", \"kind\": \"Service\",\n  \"metadata\": {\"name\": \"a\",\n    \"annotations\": {\"x\": true}}}", []string{
			`document 1 (line 1): not a Kubernetes object: apiVersion and kind are needed`,
			`document 2 (line 3), line 6: Service "a": annotation x: true is a boolean; write it in quotes`,
		}},
		{"type", "a.yaml", "apiVersion: 1\nkind: Service\n", []string{`document 1 (line 1), line 1: apiVersion: 1 is a number; write it in quotes`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := New(fstest.MapFS{tc.file: &fstest.MapFile{Data: []byte(tc.text)}}, "m", discard)
			var faults Faults
			if err := s.Load(); !errors.As(err, &faults) {
				t.Fatalf("error %v", err)
			}
			var have []string
			for _, f := range faults {
				have = append(have, strings.TrimPrefix(f.Error(), "m/"+tc.file+": "))
			}
			if !slices.Equal(have, tc.want) {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// TestPartial: what is right of a file with faults is used, where that is wanted.
func TestPartial(t *testing.T) {
	s := New(fstest.MapFS{"a.yaml": &fstest.MapFile{Data: []byte(docs(service("web"), "hello\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop, annotations: {a: off, b: kept}}\n"))}}, "m", discard)
	s.Partial = true
	err := s.Load()
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Fatalf("error %v", err)
	}
	if have, want := faults[0].Place(), "m/a.yaml:6: document 2 (line 6): not an object: a mapping with apiVersion and kind is expected"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if have, want := faults[1].Place(), `m/a.yaml:10: Service "api": annotation a: off is a boolean; write it in quotes`; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	store := registry.NewStore(discard)
	s.feed(open(store))
	if have := describe(store, "web", "api"); have != "web, api" {
		t.Errorf("have %q", have)
	}
	if have := s.files["a.yaml"].good.services[1].Annotations; len(have) != 1 || have["b"] != "kept" {
		t.Errorf("annotations %q", have)
	}
}

// bomb is a document that grows without bounds when its aliases are followed.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		ref := fmt.Sprintf("*a%d", i)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.Join(slices.Repeat([]string{ref}, 9), ", "))
	}
	return b.String()
}

// like compares with a text in which each "*" stands for anything.
func like(have, want string) bool {
	parts := strings.Split(want, "*")
	for i, p := range parts {
		at := strings.Index(have, p)
		if at < 0 || i == 0 && at != 0 {
			return false
		}
		have = have[at+len(p):]
	}
	return have == "" || strings.HasSuffix(want, "*")
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good.yaml", service("web"))
	write(t, dir, "noext", service("api"))
	for _, tc := range []struct{ name, open, ask, err string }{
		{"directory", dir, "web", ""},
		{"file", filepath.Join(dir, "good.yaml"), "web", ""},
		{"file of any name", filepath.Join(dir, "noext"), "api", ""},
		{"missing", filepath.Join(dir, "nope"), "", "manifests " + filepath.Join(dir, "nope") + ": no such file or directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Open(tc.open, discard)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Load(); err != nil {
				t.Fatal(err)
			}
			store := registry.NewStore(discard)
			s.feed(open(store))
			if have := describe(store, tc.ask); have != tc.ask {
				t.Errorf("have %q", have)
			}
		})
	}

	t.Run("error names the file as given", func(t *testing.T) {
		t.Chdir(dir)
		write(t, dir, "bad.yaml", "x")
		s, err := Open("bad.yaml", discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(); err == nil || !strings.HasPrefix(err.Error(), "bad.yaml: document 1") {
			t.Errorf("error %v", err)
		}
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testFS is a file system in memory that counts, and refuses what it is told to.
type testFS struct {
	mu           sync.Mutex
	files        fstest.MapFS
	fail         string // a directory that can't be listed, or a file that can't be read
	reads, looks int
}

func (f *testFS) edit(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *testFS) put(name, text string) {
	f.edit(func() { f.files[name] = &fstest.MapFile{Data: []byte(text), ModTime: time.Now()} })
}

func (f *testFS) remove(name string) { f.edit(func() { delete(f.files, name) }) }

func (f *testFS) refuse(name string) { f.edit(func() { f.fail = name }) }

func (f *testFS) Open(name string) (fs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files.Open(name)
}

func (f *testFS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files.Stat(name)
}

func (f *testFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if name == f.fail {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.files.ReadDir(name)
}

func (f *testFS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if name == f.fail {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.files.ReadFile(name)
}

// world is a source at work on a testFS, in fake time.
type world struct {
	t *testing.T
	*testFS
	src   *Source
	store *registry.Store
	log   lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(with string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), with)
}

// start runs a source on files that have just been written.
func start(t *testing.T, files map[string]string) *world {
	w := &world{t: t, testFS: &testFS{files: fstest.MapFS{}}}
	for name, text := range files {
		w.put(name, text)
	}
	w.run(w.testFS)
	return w
}

func (w *world) run(fsys fs.FS) {
	w.src = New(fsys, "m", slog.New(slog.NewTextHandler(&w.log, nil)))
	w.store = registry.NewStore(discard)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.src.Run(ctx, w.store) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("log:\n%s", w.log.buf.String())
		}
	})
	synctest.Wait()
}

// polls lets the source look n times.
func (w *world) polls(n int) {
	time.Sleep(time.Duration(n) * w.src.Interval)
	synctest.Wait()
}

func (w *world) want(text string, names ...string) {
	w.t.Helper()
	if have := describe(w.store, names...); have != text {
		w.t.Errorf("have %q, want %q", have, text)
	}
}

func (w *world) wantLog(n int, with string) {
	w.t.Helper()
	if have := w.log.count(with); have != n {
		w.t.Errorf("%d times %q in the log, want %d", have, with, n)
	}
}

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, map[string]string{"a.yaml": slice("web-1", "web", "10.0.0.1")})
		select {
		case <-w.store.Synced():
		default:
			t.Error("not synced")
		}
		w.want("web 10.0.0.1", "web")

		// Same size, same time: too young to be trusted.
		w.edit(func() { w.files["a.yaml"].Data = []byte(slice("web-1", "web", "10.0.0.2")) })
		w.polls(1)
		w.want("web 10.0.0.2", "web")

		w.put("b/b.yaml", slice("web-2", "web", "10.0.0.3"))
		w.polls(1)
		w.want("web 10.0.0.2 10.0.0.3", "web")

		w.put("c.yaml", service("api"))
		w.polls(1)
		w.want("api", "web", "api") // now Services exist with their objects

		w.remove("c.yaml")
		w.polls(1)
		w.want("api", "web", "api") // it might come back
		w.polls(1)
		w.want("web 10.0.0.2 10.0.0.3", "web", "api")

		w.put("a.yaml", "# nothing left\n")
		w.polls(1)
		w.want("web 10.0.0.3", "web")
		w.wantLog(6, "manifests read")
		w.wantLog(6, "msg=")

		w.polls(20) // nothing happens
		w.wantLog(6, "msg=")
		if st := w.src.Status(); st.Reads != 6 || st.Files != 2 || st.Slices != 1 || st.Services != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// An old time, and one that lies ahead, are settled: the files are not read again.
func TestSettledFilesAreNotRead(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, testFS: &testFS{files: fstest.MapFS{
				"a.yaml": {Data: []byte(service("web")), ModTime: time.Now().Add(-age)},
			}}}
			w.run(w.testFS)
			w.polls(10)
			w.edit(func() {
				if w.reads != 1 || w.looks != 11 {
					t.Errorf("read %d times, looked at %d times", w.reads, w.looks)
				}
			})
		})
	}
}

func TestBrokenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, map[string]string{
			"a.yaml": slice("web-1", "web", "10.0.0.1"),
			"b.yaml": slice("web-2", "web", "10.0.0.2"),
		})
		w.put("a.yaml", docs(slice("web-1", "web", "10.0.0.7"), "oops"))
		w.put("b.yaml", slice("web-2", "web", "10.0.0.8"))
		w.polls(10)
		w.want("web 10.0.0.1 10.0.0.8", "web")
		w.wantLog(1, "level=WARN")
		w.wantLog(1, "m/a.yaml: document 2 (line 13): not an object")
		if st := w.src.Status(); st.Broken != 1 || len(st.Faults) != 1 {
			t.Errorf("status %+v", st)
		}

		// The same fault in another edit is no news, another fault is.
		w.put("a.yaml", docs(slice("web-1", "web", "10.0.0.9"), "oops"))
		w.polls(2)
		w.wantLog(1, "level=WARN")
		w.put("a.yaml", docs("oops\n", slice("web-1", "web", "10.0.0.9")))
		w.polls(2)
		w.wantLog(2, "a manifest has a fault; what the file said before stays")
		w.want("web 10.0.0.1 10.0.0.8", "web")

		w.put("a.yaml", slice("web-1", "web", "10.0.0.9"))
		w.polls(1)
		w.want("web 10.0.0.9 10.0.0.8", "web")
		w.wantLog(1, "a manifest is right again")

		// A new file that is broken says nothing; it goes as it came.
		w.put("c.yaml", "oops")
		w.polls(1)
		w.remove("c.yaml")
		w.polls(2)
		w.want("web 10.0.0.9 10.0.0.8", "web")
		w.wantLog(3, "level=WARN")
		w.wantLog(1, "a manifest has a fault; nothing of the file is used")
		w.wantLog(1, "a manifest with a fault is gone\" file=m/c.yaml")
		if st := w.src.Status(); st.Broken != 0 || st.Files != 2 {
			t.Errorf("status %+v", st)
		}
	})
}

// An object that moves from one file to another stands in both for a while.
func TestMovedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := slice("web-1", "web", "10.0.0.1"), slice("web-2", "web", "10.0.0.2")
		w := start(t, map[string]string{"a.yaml": one, "b.yaml": two})
		w.put("a.yaml", docs(one, two))
		w.polls(2)
		w.want("web 10.0.0.1 10.0.0.2", "web")
		w.wantLog(1, "m/a.yaml: document 2 (line 13): EndpointSlice \\\"shop/web-2\\\" is in m/b.yaml, document 1 (line 1), too")

		w.put("b.yaml", "# moved\n")
		w.polls(1)
		w.want("web 10.0.0.1 10.0.0.2", "web")
		w.wantLog(1, "level=WARN")
		w.wantLog(1, "a manifest is right again")
		if st := w.src.Status(); st.Broken != 0 || st.Slices != 2 {
			t.Errorf("status %+v", st)
		}
	})
}

// Two files trade their objects and one of them is broken on the way.
func TestTradedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := slice("web-1", "web", "10.0.0.1"), slice("web-2", "web", "10.0.0.2")
		w := start(t, map[string]string{"a.yaml": one, "b.yaml": two})
		w.put("a.yaml", two)
		w.put("b.yaml", docs(one, "oops"))
		w.polls(2)
		w.want("web 10.0.0.1 10.0.0.2", "web")
		w.wantLog(2, "level=WARN")
		w.put("b.yaml", one)
		w.polls(1)
		w.want("web 10.0.0.1 10.0.0.2", "web")
		w.wantLog(2, "a manifest is right again")
	})
}

// Editors truncate and write, or rename away and write anew.
func TestEditors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, map[string]string{"a.yaml": slice("web-1", "web", "10.0.0.1")})
		w.polls(10)
		for _, gone := range []func(){
			func() { w.put("a.yaml", "") },
			func() { w.remove("a.yaml") },
		} {
			gone()
			w.polls(1)
			w.want("web 10.0.0.1", "web")
			w.put("a.yaml", slice("web-1", "web", "10.0.0.1"))
			w.polls(1)
			w.want("web 10.0.0.1", "web")
		}
		w.wantLog(1, "msg=") // the first read

		w.put("a.yaml", "\n")
		w.polls(2)
		w.want("", "web")
	})
}

// A directory that can't be read changes nothing.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, map[string]string{
			"a.yaml":     slice("web-1", "web", "10.0.0.1"),
			"sub/b.yaml": slice("web-2", "web", "10.0.0.2"),
		})
		for i, where := range []string{".", "sub"} {
			w.refuse(where)
			w.polls(20)
			w.want("web 10.0.0.1 10.0.0.2", "web")
			w.wantLog(i+1, "can't be read; what is known stays")
			if !w.src.Status().Unreadable {
				t.Error("status says it is readable")
			}
			w.refuse("")
			w.polls(1)
			w.wantLog(i+1, "can be read again")
		}

		// A file that can't be read is a fault of that file.
		w.refuse("a.yaml")
		w.put("a.yaml", slice("web-1", "web", "10.0.0.4"))
		w.put("sub/b.yaml", slice("web-2", "web", "10.0.0.3"))
		w.polls(20)
		w.want("web 10.0.0.1 10.0.0.3", "web")
		w.wantLog(1, "m/a.yaml: can't be read: permission denied")
		w.refuse("")
		w.polls(1)
		w.want("web 10.0.0.4 10.0.0.3", "web")
		w.wantLog(1, "a manifest is right again")
	})
}

// A directory in which no file is left changes nothing: it may be a volume that is not mounted.
func TestEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := slice("web-1", "web", "10.0.0.1"), slice("web-2", "web", "10.0.0.2")
		w := start(t, map[string]string{"a.yaml": a, "sub/b.yaml": b})
		for i := range 2 {
			w.edit(func() { w.files = fstest.MapFS{"README.md": {}} })
			w.polls(20)
			w.want("web 10.0.0.1 10.0.0.2", "web")
			w.wantLog(i+1, "level=WARN")
			w.wantLog(i+1, "what is known stays\" at=m err=\"no manifest is there any more\"")
			if st := w.src.Status(); !st.Unreadable || st.Slices != 2 {
				t.Errorf("status %+v", st)
			}
			w.put("a.yaml", a)
			w.put("sub/b.yaml", b)
			w.polls(3)
			w.want("web 10.0.0.1 10.0.0.2", "web")
			w.wantLog(i+1, "can be read again")
			w.wantLog(1, "manifests read") // the first read
		}

		w.remove("a.yaml") // one of them is gone, and then the last one
		w.polls(2)
		w.want("web 10.0.0.2", "web")
		w.remove("sub/b.yaml")
		w.polls(20)
		w.want("web 10.0.0.2", "web")
		w.put("c.yaml", "# nothing\n") // it is meant so
		w.polls(2)
		w.want("", "web")
		w.wantLog(3, "level=WARN")
		w.wantLog(3, "can be read again")
	})
}

// A file that was never right leaves nothing behind.
func TestOnlyFileIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.put("a.yaml", "oops")
		w.polls(1)
		w.remove("a.yaml")
		w.polls(2)
		w.wantLog(1, "level=WARN")
		w.wantLog(1, "a manifest with a fault is gone")
		if st := w.src.Status(); st.Unreadable || st.Files != 0 || st.Broken != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// A mounted ConfigMap changes by the swap of one symbolic link.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	project := func(version, text string) {
		if err := os.MkdirAll(filepath.Join(dir, version, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, dir, version+"/web.yaml", text)
		write(t, dir, version+"/sub/api.yaml", service("api"))
		if err := os.Symlink(version, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	project("..1", docs(service("web"), slice("web-1", "web", "10.0.0.1")))
	for _, link := range [][2]string{{"..data/web.yaml", "web.yaml"}, {"..data/sub", "sub"}, {".", "loop"}, {"nowhere", "dangling.yaml"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir, discard)
	if err != nil {
		t.Fatal(err)
	}
	store := registry.NewStore(discard)
	to := open(store)
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	s.feed(to)
	if have := describe(store, "web", "api"); have != "web 10.0.0.1, api" {
		t.Errorf("have %q", have)
	}
	project("..2", docs(service("web"), slice("web-1", "web", "10.0.0.2")))
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	if !s.again(time.Now()) {
		t.Fatal("the swap was not seen")
	}
	s.feed(to)
	if have := describe(store, "web", "api"); have != "web 10.0.0.2, api" {
		t.Errorf("have %q", have)
	}
}

func TestSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.run(Sample())
		w.want("data/db 10.244.1.10 10.244.2.10 10.244.3.10, "+
			"web 10.244.1.21 10.244.1.22 10.244.2.21 10.244.2.22 10.244.3.21 10.244.3.22, "+
			"api 10.244.1.31 10.244.3.31 fd00:10:244:1::1f fd00:10:244:3::1f, "+
			"jobs 10.244.1.41 10.244.2.41 10.244.3.41, billing, pg",
			"data/db", "web", "api", "jobs", "billing", "pg")
		if st := w.src.Status(); st.Services != 6 || st.Slices != 5 || st.Ignored != 0 {
			t.Errorf("status %+v", st)
		}
		if n := w.store.Stats().Skipped; n != 0 {
			t.Errorf("%d objects have faults", n)
		}
		if o := w.store.Snapshot("shop", "pg").Object; !o.IsExternalName || o.ExternalName != "db.data.registry.local" {
			t.Errorf("pg is %+v", o)
		}
		for i, e := range w.store.Snapshot("data", "db").Slices[0].Endpoints.All() {
			if want := fmt.Sprintf("db-%d", i); e.Hostname != want || e.Pod != want || e.Zone == "" || e.Node == "" {
				t.Errorf("endpoint %+v", e)
			}
		}
	})
}

// What has no modification times can't change and is not looked at again.
func TestEmbeddedIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, testFS: &testFS{files: fstest.MapFS{"a.yaml": {Data: []byte(service("web"))}}}}
		w.run(w.testFS)
		w.polls(100)
		w.edit(func() {
			if w.looks != 1 {
				t.Errorf("looked at %d times", w.looks)
			}
		})
	})
}
