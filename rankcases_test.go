package epdns_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The cases of testdata/cases/rank are about who gets which answer, in which order.
// So a question comes from the address that the case says, in a network namespace of
// the case. Their form is that of testdata/cases/dns with the checks below.

func TestRankCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/cases/rank/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			path, expectations := readCase(t, dir)
			if !isolated(t, askers(expectations)) {
				return
			}
			args := []string{"--manifests", filepath.Join(dir, "cluster.yaml"), "--listen", ":0"}
			if config := filepath.Join(dir, "config.yaml"); exists(config) {
				args = append(args, "--config", config)
			} else {
				args = append(args, caseZones...)
			}
			p := serve(t, args...)
			for _, e := range expectations {
				e.run(t, path, p)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// askers are the addresses that questions come from, each once.
func askers(expectations []*expectation) (all []netip.Addr) {
	for _, e := range expectations {
		if e.from.IsValid() && !slices.Contains(all, e.from) {
			all = append(all, e.from)
		}
	}
	return all
}

// memory are the answers that a file keeps, each as the data of its records. A name
// is known from the line on that keeps it, and has an answer once that has come.
type memory map[string][]string

// data are the records of the answer that were asked for, in their order.
func data(r *reply) (out []string) {
	for _, rr := range r.asked() {
		out = append(out, rdata(rr))
	}
	return out
}

func (e *expectation) addKeep(name string) error {
	if e.kept == nil || len(strings.Fields(name)) != 1 {
		return fmt.Errorf("keep: %q: one word is expected, in a file of questions", name)
	}
	e.kept[name] = nil
	e.keep = append(e.keep, name)
	return nil
}

// addSome adds a check that one reply of all must pass.
func (e *expectation) addSome(line int, text string) error {
	name, _, _ := strings.Cut(text, ":")
	if name == "keep" || strings.HasPrefix(name, "some ") || setChecks[name] != nil && name != "answer-first" {
		return fmt.Errorf("check %q: %s is nothing that holds of some replies", "some "+text, name)
	}
	alone := expectation{kept: e.kept}
	if err := alone.add(line, text); err != nil {
		return err
	}
	e.checks = append(e.checks, check{line: line, text: "some " + text, some: true, holds: alone.checks[0].holds})
	return nil
}

// keptChecks are the checks that hold an answer to one that was kept.
var keptChecks = map[string]func(kept memory, arg string) (holds, error){
	"same": same,
	"!same": func(kept memory, arg string) (holds, error) {
		return not(func(arg string) (holds, error) { return same(kept, arg) })(arg)
	},
	"shares": shares,
}

// likeness says in which way an answer is the same as another.
var likeness = map[string]func(got, want []string) bool{
	"set": func(got, want []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
	},
	"order": slices.Equal[[]string],
	"cycle": func(got, want []string) bool {
		for i := range want {
			if slices.Equal(got, slices.Concat(want[i:], want[:i])) {
				return true
			}
		}
		return len(got)+len(want) == 0
	},
}

func same(kept memory, arg string) (holds, error) {
	how, name, _ := strings.Cut(arg, " ")
	like := likeness[how]
	if like == nil {
		return nil, errors.New("set, order or cycle and a NAME are expected")
	}
	if _, ok := kept[name]; !ok {
		return nil, fmt.Errorf("nothing is kept as %q", name)
	}
	return func(_ *question, r *reply) error {
		if got, want := data(r), kept[name]; !like(got, want) {
			return fmt.Errorf("the answer is %q, and was %q", got, want)
		}
		return nil
	}, nil
}

func shares(kept memory, arg string) (holds, error) {
	count, name, _ := strings.Cut(arg, " ")
	least, err := number(count, 1, dns.MaxMsgSize)
	if _, ok := kept[name]; !ok && err == nil {
		err = fmt.Errorf("nothing is kept as %q", name)
	}
	return func(_ *question, r *reply) error {
		n := 0
		for _, d := range data(r) {
			if slices.Contains(kept[name], d) {
				n++
			}
		}
		if n < least {
			return fmt.Errorf("they share %d: the answer is %q, and was %q", n, data(r), kept[name])
		}
		return nil
	}, err
}

// number reads a decimal number that may have these bounds and all between.
func number(text string, least, most int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || int(n) < least || int(n) > most {
		return 0, fmt.Errorf("%q is no number from %d to %d", text, least, most)
	}
	return int(n), nil
}

// answerSubsetOf is a set check: its members come from several lines.
func answerSubsetOf(members []string) holds {
	return func(_ *question, r *reply) error {
		for _, rr := range r.asked() {
			if !slices.ContainsFunc(members, func(m string) bool { return matches(m, rr) }) {
				return fmt.Errorf("%q is not among %q", rdata(rr), members)
			}
		}
		return nil
	}
}

// readTiers reads groups parted by "|" whose members are parted by commas.
func readTiers(arg string) (tiers [][]string, err error) {
	var all []string
	for group := range strings.SplitSeq(arg, "|") {
		var tier []string
		for member := range strings.SplitSeq(group, ",") {
			member = strings.TrimSpace(member)
			if member == "" || slices.Contains(all, member) {
				return nil, fmt.Errorf("%q: a tier is empty, or something stands in it twice", arg)
			}
			tier, all = append(tier, member), append(all, member)
		}
		tiers = append(tiers, tier)
	}
	return tiers, nil
}

func answerTiers(arg string) (holds, error) {
	tiers, err := readTiers(arg)
	return func(_ *question, r *reply) error {
		rest := r.asked()
		for i, tier := range tiers {
			n := min(len(tier), len(rest))
			if err := sameSet(tier, rest[:n]); err != nil {
				return fmt.Errorf("tier %d of %q: %w", i+1, data(r), err)
			}
			rest = rest[n:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("%d more than expected: %q", len(rest), data(r))
		}
		return nil
	}, err
}

// srvTiers holds the priorities of SRV records to RFC 2782: lower ones are tried
// first.
func srvTiers(arg string) (holds, error) {
	tiers, err := readTiers(strings.ToLower(arg))
	for _, target := range slices.Concat(tiers...) {
		if !dns.IsFqdn(target) {
			err = fmt.Errorf("%q is no absolute name", target)
		}
	}
	return func(_ *question, r *reply) error {
		priorities := map[string]int{} // of each target that is not yet expected
		for _, rr := range r.asked() {
			srv, ok := rr.(*dns.SRV)
			if !ok {
				return fmt.Errorf("%v is no SRV record", rr)
			}
			target := strings.ToLower(srv.Target)
			if p, known := priorities[target]; known && p != int(srv.Priority) {
				return fmt.Errorf("%s has two priorities: %q", target, data(r))
			}
			priorities[target] = int(srv.Priority)
		}
		before := -1 // priority of the tier before
		for i, tier := range tiers {
			of := -1 // priority of this one
			for _, target := range tier {
				p, ok := priorities[target]
				switch {
				case !ok:
					return fmt.Errorf("%s is missing: %q", target, data(r))
				case of >= 0 && p != of:
					return fmt.Errorf("tier %d has two priorities: %q", i+1, data(r))
				case p <= before:
					return fmt.Errorf("tier %d is not behind the one before: %q", i+1, data(r))
				}
				of = p
				delete(priorities, target)
			}
			before = of
		}
		if len(priorities) > 0 {
			return fmt.Errorf("not expected: %v", priorities)
		}
		return nil
	}, err
}

// subnetScope is the scope of a Client Subnet option, which must otherwise be what
// the query had (RFC 7871 section 7.2.1).
func subnetScope(q *question, got []byte) (int, error) {
	for _, o := range q.options {
		if o.code == dns.EDNS0SUBNET && len(o.data) == len(got) && len(got) >= 4 &&
			bytes.Equal(got[:3], o.data[:3]) && bytes.Equal(got[4:], o.data[4:]) {
			return int(got[3]), nil
		}
	}
	return 0, fmt.Errorf("the option is %x, and not that of the query", got)
}

func ecsScope(arg string) (holds, error) {
	none := false
	var allowed []span
	for choice := range strings.SplitSeq(arg, "|") {
		if choice == "none" {
			none = true
			continue
		}
		s, err := readSpan(choice)
		if err != nil {
			return nil, err
		}
		allowed = append(allowed, s)
	}
	return func(q *question, r *reply) error {
		got, ok := r.option(dns.EDNS0SUBNET)
		if !ok {
			if !none {
				return errors.New("there is no option")
			}
			return nil
		}
		scope, err := subnetScope(q, got)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(allowed, func(s span) bool { return s.has(scope) }) {
			return fmt.Errorf("it is %d", scope)
		}
		return nil
	}, nil
}
