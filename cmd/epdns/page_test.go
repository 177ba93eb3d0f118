package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/registry/manifest"
	"epdns/zones"
)

// fed is a source of which a test says what it brings.
type fed struct {
	slices   registry.SliceFeed
	services registry.ServiceFeed
	begin    func(*fed, registry.NodeFeed)
}

func (f *fed) String() string { return "test" }

func (f *fed) Run(ctx context.Context, store *registry.Store) error {
	f.slices, f.services = store.Slices(""), store.Services("")
	nodes := store.Nodes()
	f.begin(f, nodes)
	<-ctx.Done()
	return nil
}

func serviceObject(namespace, name string, annotations map[string]string) *corev1.Service {
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Annotations: annotations}}
	o.Spec.ClusterIP = "10.96.0.9"
	o.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	return o
}

// sliceObject has an endpoint for each address. One that ends in "!" is not ready; they are
// on nodes n1 and n2 in turns.
func sliceObject(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", UID: types.UID(service), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	name, port := "http", int32(8080)
	o.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
	for i, a := range addresses {
		ready := !strings.HasSuffix(a, "!")
		node, zone := fmt.Sprintf("n%d", i%2+1), fmt.Sprintf("zone-%c", 'a'+i%2)
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{strings.TrimSuffix(a, "!")},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			NodeName:   &node, Zone: &zone,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", service, i)},
		})
	}
	return o
}

func nodeObject(name, zone, address string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "eu"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// shop is a small cluster, with Services of which annotations are wrong or endpoints not
// ready, and one that is an alias.
func shop(f *fed, nodes registry.NodeFeed) {
	nodes.Replace([]*corev1.Node{nodeObject("n1", "zone-a", "192.0.2.1"), nodeObject("n2", "zone-b", "192.0.2.2")})
	alias := serviceObject("shop", "pg", nil)
	alias.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
	f.services.Replace([]*corev1.Service{
		serviceObject("shop", "web", map[string]string{"registry.local/order": "fixed", "registry.local/weights": "node:n2=7", "registry.local/ttl": "7s"}),
		serviceObject("shop", "bad", map[string]string{"registry.local/ttl": "<script>alert(1)</script>", "registry.local/\"'><i>mark": "x"}),
		serviceObject("shop", "down", nil),
		alias,
	})
	down := sliceObject("shop", "down", "10.0.2.1!", "10.0.2.2!")
	down.Endpoints[0].TargetRef.Name = "<i>mark</i>"
	zone := "<i>mark\"'>"
	down.Endpoints[0].Zone, down.Endpoints[0].NodeName = &zone, &zone
	f.slices.Replace([]*discoveryv1.EndpointSlice{
		sliceObject("shop", "web", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4!"),
		sliceObject("shop", "bad", "10.0.3.1"),
		down,
	})
}

// pageOf serves a cluster, with all that a program has around it.
func pageOf(t testing.TB, source registry.Source) (*httpServer, *pipeline) {
	t.Helper()
	p, err := newPipeline(source, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.problems = newAnnotationProblems(quiet)
	dns, err := dnsserver.Listen(dnsserver.Config{Listen: []string{"127.0.0.1:0"}}, p.zones, quiet)
	if err != nil {
		t.Fatal(err)
	}
	h, err := listenHTTP("127.0.0.1:0", p, dns, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	wg.Go(func() { dns.Serve(ctx) })
	wg.Go(func() { h.Run(ctx) })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		wg.Wait()
	})
	if !awaitSync(t.Context(), p) {
		t.Fatal("not synced")
	}
	for !dns.Serving() {
		time.Sleep(time.Millisecond)
	}
	return h, p
}

// get fetches a page as a browser does, without a script.
func get(t testing.TB, h *httpServer, path string) (status int, header http.Header, body string) {
	t.Helper()
	return do(t, h, http.MethodGet, path)
}

func do(t testing.TB, h *httpServer, method, path string) (status int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+h.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	noRedirects := *http.DefaultClient
	noRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := noRedirects.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// words are the text of a page, without its markup.
func words(html string) string {
	html = regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(html, " ")
	return strings.Join(strings.Fields(html), " ")
}

// Each page says what there is, without a script, and what is wrong with an address.
func TestPages(t *testing.T) {
	h, _ := pageOf(t, &fed{begin: shop})
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, c := range []struct {
		path   string
		status int
		says   []string // in this order
	}{
		{"/", 200, []string{"Serving, up to date", "Services 4", "Endpoints ready 4 of 7", "Nodes 2", "registry.local. short 4", "shop/bad", "there is no such knob", "Up for"}},
		{"/?a=b", 400, []string{`parameter &#34;a&#34; is not known`}},
		{"/services", 200, []string{"4 Services", "shop/ bad", "shop/ down", "0 of 2", "shop/ pg", "alias of db.example.com", "shop/ web", "3 of 4", "zone-a 2, zone-b 1", "order: fixed"}},
		{"/services?q=web", 200, []string{"1 of 4 Services", "shop/ web"}},
		{"/services?q=SHOP/we", 200, []string{"1 of 4 Services", "shop/ web"}},
		{"/services?q=shop+d", 200, []string{"2 of 4 Services", "bad", "down"}},
		{"/services?q=%3Ci%3Emark", 200, []string{"0 of 4 Services", "No Service is like that"}},
		{"/services?show=unready", 200, []string{"2 of 4 Services", "down", "web"}},
		{"/services?show=none", 200, []string{"1 of 4 Services", "down"}},
		{"/services?show=problems", 200, []string{"1 of 4 Services", "bad"}},
		{"/services?show=held", 200, []string{"0 of 4 Services"}},
		{"/services?page=99999999999999999999", 200, []string{"4 Services"}},
		{"/services?page=0", 400, []string{"no number of a page"}},
		{"/services?page=x", 400, []string{"no number of a page"}},
		{"/services?show=x", 400, []string{"is not known"}},
		{"/services?q=a&q=b", 400, []string{"more than once"}},
		{"/services?q=" + long + long, 400, []string{"200 is the most"}},
		{"/service?name=shop/web", 200, []string{"3 of 4 endpoints ready: zone-a 2, zone-b 1", "web.shop.registry.local.", "http 80/TCP", "ttl 7s (annotation)", "web-1 3 of 4 ready, http:8080/TCP",
			"10.0.1.1 web-0 ready n1 zone-a · eu 1", "10.0.1.4 web-3 not-ready n2 zone-b · eu 7"}},
		{"/service?name=shop/bad", 200, []string{"This annotation does nothing"}},
		{"/service?name=shop/pg", 200, []string{"An alias of db.example.com", "pg.shop.registry.local."}},
		{"/service?name=shop/nope", 404, []string{"there is no Service shop/nope"}},
		{"/service?name=shop", 400, []string{"is not NAMESPACE/SERVICE"}},
		{"/service", 400, []string{"is not NAMESPACE/SERVICE"}},
		{"/ask", 200, []string{"Who asks", "Name", "Type"}},
		{"/ask?name=shop/web&from=192.0.2.2", 200, []string{"What they get, in this order", "NOERROR", "1 10.0.1.2 web-1", "node 7", "2 10.0.1.1", "region 1", "3 10.0.1.3", "10.0.1.4 web-3, zone-b not-ready",
			"192.0.2.2: node n2, zone zone-b", "InternalIP of Node n2", "topology order", "epdns explain web.shop.registry.local. A --from 192.0.2.2"}},
		{"/ask?name=web.shop.registry.local&from=zone-b", 200, []string{"1 10.0.1.2", "192.0.2.2: node n2, zone zone-b", "This address stands for zone-b"}},
		{"/ask?name=web.shop.registry.local&from=n1", 200, []string{"1 10.0.1.1", "192.0.2.1: node n1"}},
		{"/ask?name=web.shop.registry.local&from=eu", 200, []string{"192.0.2.1: node n1"}},
		{"/ask?name=web.shop.registry.local&from=shop/web", 200, []string{"10.0.1.1: node n1", "an endpoint&#39;s of Service shop/web"}},
		{"/ask?name=web.shop.registry.local&type=srv&tcp=true", 200, []string{"SRV over TCP", "8080 10-0-1-1.web.shop.registry.local."}},
		{"/ask?name=nope.shop.registry.local", 200, []string{"NXDOMAIN", "no Service nope in namespace shop"}},
		{"/ask?name=example.com&from=192.0.2.1", 200, []string{"REFUSED", "none that is served"}},
		{"/ask?name=$(x).'.registry.local&from=n1", 200, []string{`epdns explain &#39;$(x).&#39;\&#39;&#39;.registry.local.&#39; A --from 192.0.2.1`}},
		{"/ask?name=10.0.1.1", 200, []string{"PTR", "10-0-1-1.web.shop.registry.local."}},
		{"/ask?name=shop/web&subnet=10.0.1.0/24&from=192.0.2.1", 200, []string{"subnet 10.0.1.0/24 does not count: the asker is no trusted forwarder"}},
		{"/ask?name=shop/nope", 400, []string{"There is no Service shop/nope"}},
		{"/ask?name=a..b", 400, []string{"Name: ", "a label is empty"}},
		{"/ask?name=shop/web&type=AXFR", 400, []string{"Type: AXFR is a transfer"}},
		{"/ask?name=shop/web&from=mars", 400, []string{"Who asks: ", "is no address, and no Node, zone, region or Service that is known"}},
		{"/ask?name=shop/web&from=shop/nope", 400, []string{"Who asks: ", "there is no Service shop/nope"}},
		{"/ask?name=shop/web&from=shop/down", 400, []string{"Who asks: ", "no endpoint of Service shop/down is ready"}},
		{"/ask?name=shop/web&subnet=x", 400, []string{"For whom: ", "is no prefix"}},
		{"/ask?from=n1", 200, []string{"Which name?"}},
		{"/ask?nam=shop/web", 400, []string{"is not known"}},
		{"/ask?name=" + long + long + long, 400, []string{"is too long"}},
		{"/page/page.css", 200, []string{"prefers-color-scheme: dark"}},
		{"/page/page.js", 200, []string{"EventSource"}},
		{"/page/page.html", 404, nil},
		{"/page/..%2fpage.go", 404, nil},
		{"/live?view=nope", 400, []string{`"nope" is no page`}},
		{"/live?view=ask&name=shop/web", 400, []string{"nothing changes on"}},
		{"/live?view=service&name=shop/web&page=0", 400, []string{"no number of a page"}},
		{"/live?view=service&name=shop/nope", 404, []string{"there is no Service"}},
		{"/live?view=services&page=0", 400, []string{"no number of a page"}},
		{"/status", 303, nil},
		{"/status.json?a=b", 400, []string{"is not known"}},
		{"/nope", 404, nil},
	} {
		status, header, body := get(t, h, c.path)
		if status != c.status {
			t.Errorf("%s: %d, want %d\n%s", c.path, status, c.status, words(body))
			continue
		}
		rest := words(body)
		for _, say := range c.says {
			_, after, ok := strings.Cut(rest, say)
			if !ok {
				t.Errorf("%s: %q does not follow, in:\n%s", c.path, say, words(body))
				break
			}
			rest = after
		}
		if form := header.Get("Content-Type"); strings.HasPrefix(form, "text/html") && status != 303 {
			if !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none';") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("X-Frame-Options") != "DENY" {
				t.Errorf("%s: %v", c.path, header)
			}
			if strings.Contains(body, "<script>") || strings.Contains(body, " style=") || strings.Contains(body, "<i>") || strings.Contains(body, "http://") && !strings.Contains(body, "http://localhost") {
				t.Errorf("%s: there is markup that is not ours, or a style within, or an address elsewhere:\n%s", c.path, body)
			}
			for _, part := range []string{"<!doctype html>", `<html lang="en">`, "<h1", `<main id="main"`, "</html>"} {
				if strings.Count(body, part) != 1 {
					t.Errorf("%s: %s is not there once", c.path, part)
				}
			}
			if labels, fields := strings.Count(body, "<label for="), strings.Count(body, "<input")+strings.Count(body, "<select"); labels != fields {
				t.Errorf("%s: %d labels for %d fields", c.path, labels, fields)
			}
		}
	}
	for _, path := range []string{"/", "/services", "/service?name=shop/web", "/ask", "/live?view=", "/status.json", "/page/page.css"} {
		if status, _, _ := do(t, h, http.MethodPost, path); status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, status)
		}
		if status, _, body := do(t, h, http.MethodHead, path); status != http.StatusOK || body != "" {
			t.Errorf("HEAD %s: %d %q", path, status, body)
		}
	}
}

// What is long comes in pages, of which each row is on one.
func TestPageOfMany(t *testing.T) {
	const n = 2*servicesPerPage + 20
	h, _ := pageOf(t, &fed{begin: func(f *fed, nodes registry.NodeFeed) {
		nodes.Replace(nil)
		var services []*corev1.Service
		var addresses []string
		for i := range n {
			services = append(services, serviceObject("shop", fmt.Sprintf("s%03d", i), nil))
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		}
		f.services.Replace(services)
		f.slices.Replace([]*discoveryv1.EndpointSlice{sliceObject("shop", "s000", addresses...)})
	}})
	row := regexp.MustCompile(`service\?name=shop%2fs(\d+)|<th scope="row">(10\.0\.\d+\.\d+)`)
	for path, pages := range map[string]int{"/services?q=s": 3, "/service?name=shop/s000": 2} {
		seen := map[string]int{}
		for page := range pages {
			_, _, body := get(t, h, fmt.Sprintf("%s&page=%d", path, page+1))
			for _, m := range row.FindAllStringSubmatch(body, -1) {
				seen[m[1]+m[2]]++
			}
			if next := strings.Contains(body, `rel="next"`); next != (page+1 < pages) {
				t.Errorf("%s: page %d has a next one: %t", path, page+1, next)
			}
			if before := strings.Contains(body, `rel="prev"`); before != (page > 0) {
				t.Errorf("%s: page %d has one before: %t", path, page+1, before)
			}
		}
		if len(seen) != n {
			t.Errorf("%s: %d rows of %d are there", path, len(seen), n)
		}
		for what, times := range seen {
			if times != 1 {
				t.Errorf("%s: %s is there %d times", path, what, times)
			}
		}
		_, _, last := get(t, h, fmt.Sprintf("%s&page=%d", path, pages))
		if _, _, beyond := get(t, h, path+"&page=999"); words(beyond) != words(last) {
			t.Errorf("%s: beyond the last page is something else", path)
		}
		if link := regexp.MustCompile(`href="\?([^"]*page=\d+[^"]*)"`).FindStringSubmatch(last); link == nil {
			t.Errorf("%s: the last page has no link to another", path)
		} else if q, err := url.ParseQuery(strings.ReplaceAll(link[1], "&amp;", "&")); err != nil || len(q) != 2 || q.Get("page") == "" {
			t.Errorf("%s: the link %q is not to the same list", path, link[1])
		}
	}
}

// Whoever may not see details learns what there is for him, and nothing of the cluster.
func TestPageIsForThisMachine(t *testing.T) {
	h, p := pageOf(t, &fed{begin: shop})
	const here, ours, other = "127.0.0.1:40000", "192.0.2.1:9153", "192.0.2.2:40000"
	for _, path := range []string{"/", "/services", "/service?name=shop/web", "/ask?name=shop/web", "/live?view=", "/status.json", "/status", "/page/page.css"} {
		for _, r := range []struct{ from, host string }{{other, ours}, {here, "evil.example:9153"}} {
			w, req := httptest.NewRecorder(), request(path, r.from, ours)
			req.Host = r.host
			h.handler.ServeHTTP(w, req)
			want := http.StatusForbidden
			if path == "/" {
				want = http.StatusOK
			}
			if w.Code != want || strings.Contains(w.Body.String(), "shop") || !strings.Contains(w.Body.String(), "httpDetails: true") {
				t.Errorf("%s from %s: %d %s", path, r.from, w.Code, w.Body)
			}
			if path == "/" && (!strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || !strings.Contains(w.Body.String(), "/metrics")) {
				t.Errorf("%v %s", w.Header(), w.Body)
			}
		}
	}
	if top := h.page.dns.Top(1); !top.Since.IsZero() {
		t.Error("what is asked for most is counted though nobody may see it")
	}
	h.details.Store(true)
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, request("/services", other, ours))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "shop") {
		t.Errorf("with details: %d %s", w.Code, w.Body)
	}
	if top := h.page.dns.Top(1); top.Since.IsZero() {
		t.Error("what is asked for most is not counted though somebody has looked")
	}
	_ = p
}

// status.json has what the page shows.
func TestStatusJSON(t *testing.T) {
	h, p := pageOf(t, &fed{begin: shop})
	for _, path := range []string{"/status.json", "/status"} {
		req := request(path, "127.0.0.1:40000", "127.0.0.1:9153")
		req.Host = "localhost:9153"
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, req)
		var s pageStatus
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Header().Get("Content-Type") != applicationJSON {
			t.Fatalf("%s: %v %v\n%s", path, err, w.Header(), w.Body)
		}
		if s.State != "serving" || !s.Ready || s.Services != 4 || s.Endpoints != (statusEndpoints{7, 4}) || s.Nodes != 2 || s.Serial != p.zones.Load().Serial() ||
			!slices.Equal(s.Zones, []statusZone{{"registry.local.", "short", 4}}) || s.Problems.Count != 2 || s.Problems.Services[0].Service != "shop/bad" ||
			len(s.Listen.DNS) != 1 || s.Listen.HTTP != h.Addr().String() || s.Build != readBuildInfo() || s.Uptime <= 0 || s.Source != "test" || s.AsOf != nil {
			t.Errorf("%s: %+v", path, s)
		}
	}
	asOf := time.Now().Add(-5 * time.Minute)
	p.zones.Publish(p.zones.Load().Stale(asOf))
	if s := h.page.status(time.Now()); s.State != "stale" || !s.AsOf.Equal(asOf) || s.Tone() != "fair" || s.Sentence() != "Serving what was known 5 min ago: a watch is lost" {
		t.Errorf("%+v %s", s, s.Sentence())
	}
	p.stopping.Store(true)
	if s := h.page.status(time.Now()); s.State != "stopping" || s.Ready || len(s.NotReady()) != 1 {
		t.Errorf("%+v", s)
	}
}

// The page about it has every field, and an example that is one.
func TestStatusPageFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/status-page.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&pageStatus{}); err != nil {
		t.Errorf("the example: %v", err)
	}
	var look func(reflect.Type)
	look = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "" || !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(text, `"`+name+`":`) {
				t.Errorf("docs/status-page.md does not have field %s.%s", of.Name(), name)
			}
			look(of.Field(i).Type)
		}
	}
	look(reflect.TypeFor[pageStatus]())
}

// liveEvents are those of a stream, until the test ends.
func liveEvents(t *testing.T, h *httpServer, path string) <-chan event {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != eventStream {
		t.Fatalf("%s: %s %v", path, resp.Status, resp.Header)
	}
	out := make(chan event)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		for reader := newEventReader(resp.Body); ; {
			e, err := reader.next()
			if err != nil {
				return
			}
			select {
			case out <- e:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return out
}

// await waits for an event with a part of which these words are.
func await(t *testing.T, events <-chan event, part, say string) map[string]string {
	t.Helper()
	late := time.After(grace)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the stream has ended before %q", say)
			}
			if e.name != "" {
				if e.name == part {
					return nil
				}
				continue
			}
			parts := map[string]string{}
			if err := json.Unmarshal([]byte(e.data), &parts); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(words(parts[part]), say) {
				return parts
			}
		case <-late:
			t.Fatalf("after %v there is no %q", grace, say)
		}
	}
}

// What changes is in the stream of whoever looks at it, and nothing else is.
func TestLive(t *testing.T) {
	f := &fed{begin: shop}
	h, _ := pageOf(t, f)
	list := liveEvents(t, h, "/live?view=services&q=web")
	one := liveEvents(t, h, "/live?view=service&name=shop/web")
	whole := liveEvents(t, h, "/live?view=")
	await(t, list, "services-list", "3 of 4")
	await(t, one, "service-endpoints", "10.0.1.1")
	await(t, whole, "numbers", "4 of 7")

	f.slices.Put(sliceObject("shop", "web", "10.0.1.1", "10.0.1.9"))
	await(t, list, "services-list", "2 of 2")
	if parts := await(t, one, "service-endpoints", "10.0.1.9"); strings.Contains(parts["service-endpoints"], "10.0.1.3") || parts["head"] != "" {
		t.Errorf("%q", parts)
	}
	await(t, whole, "numbers", "3 of 5")
	f.services.Put(serviceObject("shop", "web2", map[string]string{"registry.local/limit": "-1"}))
	await(t, list, "services-list", "web2")
	await(t, whole, "problems", "shop/web2")
	f.services.Delete(serviceObject("shop", "web", nil))
	await(t, one, "gone", "")
	f.services.Put(serviceObject("shop", "web", nil))
	await(t, one, "service-endpoints", "10.0.1.9")
	f.services.Delete(serviceObject("shop", "web", nil))
	await(t, one, "gone", "")
	f.services.Put(serviceObject("shop", "web", nil)) // as it was
	await(t, one, "service-endpoints", "10.0.1.9")
}

// Whoever looks at something is told once that it is gone, and all of it when it is back. That
// others are asking is no reason to say so.
func TestLiveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newPipeline(&fed{}, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		dns, err := dnsserver.Listen(dnsserver.Config{Listen: []string{"127.0.0.1:0"}}, p.zones, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer dns.Close()
		there := func() *view { return &view{Parts: []string{"services-list"}, Version: 7, Data: &servicesView{}} }
		gone := errorOf(http.StatusNotFound, io.EOF)
		errs := []error{errBusy, nil, gone, gone, errBusy, gone, nil}
		var events []string
		n := 0
		ctx, stop := context.WithCancel(t.Context())
		newHTTP(p, dns, quiet).page.live(ctx, there(), func(before any) (*view, error) {
			if n++; n > len(errs) {
				stop()
				return &view{Version: before}, nil
			}
			if want := []any{7, 7, 7, nil, nil, nil, nil}[n-1]; before != want {
				t.Errorf("%d: what was shown before is %v, want %v", n, before, want)
			}
			if errs[n-1] != nil {
				return nil, errs[n-1]
			}
			if v := there(); v.Version != before {
				return v, nil
			}
			return &view{Version: before}, nil
		}, func(b []byte) bool {
			if b[0] == ':' {
				return true // only that it is alive
			}
			events = append(events, fmt.Sprintf("%d gone %t, list %t", n, strings.Contains(string(b), "event: gone"), strings.Contains(string(b), `"services-list"`)))
			return true
		})
		if want := []string{"0 gone false, list true", "3 gone true, list false", "7 gone false, list true"}; !slices.Equal(events, want) {
			t.Errorf("%q, want %q", events, want)
		}
	})
}

// What takes long of a page that is looked at is made where there is something else to show, and
// not else.
func TestViewSince(t *testing.T) {
	f := &fed{begin: shop}
	h, p := pageOf(t, f)
	for path, of := range map[string]viewOf{"/services?q=web": h.page.services, "/service?name=shop/web": h.page.service} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		since := func(before any) *view {
			t.Helper()
			v, err := h.page.viewSince(t.Context(), of, u, before)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		first := since(nil)
		if first.Data == nil || len(first.Parts) == 0 {
			t.Fatalf("%s: at first there is %+v", path, first)
		}
		if again := since(first.Version); again.Data != nil || len(again.Parts) > 0 {
			t.Errorf("%s: it is made again though nothing has changed: %+v", path, again)
		}
		before := p.publishes.Load()
		f.slices.Put(sliceObject("shop", "web", "10.0.1.1", fmt.Sprintf("10.0.9.%d", before)))
		for end := time.Now().Add(grace); p.publishes.Load() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the change is not answered")
			}
		}
		for end := time.Now().Add(grace); since(first.Version).Data == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: it is not made again though something has changed", path)
			}
		}
	}
}

// Explanations wait for their turn, and not for ever.
func TestPageIsBusy(t *testing.T) {
	h, _ := pageOf(t, &fed{begin: shop})
	for range maxBusy {
		h.page.busy <- struct{}{}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := h.page.begin(ctx); err == nil {
		t.Error("there is a place that there is not")
	}
	go func() { <-h.page.busy }()
	if status, _, _ := get(t, h, "/ask?name=shop/web"); status != http.StatusOK {
		t.Errorf("when one is done: %d", status)
	}
	for range maxBusy - 1 {
		<-h.page.busy
	}
	if n := len(h.page.busy); n != 0 {
		t.Errorf("%d places are not given back", n)
	}
}

// The list of Services is made when something has changed, and not more often than it may.
func TestDirectory(t *testing.T) {
	store := registry.NewStore(quiet)
	feed := store.Services("")
	feed.Replace([]*corev1.Service{serviceObject("b", "x", nil), serviceObject("a", "z", nil), serviceObject("a", "y", nil)})
	changes := uint64(1)
	d := &directory{store: store, changes: func() uint64 { return changes }}
	keys := func() (out []string, version time.Time) {
		list, version := d.services()
		for _, l := range list {
			out = append(out, l.Key.String())
		}
		return out, version
	}
	first, made := keys()
	if !slices.Equal(first, []string{"a/y", "a/z", "b/x"}) {
		t.Errorf("%q", first)
	}
	feed.Put(serviceObject("a", "a", nil))
	if again, version := keys(); len(again) != 3 || version != made {
		t.Error("it was made again though nothing has changed")
	}
	changes++
	d.took = time.Hour
	if again, version := keys(); len(again) != 3 || version != made {
		t.Error("it was made again at once")
	}
	d.took = 0
	if again, version := keys(); len(again) != 4 || version == made {
		t.Errorf("%q", again)
	}
	d.forget.Stop()
}

// Rates are of the last seconds, and of each of the spans before.
func TestRates(t *testing.T) {
	var r rates
	now := time.Unix(1_800_000_000, 0)
	if got := r.now(now, 5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 100 {
		r.note(now.Add(time.Duration(i)*rateEvery), uint64(i*i*50))
	}
	last := now.Add(99 * rateEvery)
	if got := r.now(last.Add(time.Second), 99*99*50+100); got < 300 || got > 1999 { // the sample before the last one
		t.Errorf("%v", got)
	}
	if got := r.now(last.Add(4*time.Second), 99*99*50+100); got != 25 {
		t.Errorf("%v", got)
	}
	bars := r.bars()
	if len(bars) != rateKept-1 || bars[len(bars)-1] != (99*99-98*98)*10 || bars[0] != (40*40-39*39)*10 {
		t.Errorf("%d: %v", len(bars), bars)
	}
	if b := barsOf(bars); b.Most != 1970 || b.Heights[59].H != 40 || b.Heights[59].Y != 0 || b.Heights[0].H >= 20 {
		t.Errorf("%+v", b)
	}
}

func TestPageTexts(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(d time.Duration) string { at := now.Add(-d); return sinceText(now, &at) }
	for got, want := range map[string]string{
		numberText(999): "999", numberText(1000): "1,000", numberText(int64(1234567)): "1,234,567",
		rateText(0): "0/s", rateText(0.001): "4/h", rateText(0.05): "3/min", rateText(1.25): "1.2/s", rateText(12345.6): "12,345/s",
		ago(0): "now", ago(90 * time.Second): "1 min ago", ago(50 * time.Hour): "2 days ago", sinceText(now, nil): "never", ago(-time.Hour): "now",
		ago(3 * time.Second): "3 s ago", spanText(7200): "2 h", secondsText(0.000128): "128 µs", secondsText(0.016384): "16.4 ms", secondsText(2): "2 s",
		shareText(0.5): "50 %", shareText(0.012): "1.2 %", shareText(1e-6): "< 0.1 %",
		oneLine(" a\n b\t"): "a b", placeName("ecs"): "Client Subnet", placeName("x"): "x",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if text := oneLine(strings.Repeat("ä", maxLine)); len(text) > maxLine+len("…") || !strings.HasSuffix(text, "ä…") {
		t.Errorf("%d octets", len(text))
	}
	for p := zones.PlaceUnknown; p < zones.Places; p++ {
		if placeNames[p.String()] == "" {
			t.Errorf("%v has no name for people", p)
		}
	}
}

// Where there are no Nodes, who asks is found by endpoints.
func TestAskerWithoutNodes(t *testing.T) {
	h, p := pageOf(t, manifest.New(manifest.Sample(), "sample", quiet))
	for text, want := range map[string]string{"zone-b": "zone-b", "node-c1": "node-c1", "data/db": "zone-a"} {
		addr, err := h.page.asker(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if at := placeOf(p.zones.Load(), addr); at.Node != want && at.Zone != want {
			t.Errorf("%s: %v is %+v", text, addr, at)
		}
	}
	if addr, err := h.page.asker(""); err != nil || addr != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("nobody: %v %v", addr, err)
	}
}

// Whatever is in an address, each page answers it, and no markup comes out that is not ours.
func FuzzPage(f *testing.F) {
	h, _ := pageOf(f, &fed{begin: shop})
	paths := []string{"/", "/services", "/service", "/ask", "/live", "/status.json"}
	for _, query := range []string{"", "q=<i>mark", "name=shop/web&page=2", "name=shop/web&from=zone-a&type=SRV&tcp=true", "name=%3Ci%3Emark&from=\"'><i>mark", "view=ask&name=shop/web",
		"page=-1", "page=99999999999999999999", "view=service&name=shop/web", "show=problems&q=%00", "a=b;c", "%zz", "from=10.0.1.1&name=\x80.shop.registry.local", "name=1.2.3.4&subnet=::/0"} {
		for i := range paths {
			f.Add(uint8(i), query)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, query string) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r := request("/", "127.0.0.1:40000", "127.0.0.1:9153").WithContext(context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9153})))
		r.Host = "localhost"
		r.URL = &url.URL{Path: paths[int(which)%len(paths)], RawQuery: query}
		w := httptest.NewRecorder()
		if r.URL.Path == "/live" {
			// A stream goes on until its reader goes: this one does after the first event.
			h.handler.ServeHTTP(&once{w, stop}, r)
		} else {
			h.handler.ServeHTTP(w, r)
		}
		if !slices.Contains([]int{200, 400, 404}, w.Code) {
			t.Errorf("%s?%q: %d %s", r.URL.Path, query, w.Code, w.Body)
		}
		form := w.Header().Get("Content-Type")
		if body := w.Body.String(); strings.HasPrefix(form, "text/html") && (strings.Contains(body, "<i>mark") || strings.Contains(body, "<script>")) {
			t.Errorf("%s?%q: %s", r.URL.Path, query, body)
		} else if form != "text/html; charset=utf-8" && w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s?%q: %v", r.URL.Path, query, w.Header())
		}
	})
}

// once ends a stream when it has written something.
type once struct {
	*httptest.ResponseRecorder
	stop func()
}

func (o *once) Write(p []byte) (int, error) {
	defer o.stop()
	return o.ResponseRecorder.Write(p)
}

// BenchmarkPages is what a page costs with 100,000 Services of ten endpoints.
func BenchmarkPages(b *testing.B) {
	const services, endpoints = 100_000, 10
	h, _ := pageOf(b, &fed{begin: func(f *fed, nodes registry.NodeFeed) {
		nodes.Replace(nil)
		var all []*corev1.Service
		var slices []*discoveryv1.EndpointSlice
		for i := range services {
			all = append(all, serviceObject(fmt.Sprintf("team-%d", i/1000), fmt.Sprintf("s%d", i), nil))
			var addresses []string
			for j := range endpoints {
				addresses = append(addresses, netip.AddrFrom4([4]byte{10, byte(i >> 12), byte(i >> 4), byte(i<<4 | j)}).String())
			}
			slices = append(slices, sliceObject(fmt.Sprintf("team-%d", i/1000), fmt.Sprintf("s%d", i), addresses...))
		}
		f.services.Replace(all)
		f.slices.Replace(slices)
	}})
	for _, path := range []string{"/", "/services", "/services?q=s9&show=unready", "/services?page=2000", "/service?name=team-9/s9999", "/ask?name=team-9/s9999&from=zone-a"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				r := request(path, "127.0.0.1:40000", "127.0.0.1:9153")
				r.Host = "localhost"
				if h.handler.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatalf("%s: %d", path, w.Code)
				}
			}
		})
	}
	b.Run("the list anew", func(b *testing.B) {
		for b.Loop() {
			h.page.directory.mu.Lock()
			h.page.directory.made = time.Time{}
			h.page.directory.mu.Unlock()
			h.page.directory.services()
		}
	})
}
