//go:build linux

package clients_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// This file keeps the table of docs/clients/README.md to what was seen: a test of a client ends
// with its row, and fails if the page has another. UPDATE=1 in the environment writes the page.

// Row is what a client was seen to do. Its texts are made of observations, never of what ought
// to be: one that a test cannot come to otherwise says nothing.
type Row struct {
	Client string // as the page calls it, such as "Node `dns.lookup`"; unique
	Page   string // its page in docs/clients, without .md

	Search string // whether it goes by the search list of resolv.conf
	Order  string // of addresses, beside that of the reply: see orderOf
	TTL    string // how long it keeps an answer
	SRV    string // what it makes of priorities and weights
	Empty  string // what becomes of NODATA: the Service exists, nobody is ready
	Gone   string // and of NXDOMAIN: the Service is deleted
	Failed string // and of SERVFAIL: epdns has not read the cluster
	Many   string // and of 200 addresses, which are cut over UDP (TC)
}

const (
	tablePage   = "../../docs/clients/README.md"
	tableHeader = "| client | search list | order | TTL | SRV | nobody ready | no such Service | SERVFAIL | 200 addresses |\n|---|---|---|---|---|---|---|---|---|\n"
	none        = "–" // in a cell: it has nothing of the kind
)

func (r Row) cells() []string {
	return []string{fmt.Sprintf("[%s](%s.md)", r.Client, r.Page), r.Search, r.Order, r.TTL, r.SRV, r.Empty, r.Gone, r.Failed, r.Many}
}

func (r Row) String() string { return "| " + strings.Join(r.cells(), " | ") + " |\n" }

// observed says what a client was seen to do. It fails unless the page says the same.
func observed(t *testing.T, r Row) {
	t.Helper()
	if slices.ContainsFunc(r.cells(), func(c string) bool { return c == "" || strings.ContainsAny(c, "|\n") }) {
		t.Errorf("a cell of this row is empty, or none: %s", r)
		return
	}
	if t.Failed() {
		return // then what was seen may be no observation
	}
	if err := os.WriteFile(seenFile(r.Client), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := inTable(r, os.Getenv("UPDATE") != ""); err != nil {
		t.Error(err)
	}
}

// inTable returns an error unless the row is in the page, or puts it there.
func inTable(r Row, update bool) error {
	f, err := os.OpenFile(tablePage, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// Other tests may be at it, in processes of their own.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", tablePage, err)
	}
	page, err := os.ReadFile(tablePage)
	if err != nil {
		return err
	}
	before, rows, after, err := cutTable(string(page))
	if err != nil {
		return err
	}
	at := slices.IndexFunc(rows, func(line string) bool { return clientOf(line) == r.Client })
	if at >= 0 && rows[at] == r.String() {
		return nil
	}
	if !update {
		return fmt.Errorf("%s should have this row (UPDATE=1 writes it):\n%s", tablePage, r)
	}
	if at >= 0 {
		rows[at] = r.String()
	} else {
		rows = append(rows, r.String())
	}
	return os.WriteFile(tablePage, []byte(before+strings.Join(rows, "")+after), 0o644)
}

// cutTable returns the lines of the table's rows, and what stands around them.
func cutTable(page string) (before string, rows []string, after string, err error) {
	before, after, ok := strings.Cut(page, tableHeader)
	if !ok {
		return "", nil, "", fmt.Errorf("%s has no table that begins\n%s", tablePage, tableHeader)
	}
	for strings.HasPrefix(after, "|") {
		line, rest, _ := strings.Cut(after, "\n")
		rows, after = append(rows, line+"\n"), rest
	}
	return before + tableHeader, rows, after, nil
}

var firstCell = regexp.MustCompile(`^\| \[([^]]+)\]\(([^)]+)\.md\) \|`)

// clientOf is the client that a row of the page is about.
func clientOf(line string) string {
	if m := firstCell.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

// seenFile is there once the client's row has been observed by these tests.
func seenFile(client string) string {
	return filepath.Join(built, "seen-"+regexp.MustCompile(`\W+`).ReplaceAllString(client, "-"))
}

// allSeen returns an error if the page has rows that nothing has come to, after all tests have run.
func allSeen() error {
	for _, some := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(some).Value.String() != "" {
			return nil
		}
	}
	page, err := os.ReadFile(tablePage)
	if err != nil {
		return err
	}
	_, rows, _, err := cutTable(string(page))
	if err != nil {
		return err
	}
	for _, line := range rows {
		if _, err := os.Stat(seenFile(clientOf(line))); err != nil {
			return fmt.Errorf("%s has a row that no test has seen to be so:\n%s", tablePage, line)
		}
	}
	return nil
}

// Each row is of one client, and leads to its page.
func TestTable(t *testing.T) {
	page, err := os.ReadFile(tablePage)
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _, err := cutTable(string(page))
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]bool{}
	for _, line := range rows {
		m := firstCell.FindStringSubmatch(line)
		if m == nil || strings.Count(line, "|") != strings.Count(Row{}.String(), "|") {
			t.Errorf("not a row: %s", line)
			continue
		}
		if clients[m[1]] {
			t.Errorf("two rows are about %s", m[1])
		}
		clients[m[1]] = true
		if _, err := os.Stat(filepath.Join(filepath.Dir(tablePage), m[2]+".md")); err != nil {
			t.Error(err)
		}
	}
	if len(clients) == 0 {
		t.Error("the table is empty")
	}
}

// What orderOf says.
const (
	kept     = "kept"
	sorted   = "always the same"
	shuffled = "another"
)

// orderOf compares the order of addresses in several replies with that in which the client had
// them. The replies must differ from each other.
func orderOf(t *testing.T, sent, had [][]string) string {
	t.Helper()
	if len(sent) != len(had) || len(sent) < 3 {
		t.Fatalf("%d replies, %d results", len(sent), len(had))
	}
	same := func(lists [][]string) bool {
		return !slices.ContainsFunc(lists, func(l []string) bool { return !slices.Equal(l, lists[0]) })
	}
	keeps := true
	for i := range sent {
		if a, b := slices.Sorted(slices.Values(sent[i])), slices.Sorted(slices.Values(had[i])); !slices.Equal(a, b) {
			t.Fatalf("not what was sent: %q, but %q", had[i], sent[i])
		}
		keeps = keeps && slices.Equal(sent[i], had[i])
	}
	switch {
	case same(sent):
		t.Fatalf("all replies have one order: %q", sent)
	case keeps:
		return kept
	case same(had):
		return sorted
	}
	return shuffled
}

// cases are those of testdata/cases/client, by their directory, and the test of each.
var cases = map[string]func(*testing.T){
	"coredns-cache-min-ttl":     TestCoreDNS,
	"go-resolver-non-recursive": TestGoResolver,
	"grpc-go-side-lookups":      TestGRPC,
	"haproxy-server-template":   TestHAProxy,
	"musl-aaaa-nodata":          TestMuslBothFamilies,
	"musl-search-stops":         TestMuslSearch,
	"musl-truncated":            TestTruncated,
	"prometheus-empty-set":      TestPrometheus,
}

// Each case has a test, and a page of docs/clients that leads to it.
func TestCases(t *testing.T) {
	dirs, err := filepath.Glob("../../testdata/cases/client/*")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/clients/*.md")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if cases[name] == nil {
			t.Errorf("case %s has no test", name)
		}
		if !strings.Contains(text, "](../../testdata/cases/client/"+name+"/why.md)") {
			t.Errorf("no page of docs/clients leads to case %s", name)
		}
	}
	if len(dirs) != len(cases) {
		t.Errorf("%d cases, %d tests of them", len(dirs), len(cases))
	}
}
