package epdns_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The cases of testdata/cases/dns are faults of other name servers, each with a
// cluster that brings it out. testdata/cases/README.md describes their form, of
// which this file is the reader, with rankcases_test.go for what the cases of
// testdata/cases/rank say besides.

// caseZones are the zones of a case without a configuration file.
var caseZones = []string{"--zone", zone, "--reverse", "10.0.0.0/8", "--reverse", "192.0.2.0/24", "--reverse", "2001:db8::/32"}

func TestCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/cases/dns/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			path, expectations := readCase(t, dir)
			p := serve(t, append([]string{"--manifests", filepath.Join(dir, "cluster.yaml"), "--listen", ":0"}, caseZones...)...)
			for _, e := range expectations {
				if r := e.run(t, path, p); r != nil {
					if err := dig(t, e.question, p.dns.Port()).agrees(r); err != nil {
						t.Errorf("%s:%d: %s: %v", path, e.line, e.text, err)
					}
				}
			}
		})
	}
}

// readCase reads what is expected of a case, and the name of the file that says it.
func readCase(t *testing.T, dir string) (path string, expectations []*expectation) {
	t.Helper()
	if why := readFile(t, filepath.Join(dir, "why.md")); !strings.HasPrefix(why, "# ") {
		t.Error("why.md has no title")
	}
	path = filepath.Join(dir, "expect.txt")
	expectations, err := parseExpect(readFile(t, path))
	if err != nil {
		t.Fatalf("%s:%v", path, err)
	}
	return path, expectations
}

// run asks as often as is said and checks. It returns the last reply, or nil.
func (e *expectation) run(t *testing.T, path string, p *program) *reply {
	t.Helper()
	var replies []*reply
	for range e.repeat {
		r, err := e.send(p.dns.Port())
		if err != nil {
			t.Errorf("%s:%d: %s: %v", path, e.line, e.text, err)
		}
		if ended := p.running(); ended != nil {
			t.Fatalf("%s:%d: %s: %v", path, e.line, e.text, ended)
		}
		if r == nil {
			return nil
		}
		replies = append(replies, r)
		if err != nil {
			break // it would be the same again and again
		}
	}
	for _, fault := range e.judge(replies) {
		t.Errorf("%s:%v", path, fault)
	}
	return replies[len(replies)-1]
}

// judge holds replies to the checks, and keeps what is to be kept. Each fault begins
// with the number of a line.
func (e *expectation) judge(replies []*reply) (faults []error) {
	for _, c := range e.checks {
		var wrong []error
		for i, r := range replies {
			if err := c.holds(&e.question, r); err != nil {
				wrong = append(wrong, fmt.Errorf("%d: %s: %s: reply %d of %d: %w", c.line, e.text, c.text, i+1, len(replies), err))
			}
		}
		if len(wrong) > 0 && (!c.some || len(wrong) == len(replies)) {
			faults = append(faults, wrong[0])
		}
	}
	for _, name := range e.keep {
		e.kept[name] = data(replies[len(replies)-1])
	}
	return faults
}

// expectation is a QUERY with its checks.
type expectation struct {
	question
	line   int
	text   string
	repeat int // how often it is asked, each time from another port
	checks []check
	keep   []string // names under which the last reply is kept
	kept   memory
}

// check is something that must hold of a reply.
type check struct {
	line  int
	text  string
	some  bool // of one reply at least, not of each
	holds holds
}

// holds returns what keeps it from holding.
type holds func(q *question, r *reply) error

// parseExpect reads a whole expect.txt. Whatever it does not know is an error,
// which begins with the number of the line.
func parseExpect(text string) (all []*expectation, err error) {
	number := 0
	kept := memory{}
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case trimmed == "" || trimmed[0] == '#':
			continue
		case !indented:
			e, err := parseQuery(strings.Fields(trimmed))
			if err != nil {
				return nil, fmt.Errorf("%d: %w", number, err)
			}
			e.line, e.text, e.kept = number, trimmed, kept
			all = append(all, e)
		case len(all) == 0:
			return nil, fmt.Errorf("%d: a check before the first QUERY", number)
		default:
			if err := all[len(all)-1].add(number, trimmed); err != nil {
				return nil, fmt.Errorf("%d: %w", number, err)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("0: no QUERY")
	}
	for _, e := range all {
		if len(e.checks) == 0 {
			return nil, fmt.Errorf("%d: a QUERY without checks", e.line)
		}
	}
	return all, nil
}

func parseQuery(words []string) (*expectation, error) {
	if words[0] != "QUERY" {
		return nil, fmt.Errorf("%q where a QUERY or an indented check belongs", words[0])
	}
	if len(words) < 3 {
		return nil, errors.New("QUERY needs a name and a type")
	}
	name := words[1]
	if _, ok := dns.IsDomainName(name); !ok || !dns.IsFqdn(name) {
		return nil, fmt.Errorf("%q is no absolute name", name)
	}
	qtype, ok := dns.StringToType[words[2]]
	if number, unknown := strings.CutPrefix(words[2], "TYPE"); !ok && unknown {
		n, err := strconv.ParseUint(number, 10, 16)
		qtype, ok = uint16(n), err == nil
	}
	if !ok {
		return nil, fmt.Errorf("%q is no type", words[2])
	}
	e := &expectation{question: ask(name, qtype), repeat: 1}
	for _, word := range words[3:] {
		option, value, _ := strings.Cut(word, "=")
		set, ok := queryOptions[option]
		if !ok {
			return nil, fmt.Errorf("unknown option %q", option)
		}
		if err := set(e, value); err != nil {
			return nil, fmt.Errorf("option %q: %w", word, err)
		}
	}
	return e, nil
}

// queryOptions are the options of a QUERY.
var queryOptions = map[string]func(e *expectation, value string) error{
	"tcp":    func(e *expectation, value string) error { e.tcp = true; return noValue(value) },
	"noedns": func(e *expectation, value string) error { e.noedns = true; return noValue(value) },
	"bufsize": func(e *expectation, value string) (err error) {
		n, err := strconv.ParseUint(value, 10, 16)
		e.bufsize = uint16(n)
		return err
	},
	"edns-version": func(e *expectation, value string) (err error) {
		n, err := strconv.ParseUint(value, 10, 8)
		e.version = uint8(n)
		return err
	},
	"opt": func(e *expectation, value string) error {
		code, text, ok := strings.Cut(value, ":")
		if !ok {
			return errors.New("CODE:HEX is expected")
		}
		n, err := strconv.ParseUint(code, 10, 16)
		if err != nil {
			return err
		}
		data, err := hex.DecodeString(text)
		e.options = append(e.options, option{uint16(n), data})
		return err
	},
	"ecs": func(e *expectation, value string) error {
		p, err := netip.ParsePrefix(value)
		e.options = append(e.options, clientSubnet(p.Masked()))
		return err
	},
	"repeat": func(e *expectation, value string) (err error) {
		e.repeat, err = number(value, 1, 100)
		return err
	},
	"from": func(e *expectation, value string) (err error) { e.from, err = netip.ParseAddr(value); return err },
	"to":   func(e *expectation, value string) (err error) { e.to, err = netip.ParseAddr(value); return err },
}

func noValue(value string) error {
	if value != "" {
		return errors.New("it takes no value")
	}
	return nil
}

// clientSubnet is an EDNS Client Subnet option (RFC 7871 section 6), with as many
// octets of the address as the prefix has.
func clientSubnet(p netip.Prefix) option {
	family := byte(1)
	if p.Addr().Is6() {
		family = 2
	}
	octets := p.Addr().AsSlice()[:(p.Bits()+7)/8]
	return option{dns.EDNS0SUBNET, append([]byte{0, family, byte(p.Bits()), 0}, octets...)}
}

// add adds a check. Those that say together what a set is are one.
func (e *expectation) add(line int, text string) error {
	if one, some := strings.CutPrefix(text, "some "); some {
		return e.addSome(line, one)
	}
	name, arg, _ := strings.Cut(text, ":")
	if rcode, ok := strings.CutPrefix(text, "rcode="); ok {
		name, arg = "rcode", rcode
	}
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return fmt.Errorf("check %q says nothing", text)
	}
	if name == "keep" {
		return e.addKeep(arg)
	}
	if together := setChecks[name]; together != nil {
		var members []string
		for _, c := range e.checks {
			if n, member, _ := strings.Cut(c.text, ": "); n == name {
				members = append(members, member)
			}
		}
		// All but the last see a part of the set and hold whatever the reply.
		for i, c := range e.checks {
			if strings.HasPrefix(c.text, name+": ") {
				e.checks[i].holds = func(*question, *reply) error { return nil }
			}
		}
		e.checks = append(e.checks, check{line: line, text: name + ": " + arg, holds: together(append(members, arg))})
		return nil
	}
	h, err := holds(nil), error(nil)
	if parse, ok := checks[name]; ok {
		h, err = parse(arg)
	} else if parse, ok := keptChecks[name]; ok {
		h, err = parse(e.kept, arg)
	} else {
		return fmt.Errorf("unknown check %q", name)
	}
	if err != nil {
		return fmt.Errorf("check %q: %w", text, err)
	}
	e.checks = append(e.checks, check{line: line, text: text, holds: h})
	return nil
}

// setChecks are the checks whose lines are one check.
var setChecks = map[string]func(members []string) holds{
	"answer-set": func(members []string) holds {
		return func(_ *question, r *reply) error { return sameSet(members, r.asked()) }
	},
	"answer-first":     answerFirst,
	"answer-subset-of": answerSubsetOf,
}

func answerFirst(members []string) holds {
	return func(_ *question, r *reply) error {
		return sameSet(members, r.sections[answers][:min(len(members), len(r.sections[answers]))])
	}
}

// checks are all the others, but for keptChecks.
var checks = map[string]func(arg string) (holds, error){
	"rcode":            rcodeIs,
	"answer-has":       answerHas,
	"!answer-has":      not(answerHas),
	"answer-count":     answerCount,
	"!answer-count":    not(answerCount),
	"answer-all":       answerAll,
	"answer-ttl":       answerTTL,
	"answer-tiers":     answerTiers,
	"srv-tiers":        srvTiers,
	"additional-has":   additionalHas,
	"additional-count": additionalCount,
	"authority":        authorityIs,
	"neg-ttl":          negativeTTL,
	"flags":            flagsAre(true),
	"!flags":           flagsAre(false),
	"max-size":         maxSize,
	"question-echo":    questionEcho,
	"opt":              optIs,
	"opt-has":          optHas,
	"!opt-has":         not(optHas),
	"!opt-echo":        noOptEcho,
	"ecs":              ecsIs,
	"ecs-scope":        ecsScope,
	"srv-compression":  srvCompression,
}

// not is the check that holds where another does not.
func not(parse func(string) (holds, error)) func(string) (holds, error) {
	return func(arg string) (holds, error) {
		h, err := parse(arg)
		return func(q *question, r *reply) error {
			if h(q, r) == nil {
				return fmt.Errorf("it is so: answer %v, OPT %v", r.sections[answers], r.opt)
			}
			return nil
		}, err
	}
}

// caseRCODEs are the RCODEs that a case may name.
var caseRCODEs = map[string]int{"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5, "BADVERS": 16}

func rcodeIs(arg string) (holds, error) {
	var allowed []int
	for name := range strings.SplitSeq(arg, "|") {
		n, ok := caseRCODEs[name]
		if !ok {
			return nil, fmt.Errorf("%q is no rcode", name)
		}
		allowed = append(allowed, n)
	}
	return func(_ *question, r *reply) error {
		if !slices.Contains(allowed, r.rcode) {
			return fmt.Errorf("it is %s", rcodeName(r.rcode))
		}
		return nil
	}, nil
}

func answerHas(pattern string) (holds, error) {
	return func(_ *question, r *reply) error {
		if !slices.ContainsFunc(r.asked(), func(rr dns.RR) bool { return matches(pattern, rr) }) {
			return fmt.Errorf("the answer is %v", r.sections[answers])
		}
		return nil
	}, nil
}

func answerCount(arg string) (holds, error) {
	allowed, err := readSpan(arg)
	return func(_ *question, r *reply) error {
		if got := len(r.sections[answers]); !allowed.has(got) {
			return fmt.Errorf("there are %d: %v", got, r.sections[answers])
		}
		return nil
	}, err
}

func answerAll(arg string) (holds, error) {
	if len(arg) < 2 || arg[0] != '/' || arg[len(arg)-1] != '/' {
		return nil, errors.New("an expression between slashes is expected")
	}
	re, err := regexp.Compile(arg[1 : len(arg)-1])
	return func(_ *question, r *reply) error {
		for _, rr := range r.sections[answers] {
			if !re.MatchString(rdata(rr)) {
				return fmt.Errorf("not %q", rdata(rr))
			}
		}
		return nil
	}, err
}

func answerTTL(arg string) (holds, error) {
	allowed, err := readSpan(arg)
	return func(_ *question, r *reply) error {
		for _, rr := range r.sections[answers] {
			if !allowed.has(int(rr.Header().Ttl)) {
				return fmt.Errorf("%v", rr)
			}
		}
		return nil
	}, err
}

func additionalHas(arg string) (holds, error) {
	words := strings.Fields(arg)
	if len(words) < 3 || dns.StringToType[words[1]] == 0 {
		return nil, errors.New("NAME TYPE RDATA is expected")
	}
	return func(_ *question, r *reply) error {
		if !slices.ContainsFunc(r.sections[additionals], func(rr dns.RR) bool {
			return strings.EqualFold(rr.Header().Name, words[0]) && rr.Header().Rrtype == dns.StringToType[words[1]] &&
				matches(strings.Join(words[2:], " "), rr)
		}) {
			return fmt.Errorf("there is %v", r.sections[additionals])
		}
		return nil
	}, nil
}

func additionalCount(arg string) (holds, error) {
	n, err := strconv.Atoi(arg)
	return func(_ *question, r *reply) error {
		if got := len(r.sections[additionals]); got != n {
			return fmt.Errorf("there are %d: %v", got, r.sections[additionals])
		}
		return nil
	}, err
}

func authorityIs(arg string) (holds, error) {
	owner, isSOA := strings.CutPrefix(arg, "SOA ")
	if arg != "none" && !isSOA {
		return nil, errors.New("SOA NAME or none is expected")
	}
	return func(_ *question, r *reply) error {
		rrs := r.sections[authorities]
		if arg == "none" && len(rrs) == 0 ||
			isSOA && len(rrs) == 1 && rrs[0].Header().Rrtype == dns.TypeSOA && strings.EqualFold(rrs[0].Header().Name, owner) {
			return nil
		}
		return fmt.Errorf("there is %v", rrs)
	}, nil
}

// negativeTTL is about what a cache makes of TTL and MINIMUM (RFC 2308 section 5).
// Where only an upper bound is given, the TTL must say it without the help of MINIMUM.
func negativeTTL(arg string) (holds, error) {
	allowed, err := readSpan(arg)
	return func(_ *question, r *reply) error {
		var soas []*dns.SOA
		for _, rr := range r.sections[authorities] {
			if soa, ok := rr.(*dns.SOA); ok {
				soas = append(soas, soa)
			}
		}
		if len(soas) != 1 {
			return fmt.Errorf("there are %d SOA records", len(soas))
		}
		ttl, minimum := soas[0].Hdr.Ttl, soas[0].Minttl
		if !allowed.has(int(min(ttl, minimum))) || strings.HasPrefix(arg, "<=") && ttl > minimum {
			return fmt.Errorf("TTL is %d, MINIMUM %d", ttl, minimum)
		}
		return nil
	}, err
}

func flagsAre(set bool) func(string) (holds, error) {
	return func(arg string) (holds, error) {
		names := strings.Split(arg, ",")
		for _, name := range names {
			if _, ok := (&reply{}).flags()[name]; !ok || name == "qr" {
				return nil, fmt.Errorf("%q is no flag", name)
			}
		}
		return func(_ *question, r *reply) error {
			for _, name := range names {
				if r.flags()[name] != set {
					return fmt.Errorf("%s is %t", name, !set)
				}
			}
			return nil
		}, nil
	}
}

func maxSize(arg string) (holds, error) {
	n, err := strconv.Atoi(arg)
	return func(_ *question, r *reply) error {
		if len(r.wire) > n {
			return fmt.Errorf("there are %d octets", len(r.wire))
		}
		return nil
	}, err
}

func questionEcho(arg string) (holds, error) {
	if arg != "exact" {
		return nil, errors.New("exact is expected")
	}
	return func(q *question, r *reply) error {
		name := make([]byte, 256)
		end, err := dns.PackDomainName(q.name, name, 0, nil, false)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(r.wire[12:], name[:end]) {
			return fmt.Errorf("it is %q", r.question.Name)
		}
		return nil
	}, nil
}

func optIs(arg string) (holds, error) {
	if arg != "none" && arg != "present" {
		return nil, errors.New("none or present is expected")
	}
	return func(_ *question, r *reply) error {
		if (r.opt != nil) != (arg == "present") {
			return fmt.Errorf("it is %v", r.opt)
		}
		return nil
	}, nil
}

func optHas(arg string) (holds, error) {
	code, err := strconv.ParseUint(arg, 10, 16)
	return func(_ *question, r *reply) error {
		if _, ok := r.option(uint16(code)); !ok {
			return fmt.Errorf("the OPT is %v", r.opt)
		}
		return nil
	}, err
}

func noOptEcho(arg string) (holds, error) {
	code, err := strconv.ParseUint(arg, 10, 16)
	return func(q *question, r *reply) error {
		data, ok := r.option(uint16(code))
		for _, o := range q.options {
			if ok && o.code == uint16(code) && bytes.Equal(o.data, data) {
				return fmt.Errorf("it came back: %x", data)
			}
		}
		return nil
	}, err
}

// ecsIs holds an ECS option to RFC 7871 section 7.2.1.
func ecsIs(arg string) (holds, error) {
	if arg != "none-or-valid" {
		return nil, errors.New("none-or-valid is expected")
	}
	return func(q *question, r *reply) error {
		got, ok := r.option(dns.EDNS0SUBNET)
		if !ok {
			return nil
		}
		scope, err := subnetScope(q, got)
		most := 32
		switch {
		case err != nil:
			return err
		case got[2] == 0:
			most = 0
		case got[1] == 2:
			most = 128
		}
		if scope > most {
			return fmt.Errorf("the scope of %x is longer than %d", got, most)
		}
		return nil
	}, nil
}

// srvCompression: RFC 2782 forbids to compress the target, and has no other names.
func srvCompression(arg string) (holds, error) {
	if arg != "none" {
		return nil, errors.New("none is expected")
	}
	return func(_ *question, r *reply) error {
		for _, data := range r.srv {
			at := 6
			for at < len(data) && data[at] != 0 && data[at] < 0xc0 {
				at += 1 + int(data[at])
			}
			if at != len(data)-1 {
				return fmt.Errorf("a pointer in %x", data)
			}
		}
		return nil
	}, nil
}
