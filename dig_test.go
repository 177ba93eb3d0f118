package epdns_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// This file reads answers through dig and nslookup, which read packets with code
// that has nothing in common with ours.

// tool finds a program that the tests need.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("the tests need %s: apt-get install bind9-dnsutils", name)
	}
	return path
}

// dug is what dig says of a reply.
type dug struct {
	status   string
	flags    map[string]bool
	counts   [3]int // as in the header, the OPT counted in
	sections [3][]dns.RR
	edns     bool
	udp      int // size announced in the OPT
	ede      []uint16
}

// dig asks a question through dig.
func dig(t *testing.T, q question, port uint16) *dug {
	t.Helper()
	args := []string{fmt.Sprintf("@%v", q.to), "-p", strconv.Itoa(int(port)), "-q", q.name, "-t", typeText(q.qtype),
		"+noall", "+comments", "+answer", "+authority", "+additional", "+nosplit", "+ignore"}
	if q.from.IsValid() {
		args = append(args, "-b", q.from.String())
	}
	if q.tcp {
		args = append(args, "+tcp")
	} else {
		args = append(args, "+notcp") // whatever the type
	}
	if q.noedns {
		args = append(args, "+noedns")
	} else {
		args = append(args, "+nocookie", "+noednsnegotiation", fmt.Sprintf("+edns=%d", q.version), fmt.Sprintf("+bufsize=%d", q.bufsize))
		for _, o := range q.options {
			args = append(args, "+ednsopt="+strings.TrimSuffix(o.String(), ":"))
		}
	}
	d, err := readDig(runDig(t, args...))
	if err != nil {
		t.Fatalf("dig for %v: %v", q, err)
	}
	return d
}

// runDig runs dig, once and without a configuration of its own.
func runDig(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tool(t, "dig"), append([]string{"-r", "+tries=1", "+time=5"}, args...)...)
	cmd.Env = environment("LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("dig %s: %v\n%s", strings.Join(args, " "), err, &out)
	}
	return out.String()
}

var (
	digHeader = regexp.MustCompile(`^;; ->>HEADER<<- opcode: QUERY, status: (\w+), id: \d+$`)
	digFlags  = regexp.MustCompile(`^;; flags:((?: \w+)*); QUERY: \d+, ANSWER: (\d+), AUTHORITY: (\d+), ADDITIONAL: (\d+)$`)
	digEDNS   = regexp.MustCompile(`^; EDNS: version: 0, flags:[ \w]*; udp: (\d+)$`)
	digEDE    = regexp.MustCompile(`^; EDE: (\d+)\b`)
)

// readDig reads what dig prints of a reply with +comments and the sections.
func readDig(out string) (*dug, error) {
	d := &dug{flags: map[string]bool{}}
	section := -1
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		var m []string
		is := func(re *regexp.Regexp) bool { m = re.FindStringSubmatch(line); return m != nil }
		switch {
		case line == ";; ANSWER SECTION:":
			section = answers
		case line == ";; AUTHORITY SECTION:":
			section = authorities
		case line == ";; ADDITIONAL SECTION:":
			section = additionals
		case is(digHeader):
			d.status = m[1]
		case is(digFlags):
			for _, f := range strings.Fields(m[1]) {
				d.flags[f] = true
			}
			for i := range d.counts {
				d.counts[i], _ = strconv.Atoi(m[2+i])
			}
		case is(digEDNS):
			d.edns = true
			d.udp, _ = strconv.Atoi(m[1])
		case is(digEDE):
			code, _ := strconv.Atoi(m[1])
			d.ede = append(d.ede, uint16(code))
		case strings.Contains(line, "malformed") || strings.Contains(line, "bad packet") ||
			strings.Contains(line, "unexpected source") || strings.Contains(line, "mismatch"):
			return nil, fmt.Errorf("it complains: %s", line)
		case line != "" && line[0] != ';':
			rr, err := dns.NewRR(line)
			if err != nil || section < 0 {
				return nil, errors.Join(fmt.Errorf("unexpected line %q", line), err)
			}
			d.sections[section] = append(d.sections[section], rr)
		}
	}
	if d.status == "" {
		return nil, fmt.Errorf("no header in %q", out)
	}
	return d, nil
}

// agrees says where what dig read differs from a reply to the same question. Of
// two replies in which not all had room, each may hold other records: those that
// are ranked are left out from the end.
func (d *dug) agrees(r *reply) error {
	var faults []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("dig has "+format, args...))
		}
	}
	must(d.status == rcodeName(r.rcode), "status %s, expected %s", d.status, rcodeName(r.rcode))
	for f, set := range r.flags() {
		must(d.flags[f] == set, "flag %s: %t", f, d.flags[f])
	}
	must(d.edns == (r.opt != nil), "an OPT: %t", d.edns)
	if r.opt != nil {
		must(d.udp == int(r.opt.UDPSize()), "UDP size %d, expected %d", d.udp, r.opt.UDPSize())
	}
	must(slices.Equal(d.ede, r.ede()), "extended errors %d, expected %d", d.ede, r.ede())
	for s, rrs := range d.sections {
		got := d.counts[s]
		if s == additionals && d.edns {
			got--
		}
		must(len(rrs) == got, "%d %s records, and %d in the header", len(rrs), sectionNames[s], got)
		if r.Truncated || s == additionals && !r.hasAllTargets() {
			continue
		}
		want, have := whole(r.sections[s]), whole(rrs)
		must(slices.Equal(want, have), "in the %s section %q, and lacks %q", sectionNames[s], without(have, want), without(want, have))
	}
	return errors.Join(faults...)
}

// hasAllTargets says whether every target of the answer has an address in the
// additional section.
func (r *reply) hasAllTargets() bool {
	has := map[string]bool{}
	for _, rr := range r.sections[additionals] {
		has[strings.ToLower(rr.Header().Name)] = true
	}
	for _, rr := range r.sections[answers] {
		if s, ok := rr.(*dns.SRV); ok && !has[strings.ToLower(s.Target)] {
			return false
		}
	}
	return true
}

// whole writes records in full, sorted. The serial may have moved between two
// replies, so it is left out.
func whole(rrs []dns.RR) (out []string) {
	for _, rr := range rrs {
		rr = dns.Copy(rr)
		if soa, ok := rr.(*dns.SOA); ok {
			soa.Serial = 0
		}
		out = append(out, strings.ToLower(strings.ReplaceAll(rr.String(), "\t", " ")))
	}
	slices.Sort(out)
	return out
}

// without is a less what is in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// rcodeName is the name of an RCODE as dig has it.
func rcodeName(rcode int) string {
	if rcode == dns.RcodeBadVers {
		return "BADVERS"
	}
	return dns.RcodeToString[rcode]
}

// looked is what nslookup says of a name.
type looked struct {
	status string   // NOERROR, also where there is no record
	names  []string // rdata of the records, sorted
}

var (
	nslookupFailure = regexp.MustCompile(`^\*\* server can't find \S+: (\w+)$`)
	nslookupNone    = regexp.MustCompile(`^\*\*\* Can't find \S+: No answer$`)
	nslookupAddress = regexp.MustCompile(`^Address: (\S+)$`)
	nslookupPointer = regexp.MustCompile(`^\S+\tname = (\S+)$`)
	nslookupService = regexp.MustCompile(`^\S+\tservice = (.+)$`)
)

// nslookup asks a question through nslookup.
func nslookup(t *testing.T, name string, qtype uint16, to netip.AddrPort) looked {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "nslookup"), "-port="+strconv.Itoa(int(to.Port())),
		"-retry=0", "-timeout=5", "-type="+typeText(qtype), name, to.Addr().String())
	cmd.Env = environment("LC_ALL=C")
	out, err := cmd.CombinedOutput()
	l := looked{status: "NOERROR"}
	_, body, found := strings.Cut(string(out), "\n\n") // behind the server's address
	if !found {
		t.Fatalf("nslookup %s: %v\n%s", name, err, out)
	}
	answered := false
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		var m []string
		is := func(re *regexp.Regexp) bool { m = re.FindStringSubmatch(line); return m != nil }
		switch {
		case is(nslookupFailure):
			l.status, answered = m[1], true
		case is(nslookupNone):
			answered = true
		case is(nslookupAddress), is(nslookupPointer), is(nslookupService):
			l.names, answered = append(l.names, strings.ToLower(m[1])), true
		case strings.Contains(line, "canonical name = "):
			answered = true
		}
	}
	if !answered {
		t.Fatalf("nslookup %s %s: %v\n%s", name, typeText(qtype), err, out)
	}
	slices.Sort(l.names)
	return l
}
