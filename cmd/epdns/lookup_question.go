package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"epdns/dnsserver"
)

// dnsMessage is the media type of a message (RFC 8484 section 6).
const dnsMessage = "application/dns-message"

// lookupQuestion is a question and who asks it. Each set method takes what people
// write, and says what is wrong with it.
type lookupQuestion struct {
	zone   string // to suggest names in, if it is not empty
	name   string // absolute
	qtype  uint16
	from   netip.Addr
	subnet netip.Prefix // for whom, as a forwarder says; not valid: it says nothing
}

// setName takes a name or an address, of which the PTR records are meant.
func (q *lookupQuestion) setName(text string) (err error) {
	if a, err := netip.ParseAddr(text); err == nil {
		q.qtype = dns.TypePTR
		q.name, err = dns.ReverseAddr(a.Unmap().WithZone("").String())
		return err
	}
	for _, c := range text {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("%q is no domain name: character %q", text, c)
		}
	}
	if key, err := parseService(text); err == nil {
		return fmt.Errorf("%q is no domain name: do you mean %s.%s.%s?", text, key.Name, key.Namespace, cmp.Or(q.zone, "registry.local"))
	}
	q.name = dns.Fqdn(text)
	var wire [255]byte // RFC 1035 section 2.3.4
	if _, err := dns.PackDomainName(q.name, wire[:], 0, nil, false); err != nil || text == "" {
		return fmt.Errorf("%q is no domain name%s", text, nameFault(text))
	}
	return nil
}

// nameFault is why a text is no domain name, in words that follow that. Of names with
// escapes it says nothing.
func nameFault(text string) string {
	if strings.Contains(text, `\`) {
		return ""
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(text, "."), ".") {
		switch {
		case label == "":
			return ": a label is empty"
		case len(label) > 63: // RFC 1035 section 2.3.4
			return fmt.Sprintf(": label %q has %d octets, and 63 is the most", label, len(label))
		}
	}
	return ": it has more than 255 octets"
}

// setType takes the name of a type, TYPE and its number, or nothing, which is A.
// It comes after setName.
func (q *lookupQuestion) setType(text string) error {
	ofAddress := q.qtype == dns.TypePTR
	if text == "" {
		if !ofAddress {
			q.qtype = dns.TypeA
		}
		return nil
	}
	upper := strings.ToUpper(text)
	t, ok := dns.StringToType[upper]
	if number, has := strings.CutPrefix(upper, "TYPE"); !ok && has { // RFC 3597 section 5
		n, err := strconv.ParseUint(number, 10, 16)
		t, ok = uint16(n), err == nil
	}
	switch {
	case !ok:
		return fmt.Errorf("%q is not known", text)
	case t == dns.TypeAXFR || t == dns.TypeIXFR:
		return fmt.Errorf("%s is a transfer of a zone, not a lookup: dig does it", upper)
	case t == dns.TypeNone || t == dns.TypeOPT || t == dns.TypeTSIG:
		return fmt.Errorf("%s is nothing to ask for", upper) // RFC 6895 section 3.1
	case ofAddress && t != dns.TypePTR:
		return fmt.Errorf("%s: of an address there are PTR records only", upper)
	}
	q.qtype = t
	return nil
}

// setFrom takes an address, or nothing, which is this machine's own.
func (q *lookupQuestion) setFrom(text string) error {
	if text == "" {
		q.from = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("%q is no IP address", text)
	}
	q.from = a.Unmap()
	return nil
}

// setSubnet takes a prefix or an address, of which bits beyond its length are dropped,
// or nothing.
func (q *lookupQuestion) setSubnet(text string) error {
	if text == "" {
		return nil
	}
	p, err := netip.ParsePrefix(text)
	if a, wrong := netip.ParseAddr(text); wrong == nil {
		p, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4In6() {
		return fmt.Errorf("%q is no prefix such as 10.1.2.0/24", text)
	}
	q.subnet = p.Masked()
	return nil
}

// values is the question as readQuestion has it.
func (q *lookupQuestion) values() url.Values {
	v := url.Values{"name": {q.name}, "type": {dns.Type(q.qtype).String()}, "from": {q.from.String()}}
	if q.subnet.IsValid() {
		v.Set("subnet", q.subnet.String())
	}
	return v
}

// readQuestion reads a question from the query of a URL, and what other parameters
// there may be.
func readQuestion(u *url.URL, others ...string) (q lookupQuestion, p map[string]string, err error) {
	if p, err = parameters(u, append([]string{"name", "type", "from", "subnet"}, others...)...); err != nil {
		return q, p, err
	}
	if p["name"] == "" {
		return q, p, errors.New(`parameter "name" is missing`)
	}
	for _, set := range []struct {
		name string
		to   func(string) error
	}{{"name", q.setName}, {"type", q.setType}, {"from", q.setFrom}, {"subnet", q.setSubnet}} {
		if err := set.to(p[set.name]); err != nil {
			return q, p, fmt.Errorf("parameter %q: %w", set.name, err)
		}
	}
	return q, p, nil
}

// answer is the reply over TCP, made as for packets.
func (q *lookupQuestion) answer(r *dnsserver.Responder) ([]byte, error) {
	query, err := q.query(dns.DefaultMsgSize)
	if err != nil {
		return nil, err
	}
	return q.respond(r, query, dnsserver.TCP), nil
}

func (q *lookupQuestion) respond(r *dnsserver.Responder, query []byte, over dnsserver.Transport) []byte {
	return r.Respond(nil, query, netip.AddrPortFrom(q.from, 0), dnsserver.Via{Transport: over})
}

// query is the question as a message, with EDNS of that size and these options.
func (q *lookupQuestion) query(size uint16, options ...dns.EDNS0) ([]byte, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	m.Id = 0 // nothing tells replies apart that need not be (RFC 8484 section 4.1)
	m.SetEdns0(size, false)
	if q.subnet.IsValid() {
		family := uint16(1)
		if q.subnet.Addr().Is6() {
			family = 2
		}
		options = append(options, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: family,
			SourceNetmask: uint8(q.subnet.Bits()), Address: q.subnet.Addr().AsSlice()})
	}
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, options...)
	query, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", q.name, err)
	}
	return query, nil
}

// unpackReply reads a reply, which must be one.
func unpackReply(wire []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return nil, fmt.Errorf("the reply cannot be read: %w", err)
	}
	if !m.Response || len(m.Question) != 1 {
		return nil, errors.New("what came is no reply")
	}
	return m, nil
}

// extendedErrors are those of a reply (RFC 8914).
func extendedErrors(m *dns.Msg) (out []*dns.EDNS0_EDE) {
	opt := m.IsEdns0()
	if opt == nil {
		return nil
	}
	for _, o := range opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			out = append(out, e)
		}
	}
	return out
}

// believed says whether a reply heeds the EDNS Client Subnet of its question (RFC 7871
// section 7.2.1).
func believed(m *dns.Msg) bool {
	opt := m.IsEdns0()
	return opt != nil && slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0SUBNET })
}

// notReady says that a server has not read all that exists yet.
func notReady(m *dns.Msg) bool {
	for _, e := range extendedErrors(m) {
		if e.InfoCode == dns.ExtendedErrorCodeNotReady {
			return m.Rcode == dns.RcodeServerFailure
		}
	}
	return false
}

func statusText(m *dns.Msg) string {
	if s, ok := dns.RcodeToString[m.Rcode]; ok {
		return s
	}
	return "RCODE" + strconv.Itoa(m.Rcode)
}

func extendedErrorText(e *dns.EDNS0_EDE) string {
	s, ok := dns.ExtendedErrorCodeToString[e.InfoCode]
	if !ok {
		s = "unknown"
	}
	if e.ExtraText != "" {
		s += ": " + harmless(e.ExtraText) // of whoever answers
	}
	return s
}
