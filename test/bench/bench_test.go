//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestMain is also the echo, for tests that start it.
func TestMain(m *testing.M) {
	if address := os.Getenv(EchoEnv); address != "" {
		fmt.Fprintln(os.Stderr, Echo(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A short run of all that needs no other program, and what becomes of it.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(t.Context(), Options{
		Only: []string{epdns, floor, "A10", "NXDOMAIN", "A100"}, Seconds: 0.1, Rounds: 2, Services: 20,
		Echo: []string{self}, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{epdns, floor} {
		complete := false // where the machine is busy, a server may have no time to answer
		for _, q := range []string{"A10", "NXDOMAIN", "A100"} {
			for _, tcp := range []bool{false, true} {
				k := key{server, q, tcp}
				if len(c.samples[k]) != 2 {
					t.Errorf("%v was measured %d times, want 2", k, len(c.samples[k]))
				}
				for _, s := range c.samples[k] {
					if s.p99 < s.p50 || s.wrong != 0 || s.lost < 0 || s.lost > 1 {
						t.Errorf("%v: %+v", k, s)
					}
					complete = complete || s.rate > 0 && s.cpu > 0 && s.busy > 0 && s.p50 > 0
				}
				if ours := c.sizes[key{epdns, q, tcp}]; c.sizes[k][1] != ours[1] {
					t.Errorf("%v: replies of %d octets, epdns's have %d", k, c.sizes[k], ours)
				}
			}
		}
		if !complete {
			t.Errorf("%s: no complete sample", server)
		}
		if m := c.resident[server]; m[0] <= 0 || m[1] <= 0 {
			t.Errorf("%s: %v MiB resident", server, m)
		}
	}
}

// example is what a comparison can look like: CoreDNS has lost all queries of one kind.
func example() *Comparison {
	c := &Comparison{
		Machine: "2 processors", Versions: []string{"epdns 1", "Knot 3"},
		options: Options{Rounds: 2, Seconds: 1, Services: 1000}, servers: []string{epdns, knot, coreDNS}, tcp: []bool{false},
		questions: NewWorld(1).questions[:2],
		sizes:     map[key][2]int{}, resident: map[string][2]float64{epdns: {20.04, 31}, knot: {15, 15}, coreDNS: {175, 219.2}},
		samples: map[key][]sample{},
	}
	for _, q := range c.questions {
		c.samples[key{epdns, q.name, false}] = []sample{{rate: 400_000, cpu: 2, busy: 0.99, p50: 40, p99: 90}, {rate: 300_000, cpu: 2.5, busy: 0.97, p50: 44, p99: 91.5}}
		c.samples[key{knot, q.name, false}] = []sample{{rate: 200_000, cpu: 4, busy: 1, p50: 50, p99: 100, lost: 0.01}, {rate: 100_000, cpu: 5, busy: 1, p50: 50, p99: 100, lost: 0.02}}
		c.samples[key{coreDNS, q.name, false}] = []sample{{rate: 10_000, cpu: 100, busy: 1, p50: 300, p90: 800, p99: 9000}, {rate: 10_000, cpu: 90, busy: 1, p50: 300, p90: 800, p99: 9000, wrong: 3}}
		c.sizes[key{epdns, q.name, false}] = [2]int{218, 218}
		c.sizes[key{coreDNS, q.name, false}] = [2]int{411, 430}
	}
	c.samples[key{knot, "A10", false}][0].dnsperf = 145_000 // only once
	c.samples[key{coreDNS, "SRV10", false}] = []sample{{others: 0.2}, {others: 0.3}}
	for i := range 2 { // one had too few queries, and the processor of the other had more to do
		c.samples[key{knot, "A10", false}][i].busy = 0.9
		s := &c.samples[key{coreDNS, "A10", false}][i]
		s.busy, s.others = 0.8, 0.2
	}
	return c
}

func TestComparisonMarkdown(t *testing.T) {
	text := example().Markdown()
	for _, want := range []string{
		"2 processors; epdns 1, Knot 3. 1000 Services with 10 endpoints, 100 with 100; EDNS with 1232 octets. Medians of 2 rounds of 1s a figure.\n",
		"| processor time, µs a query | A, 10 endpoints | SRV, 10 endpoints |\n|---|---:|---:|\n| epdns | 2.25 | 2.25 |\n| Knot | 4.50 | 4.50 |\n| CoreDNS kubernetes | 95.0 | – |\n",
		"| epdns | 350,000 | 350,000 |\n| Knot | 150,000 † | 150,000 |\n| CoreDNS kubernetes | 10,000 ‡ | – ‡ |\n",
		"| A, 10 endpoints: processor time of a query at most 0.75 of Knot's or 1.25 of the echo's | 0.500 of Knot's | holds |\n",
		"| A, 10 endpoints: answers a second at least 1.75 times Knot's | 2.50 times † | holds |\n",
		"| A, 10 endpoints: answers a second at least 10 times those of CoreDNS without cache | 35.0 times ‡ | holds |\n",
		"| CoreDNS kubernetes | 300 / 800 / 9,000 | – / – / – |\n",
		"| CoreDNS kubernetes | 411–430 | 411–430 |\n",
		// 2/4 and 2.5/5; 400/200 and 300/100; of rounds, not of medians.
		"| processor time of epdns, as a part of | Knot | CoreDNS kubernetes |\n|---|---:|---:|\n| A, 10 endpoints, UDP | 0.500 | 0.024 |\n",
		"| answers a second of epdns, times those of | Knot | CoreDNS kubernetes |\n|---|---:|---:|\n| A, 10 endpoints, UDP | 2.50 | 35.0 |\n| SRV, 10 endpoints, UDP | 2.50 | – |\n",
		"| epdns | 20.0 | 31.0 |\n",
		"| Knot | A, 10 endpoints | 145,000 | 150,000 |\n",
		"- Knot left up to 1.5 % of the queries without a reply (A, 10 endpoints over UDP)",
		"- CoreDNS kubernetes: 3 replies were wrong.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no\n%s\nin\n%s", want, text)
		}
	}
}

// All points of a chart are there, and it is XML.
func TestSVG(t *testing.T) {
	g := &Growth{options: Options{}, all: []*growth{
		{level: levels[0], server: epdns, ready: time.Second, residual: 20, endpoint: query{cost: 2, rate: 4e5}, change: 300, spent: spent{time.Second, 20 * time.Millisecond}, lags: make([][]lag, 3)},
		{level: levels[1], server: epdns, ready: time.Second, residual: 30, endpoint: query{cost: 2, rate: 4e5}, change: 300, spent: spent{time.Second, 30 * time.Millisecond}, failed: errors.New("none")},
		{level: levels[4], server: coreDNS, failed: errors.New("no memory")},
	}}
	g.all[0].lags[1] = []lag{{reached: 100, late: []time.Duration{time.Millisecond, 2 * time.Millisecond}}}
	for what, test := range map[string]struct {
		svg    []byte
		points int
	}{"comparison": {example().SVG(), 10}, "growth": {g.SVG(), 11}} {
		d := xml.NewDecoder(bytes.NewReader(test.svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if n := bytes.Count(test.svg, []byte("</title></path>")); n != test.points {
			t.Errorf("%s: %d points, want %d", what, n, test.points)
		}
	}
	text := g.Markdown()
	for _, want := range []string{
		"| 100, 10 | epdns | 1.00 | – | 20.0 | – | 2.00 | – | – |\n",
		"| 100, 10 | epdns | 300 | 2.00 | – | 1.00 / 2.00 | – |\n",
		"| 10,000 endpoints and 1,000 Services: epdns serves them | it did not get to the end | does not hold |\n",
		"- 5,000, 1, CoreDNS kubernetes: it did not get to the end.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no\n%s\nin\n%s", want, text)
		}
	}
}

// Statements about what was not measured are not there, and each limit has two sides.
func TestVerdicts(t *testing.T) {
	written := func(list []verdict) string {
		var b bytes.Buffer
		writeVerdicts(&b, list)
		return b.String()
	}
	if text := written((&Growth{}).verdicts()) + written((&Comparison{questions: NewWorld(1).questions}).verdicts()); text != "" {
		t.Errorf("nothing was measured, and it says\n%s", text)
	}
	// All rounds count together, and the third had no change.
	late := func(ms ...int) [][]lag {
		var l [2]lag
		for i, n := range ms {
			l[i%2].late = append(l[i%2].late, time.Duration(n)*time.Millisecond)
		}
		return [][]lag{{}, {l[0], l[1], {}}, {}}
	}
	at := func(name string) level {
		return levels[slices.IndexFunc(levels, func(l level) bool { return l.name == name })]
	}
	good := func() []*growth {
		return []*growth{
			{level: at("100"), server: epdns, lags: late(-1, 1)},
			{level: at("100000"), server: epdns, ready: time.Second, residual: 80, lags: late(1, 4)},
			{level: at("100000"), server: coreDNS, ready: 2 * time.Second, residual: 200, lags: late(1, 5)},
			{level: at("1000000"), server: epdns, residual: 600, service: query{times: 1.3}, endpoint: query{times: 1.1}, lags: late(4)},
		}
	}
	const statements = 7
	text := written((&Growth{all: good()}).verdicts())
	if strings.Count(text, "| holds |\n") != statements || strings.Contains(text, "does not hold") {
		t.Errorf("all should hold:\n%s", text)
	}
	for what, spoil := range map[string]func([]*growth){
		"a change that is never answered":       func(g []*growth) { g[0].lags[atRate][2].never = 1 },
		"an answer after 5 ms":                  func(g []*growth) { g[3].lags = late(5) },
		"CoreDNS is ready first":                func(g []*growth) { g[2].ready = time.Second },
		"CoreDNS has the change first":          func(g []*growth) { g[2].lags = late(3) },
		"86 MiB are more than 90 MB":            func(g []*growth) { g[1].residual = 86 },
		"668 MiB are more than 700 MB":          func(g []*growth) { g[3].residual = 668 },
		"queries about endpoints cost too much": func(g []*growth) { g[3].endpoint.times = 1.31 },
	} {
		all := good()
		spoil(all)
		text := written((&Growth{all: all}).verdicts())
		if strings.Count(text, "| does not hold |\n") != 1 || strings.Count(text, "| holds |\n") != statements-1 {
			t.Errorf("%s:\n%s", what, text)
		}
	}
}

func TestStatistics(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(test.values); got != test.want {
			t.Errorf("the median of %v is %v, want %v", test.values, got, test.want)
		}
	}
	if got := ratios([]float64{2, 3, 4}, []float64{4, 0, 2}); !slices.Equal(got, []float64{0.5, 2}) {
		t.Errorf("ratios %v", got)
	}
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{hundred, 0, 1}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 0.995, 100}, {hundred, 1, 100},
		{hundred[:1], 0.99, 1}, {hundred[:2], 0.5, 1}, {nil, 0.5, 0},
	} {
		if got := percentile(test.sorted, test.p); got != test.want {
			t.Errorf("%v of %d: %d, want %d", test.p, len(test.sorted), got, test.want)
		}
	}
	for v, want := range map[float64]string{
		0: "–", 0.0123: "0.012", 0.5: "0.500", 1.234: "1.23", 12.34: "12.3", 99.94: "99.9", 123.4: "123", 1234: "1,230", 987654: "988,000", 1234567: "1,230,000",
	} {
		if got := rounded(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

// A wrong reply of any kind is found out before a server can be fast by it.
func TestCheck(t *testing.T) {
	world := NewWorld(2)
	find := func(name string) *question {
		i := slices.IndexFunc(world.questions, func(q *question) bool { return q.name == name })
		return world.questions[i]
	}
	reply := func(q *question, spoil func(*dns.Msg)) *dns.Msg {
		r := new(dns.Msg).SetReply(q.message(1))
		r.Rcode = q.rcode
		for record := range q.want(1) {
			text := fmt.Sprintf("%s 5 IN %s %s", q.names[1], dns.TypeToString[q.qtype], record)
			if q.qtype == dns.TypeSRV {
				text = fmt.Sprintf("%s 5 IN SRV 0 100 %s", q.names[1], record)
			}
			rr, err := dns.NewRR(text)
			if err != nil {
				t.Fatal(err)
			}
			r.Answer = append(r.Answer, rr)
		}
		if q.rcode != 0 {
			soa, _ := dns.NewRR(forwardZone + " 5 IN SOA a. b. 1 2 3 4 5")
			r.Ns = []dns.RR{soa}
		}
		spoil(r)
		return r
	}
	for _, test := range []struct {
		question, what string
		tcp, right     bool
		spoil          func(r *dns.Msg)
	}{
		{"A10", "as it is", false, true, func(*dns.Msg) {}},
		{"A10", "with one record less", false, false, func(r *dns.Msg) { r.Answer = r.Answer[1:] }},
		{"A10", "with a record twice", false, false, func(r *dns.Msg) { r.Answer[0] = r.Answer[1] }},
		{"A10", "with another address", false, false, func(r *dns.Msg) { r.Answer[0].(*dns.A).A = []byte{192, 0, 2, 1} }},
		{"A10", "with another RCODE", false, false, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }},
		{"A10", "cut", false, false, func(r *dns.Msg) { r.Truncated = true }},
		{"A100", "cut", false, true, func(r *dns.Msg) { r.Truncated, r.Answer = true, r.Answer[:70] }},
		{"A100", "whole over UDP", false, false, func(r *dns.Msg) {}},
		{"A100", "whole over TCP", true, true, func(r *dns.Msg) {}},
		{"A100", "cut over TCP", true, false, func(r *dns.Msg) { r.Truncated, r.Answer = true, r.Answer[:70] }},
		{"SRV10", "as it is", false, true, func(*dns.Msg) {}},
		{"SRV10", "with another port", false, false, func(r *dns.Msg) { r.Answer[0].(*dns.SRV).Port++ }},
		{"SRV100", "as it is", true, true, func(*dns.Msg) {}},
		{"PTR", "as it is", false, true, func(*dns.Msg) {}},
		{"PTR", "with another name", false, false, func(r *dns.Msg) { r.Answer[0].(*dns.PTR).Ptr = "other." }},
		{"POD", "as it is", false, true, func(*dns.Msg) {}},
		{"NXDOMAIN", "as it is", false, true, func(*dns.Msg) {}},
		{"NXDOMAIN", "without SOA", false, false, func(r *dns.Msg) { r.Ns = nil }},
		{"NXDOMAIN", "that is there", false, false, func(r *dns.Msg) { r.Rcode = dns.RcodeSuccess }},
	} {
		q := find(test.question)
		if err := q.check(1, reply(q, test.spoil), test.tcp); (err == nil) != test.right {
			t.Errorf("%s %s: %v", test.question, test.what, err)
		}
	}
}

// Replies to all names have one size only if their names and addresses do.
func TestWorldSizes(t *testing.T) {
	world := NewWorld(1000)
	for _, q := range world.questions {
		for i, name := range q.names {
			if len(name) != len(q.names[0]) {
				t.Fatalf("%s: %q and %q", q.name, q.names[0], name)
			}
			for record := range q.want(i) {
				for other := range q.want(0) {
					if len(record) != len(other) {
						t.Fatalf("%s: %q and %q", q.name, record, other)
					}
					break
				}
				break
			}
		}
	}
	seen := map[string]bool{}
	for _, n := range []int{0, 1, 149, 150, 22_499, 22_500, 1_000_000, maxAddresses - 1} {
		a := address(n).String()
		if len(a) != 14 || seen[a] {
			t.Errorf("address %d is %s", n, a)
		}
		seen[a] = true
	}
}

// A change is to an endpoint of its own, and slices hold all endpoints once.
func TestSlices(t *testing.T) {
	s := services("web", 1, 0, 250)[0]
	var all []string
	for i := range s.slices() {
		for _, e := range s.slice(i, 0)["endpoints"].([]object) {
			all = append(all, e["addresses"].([]string)...)
		}
	}
	slices.Sort(all)
	if s.slices() != 3 || len(slices.Compact(all)) != 250 {
		t.Errorf("%d slices, %d addresses", s.slices(), len(all))
	}
	c := changer{services: []*service{s}, next: maxAddresses}
	a, b := c.looked(), c.choose()
	for range 100 {
		if ch := c.choose(); ch.slice == a.slice {
			t.Fatal("the slice that is looked at changes")
		}
	}
	if a.address == b.address || a.address < s.size {
		t.Errorf("the changes have the addresses %d and %d", a.address, b.address)
	}
	if got := s.slice(a.slice, a.address)["endpoints"].([]object)[0]["addresses"].([]string)[0]; !strings.HasPrefix(a.name(), strings.ReplaceAll(got, ".", "-")+".") {
		t.Errorf("%s is to be the name of %s", a.name(), got)
	}
}

// What is written to etcd are whole objects under the keys of an API server, and a refusal is told.
func TestPutAll(t *testing.T) {
	got := map[string]string{} // kinds by key
	status := http.StatusOK
	etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Success []struct {
				RequestPut struct{ Key, Value []byte }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v3/kv/txn" {
			t.Errorf("%s: %v", r.URL, err)
		}
		for _, put := range body.Success {
			var o struct {
				Kind     string
				Metadata struct{ UID, CreationTimestamp string }
			}
			if err := json.Unmarshal(put.RequestPut.Value, &o); err != nil || o.Metadata.UID == "" || o.Metadata.CreationTimestamp == "" {
				t.Errorf("%s: %v", put.RequestPut.Value, err)
			}
			got[string(put.RequestPut.Key)] = o.Kind
		}
		w.WriteHeader(status)
		io.WriteString(w, "too large")
	}))
	defer etcd.Close()
	s := services("web", 20, 0, 10)[3]
	pairs := []pair{s.stored(), s.storedSlice(0)}
	if err := putAll(t.Context(), etcd.URL, pairs); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/registry/services/specs/ns-3/web-03": "Service", "/registry/endpointslices/ns-3/web-03-0": "EndpointSlice"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	status = http.StatusBadRequest
	if err := putAll(t.Context(), etcd.URL, pairs); err == nil || !strings.Contains(err.Error(), "400 Bad Request: too large") {
		t.Errorf("%v, want what etcd says", err)
	}
}

// Larger clusters have the Services of smaller ones, so that they grow.
func TestLevels(t *testing.T) {
	var before []*service
	for _, l := range levels {
		list := l.list()
		if len(list) != l.services || list[0].size != l.size {
			t.Errorf("%s: %d Services, the first with %d endpoints", l.name, len(list), list[0].size)
		}
		if l.one() {
			if list[0].name == before[0].name {
				t.Errorf("%s: its Service is that of another", l.name)
			}
			continue
		}
		for i, s := range before {
			if *s != *list[i] {
				t.Fatalf("%s: Service %d is %v, and was %v", l.name, i, *list[i], *s)
			}
		}
		before = list
	}
}

// What a process does on its processor is counted, that of its children, too.
func TestProcess(t *testing.T) {
	p, err := startOn(serverCPU, exec.Command("sh", "-c", "grep Cpus_allowed_list /proc/self/status; (while :; do :; done) & trap 'kill $!; exit 0' TERM; wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Until(ctx, time.Millisecond, func() error {
		pids, err := family(p.PID())
		if err != nil {
			return err
		}
		busy, err := cpuTime(pids)
		if err == nil && (len(pids) < 2 || busy < 50*time.Millisecond) {
			err = fmt.Errorf("%d processes ran %v", len(pids), busy)
		}
		if err != nil {
			return err
		}
		mib, err := resident(pids)
		if err == nil && mib <= 0 {
			err = fmt.Errorf("%v MiB", mib)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^Cpus_allowed_list:\s+0\n`).MatchString(p.Log()) {
		t.Errorf("it does not run on one processor: %s", p.Log())
	}
	// Held, none of them runs, and then they go on: else the end below would be none.
	s := &server{process: p}
	for _, step := range []struct {
		signal syscall.Signal
		states string
	}{{syscall.SIGSTOP, "T"}, {syscall.SIGCONT, "RS"}} {
		if err := s.signal(step.signal); err != nil {
			t.Fatal(err)
		}
		if err := p.Until(ctx, time.Millisecond, func() error {
			pids, err := s.pids()
			for _, pid := range pids {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if _, state, _ := strings.Cut(string(b), ") "); state == "" || !strings.Contains(step.states, state[:1]) {
					err = fmt.Errorf("after %v: %s", step.signal, b)
				}
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if idle, err := idleTime(serverCPU); err != nil || idle <= 0 {
		t.Errorf("the processor was idle for %v, %v", idle, err)
	}
	if _, err := idleTime(1 << 20); err == nil || !strings.Contains(err.Error(), "processor 1048576") {
		t.Errorf("%v, want an error that names the processor", err)
	}
	for _, pids := range [][]int{{1 << 30}} {
		if _, err := cpuTime(pids); err == nil {
			t.Error("a process that is not there has run")
		}
		if _, err := resident(pids); err == nil {
			t.Error("a process that is not there has memory")
		}
	}
}

// The stand-in is an API server to epdns: it reads all that is there, and hears of changes.
func TestStandIn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	l := &lab{}
	if err := l.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	}()
	list := services("web", 20, 0, 10)
	api, err := newStandIn(list)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	kubeconfig, err := l.write("kubeconfig", api.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.startOf(t.Context(), epdns, "", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range list {
		r, err := exchange(s.address, new(dns.Msg).SetQuestion(service.domain(), dns.TypeA), false)
		if err != nil || len(r.Answer) != 10 {
			t.Fatalf("%v\n%v", r, err)
		}
	}
	c := &changer{services: list, next: maxAddresses, apply: api.apply}
	lag, err := c.lag(t.Context(), s, 50, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if spent, err := spentBy(s); err != nil || spent.all <= 0 || spent.collecting <= 0 || spent.collecting > spent.all {
		t.Errorf("%v, %v", spent, err)
	}
	if len(lag.late) == 0 || lag.reached <= 0 || !slices.IsSorted(lag.late) {
		t.Errorf("%v changes a second, %v late", lag.reached, lag.late)
	}
}

func TestCollected(t *testing.T) {
	const log = `{"msg":"listening"}
gc 1 @0.012s 2%: 0.018+1.0+0.003 ms clock, 0.5+0.25/0.125/1+0.125 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 1 P
gc 2 @0.5s 3%: 0.1+2.0+0.1 ms clock, 1+1/1/0+1 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 1 P (forced)
`
	if got := collected(log); got != 6*time.Millisecond {
		t.Errorf("%v, want 6ms", got)
	}
	const page = "# HELP go_cpu_classes_gc_total_cpu_seconds_total x\ngo_cpu_classes_gc_total_cpu_seconds_total 0.25\n" +
		"go_cpu_classes_idle_cpu_seconds_total 7\ngo_cpu_classes_total_cpu_seconds_total 1.2e+01\n"
	got, err := spentOn(page)
	if want := (spent{5 * time.Second, 250 * time.Millisecond}); got != want || err != nil {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if share, none := got.share(), (spent{}).share(); math.Abs(share-0.05) > 1e-9 || none != 0 {
		t.Errorf("a share of %v, and of %v without time", share, none)
	}
	if _, err := spentOn("\ngo_cpu_classes_idle_cpu_seconds_total 7\n"); err == nil {
		t.Error("no error where there is no metric")
	}
}

func TestReplace(t *testing.T) {
	for _, test := range []struct{ page, want string }{
		{"a\n<!-- x: begin; by hand: no -->\nold\n<!-- x: end -->\nb\n", "a\n<!-- x: begin; by hand: no -->\n\nnew\n\n<!-- x: end -->\nb\n"},
		{"<!-- x: begin -->\n<!-- x: end -->", "<!-- x: begin -->\n\nnew\n\n<!-- x: end -->"},
		{"<!-- x: begin -->\n", ""},
		{"<!-- x: end -->\n<!-- x: begin -->\n", ""},
		{"<!-- xy: begin -->\n<!-- xy: end -->\n", ""},
	} {
		got, err := replace([]byte(test.page), "x", "new\n")
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q becomes %q, %v; want %q", test.page, got, err, test.want)
		}
	}
}

func TestChosen(t *testing.T) {
	o := Options{Only: []string{"udp", knot, floor}}
	if got := o.chosen(Servers); !slices.Equal(got, []string{floor, knot}) {
		t.Errorf("servers %v", got)
	}
	if got := o.chosen(Questions()); !slices.Equal(got, Questions()) {
		t.Errorf("questions %v", got)
	}
	if got := o.chosen(Transports); !slices.Equal(got, []string{"udp"}) {
		t.Errorf("transports %v", got)
	}
}
