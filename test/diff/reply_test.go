//go:build linux

package diff_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// This file reads replies and says where two of them differ.

// reply is one, with everything in an order and a spelling that can be compared.
type reply struct {
	*dns.Msg
	size                          int
	answer, authority, additional []string // sorted; additional without OPT
}

// parse reads a reply and checks what is due to any question.
func parse(q question, wire []byte) (*reply, error) {
	r := &reply{Msg: new(dns.Msg), size: len(wire)}
	if err := r.Unpack(wire); err != nil {
		return nil, fmt.Errorf("read its reply: %w", err)
	}
	if !r.Response || len(r.Question) != 1 || r.Question[0] != (dns.Question{Name: q.name, Qtype: q.qtype, Qclass: dns.ClassINET}) {
		return nil, fmt.Errorf("no reply to this question: %v", r.Msg)
	}
	opt := r.IsEdns0()
	if asked := q.way == edns || q.way == do; asked != (opt != nil) || asked && opt.Do() != (q.way == do) {
		return nil, fmt.Errorf("OPT in its reply: %v", opt)
	}
	if r.size > q.way.limit() {
		return nil, fmt.Errorf("its reply has %d octets, the asker takes %d", r.size, q.way.limit())
	}
	r.answer, r.authority, r.additional = texts(r.Answer), texts(r.Ns), texts(r.Extra)
	return r, nil
}

// text is a record in one spelling.
func text(rr dns.RR) string { return strings.ToLower(rr.String()) }

// texts are those of all records but OPT, sorted.
func texts(rrs []dns.RR) (out []string) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, text(rr))
		}
	}
	slices.Sort(out)
	return out
}

// last is the name at the end of the aliases in the answer.
func (r *reply) last() string {
	name := strings.ToLower(r.Question[0].Name)
	for range r.Answer {
		i := slices.IndexFunc(r.Answer, func(rr dns.RR) bool {
			_, alias := rr.(*dns.CNAME)
			return alias && strings.EqualFold(rr.Header().Name, name)
		})
		if i < 0 {
			break
		}
		name = strings.ToLower(r.Answer[i].(*dns.CNAME).Target)
	}
	return name
}

// aliases are the CNAME records of the answer.
func (r *reply) aliases() (out []dns.RR) {
	for _, rr := range r.Answer {
		if rr.Header().Rrtype == dns.TypeCNAME {
			out = append(out, rr)
		}
	}
	return out
}

// nodata says whether the reply is that there is a name without such a record.
func (r *reply) nodata() bool {
	return r.Rcode == dns.RcodeSuccess && !r.Truncated && len(r.Answer) == len(r.aliases()) && r.soa() != nil
}

// nxdomain says whether it is that there is no such name.
func (r *reply) nxdomain() bool {
	return r.Rcode == dns.RcodeNameError && !r.Truncated && r.soa() != nil
}

// positive says whether it has a record other than an alias.
func (r *reply) positive() bool {
	return r.Rcode == dns.RcodeSuccess && len(r.Answer) > len(r.aliases())
}

// soa is the SOA record that is all of the authority section, if that is so.
func (r *reply) soa() *dns.SOA {
	if len(r.Ns) != 1 {
		return nil
	}
	soa, _ := r.Ns[0].(*dns.SOA)
	return soa
}

// onlyNS says whether there are NS records and nothing else in the authority section.
func (r *reply) onlyNS() bool {
	return len(r.Ns) > 0 && !slices.ContainsFunc(r.Ns, func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeNS })
}

// String is a reply for people: at most some records of each section.
func (r *reply) String() string {
	const most = 10
	var b strings.Builder
	fmt.Fprintf(&b, "%s aa=%t tc=%t ra=%t %d octets", dns.RcodeToString[r.Rcode], r.Authoritative, r.Truncated, r.RecursionAvailable, r.size)
	for _, s := range []struct {
		what    string
		records []string
	}{{"answer", r.answer}, {"authority", r.authority}, {"additional", r.additional}} {
		fmt.Fprintf(&b, "\n      %s: %d", s.what, len(s.records))
		for _, rr := range s.records[:min(most, len(s.records))] {
			fmt.Fprintf(&b, "\n        %s", rr)
		}
	}
	return b.String()
}

// aspect is what two replies may differ in.
type aspect uint

const (
	rcode aspect = 1 << iota
	aa
	tc
	otherFlags
	answer
	authority
)

func (a aspect) String() string {
	var out []string
	for i, s := range []string{"rcode", "AA", "TC", "other flags", "answer", "authority"} {
		if a&(1<<i) != 0 {
			out = append(out, s)
		}
	}
	return strings.Join(out, ", ")
}

// differences compares two replies. What is in the additional section is up to the
// server; it is checked by itself.
func differences(a, b *reply) (out aspect) {
	for _, d := range []struct {
		differ bool
		aspect aspect
	}{
		{a.Rcode != b.Rcode, rcode},
		{a.Authoritative != b.Authoritative, aa},
		{a.Truncated != b.Truncated, tc},
		{a.RecursionAvailable != b.RecursionAvailable || a.RecursionDesired != b.RecursionDesired || a.AuthenticatedData != b.AuthenticatedData ||
			a.CheckingDisabled != b.CheckingDisabled || a.Zero != b.Zero || a.Opcode != b.Opcode, otherFlags},
		{!slices.Equal(a.answer, b.answer), answer},
		{!slices.Equal(a.authority, b.authority), authority},
	} {
		if d.differ {
			out |= d.aspect
		}
	}
	return out
}

// set is the key of an RRset.
type set struct {
	owner string
	qtype uint16
}

// world is what all zones hold.
type world struct {
	zones []*zone
	sets  map[set][]dns.RR
	types map[string][]uint16 // of each name that exists, none where there are only names below
	truth map[string]bool     // the text of every record
	huge  map[set]bool        // what no message holds
	facts facts

	hidden map[set][]dns.RR // addresses of endpoints that have no name
}

func newWorld(zones []*zone, f facts) *world {
	w := &world{zones: zones, sets: map[set][]dns.RR{}, types: map[string][]uint16{}, truth: map[string]bool{}, huge: huge(zones), facts: f}
	for _, z := range zones {
		for _, rr := range z.records {
			h := rr.Header()
			k := set{strings.ToLower(h.Name), h.Rrtype}
			w.sets[k] = append(w.sets[k], rr)
			w.truth[text(rr)] = true
			if !slices.Contains(w.types[k.owner], h.Rrtype) {
				w.types[k.owner] = append(w.types[k.owner], h.Rrtype)
				slices.Sort(w.types[k.owner])
			}
			for name := k.owner; name != z.apex; {
				name = parent(name)
				if w.types[name] == nil {
					w.types[name] = []uint16{}
				}
			}
		}
	}
	return w
}

// huge are the sets that are larger than a message.
func huge(zones []*zone) map[set]bool {
	sizes, out := map[set]int{}, map[set]bool{}
	for _, z := range zones {
		for _, rr := range z.records {
			k := set{strings.ToLower(rr.Header().Name), rr.Header().Rrtype}
			if sizes[k] += sizeOf(rr); sizes[k] > dns.MaxMsgSize {
				out[k] = true
			}
		}
	}
	return out
}

// sizeOf is how long a record is if of its names the owner alone is compressed.
func sizeOf(rr dns.RR) int { return dns.Len(rr) - (len(rr.Header().Name) + 1) + 2 }

// apex is the zone that a name lies in, "" for none.
func (w *world) apex(name string) string {
	for _, z := range w.zones {
		if dns.IsSubDomain(z.apex, name) {
			return z.apex
		}
	}
	return ""
}

// parent is the name above.
func parent(name string) string {
	if i, end := dns.NextLabel(name, 0); !end {
		return name[i:]
	}
	return "."
}

// checkAdditional says what is wrong with the additional section of a reply of ours: an
// address that nobody asked about or that is wrong, part of a set (RFC 2181 section 9), or
// an address that would have fit and is not there.
func (w *world) checkAdditional(q question, r *reply) error {
	got := map[set]int{}
	for _, rr := range r.Extra {
		h := rr.Header()
		if h.Rrtype == dns.TypeOPT {
			continue
		}
		k := set{strings.ToLower(h.Name), h.Rrtype}
		if !w.truth[text(rr)] && !slices.Contains(texts(w.hidden[k]), text(rr)) {
			return fmt.Errorf("in the additional section and not in the zone: %v", rr)
		}
		got[k]++
	}
	wanted := map[set]bool{}
	for _, rr := range r.Answer {
		var target string
		switch rr := rr.(type) {
		case *dns.SRV:
			target = rr.Target
		case *dns.NS:
			target = rr.Ns
		default:
			continue
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			k := set{strings.ToLower(target), qtype}
			whole := len(w.sets[k]) + len(w.hidden[k])
			if whole == 0 || wanted[k] {
				continue
			}
			wanted[k] = true
			each := map[uint16]int{dns.TypeA: 16, dns.TypeAAAA: 28}[qtype]
			if r.size > 0x3fff { // out of a pointer's reach
				each += len(target)
			}
			switch size := whole * each; {
			case got[k] == whole:
			case got[k] > 0:
				return fmt.Errorf("%d of the %d addresses of %s are in the additional section", got[k], whole, target)
			case !r.Truncated && r.size+size <= q.way.limit():
				return fmt.Errorf("the %d addresses of %s would fit into the additional section", whole, target)
			}
		}
	}
	for k := range got {
		if !wanted[k] {
			return fmt.Errorf("nobody asked for %s, which is in the additional section", k.owner)
		}
	}
	return nil
}

// covers says whether all these records are those of the zones.
func (w *world) covers(records []string) bool {
	return !slices.ContainsFunc(records, func(s string) bool { return !w.truth[s] })
}

// byName sorts names from the apex down.
func byName(a, b string) int {
	return cmp.Or(cmp.Compare(dns.CountLabel(a), dns.CountLabel(b)), strings.Compare(a, b))
}
