package epdns_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// This file asks questions over real sockets, and holds every reply to the rules
// that hold for all of them.

// zone is what the tests serve.
const zone = "registry.local."

// question is a query and the way it goes.
type question struct {
	name    string // absolute, in presentation form
	qtype   uint16
	tcp     bool
	noedns  bool
	bufsize uint16 // announced; TCP and UDP alike
	version uint8  // of EDNS
	options []option
	from    netip.Addr // zero for any
	to      netip.Addr
}

// option is an EDNS option as it goes over the wire.
type option struct {
	code uint16
	data []byte
}

// String writes an option as dig and the case files do.
func (o option) String() string { return fmt.Sprintf("%d:%s", o.code, hex.EncodeToString(o.data)) }

// ask is a question in its usual form.
func ask(name string, qtype uint16) question {
	return question{name: name, qtype: qtype, bufsize: 1232, to: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
}

func (q question) overTCP() question { q.tcp = true; return q }

func (q question) String() string {
	s := q.name + " " + typeText(q.qtype)
	if q.tcp {
		s += " tcp"
	}
	if q.noedns {
		s += " noedns"
	} else if q.bufsize != 1232 {
		s += fmt.Sprintf(" bufsize=%d", q.bufsize)
	}
	return s
}

func typeText(t uint16) string { return dns.Type(t).String() }

// pack makes the message, with a random ID and RD set.
func (q *question) pack() ([]byte, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	if !q.noedns {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(q.bufsize)
		opt.SetVersion(q.version)
		for _, o := range q.options {
			opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: o.code, Data: o.data})
		}
		m.Extra = append(m.Extra, opt)
	}
	return m.Pack()
}

// size is how long a reply may be.
func (q *question) size() int {
	switch {
	case q.tcp:
		return dns.MaxMsgSize
	case q.noedns:
		return dns.MinMsgSize
	}
	return max(dns.MinMsgSize, int(q.bufsize))
}

// patience is how long a reply may take.
const patience = 2 * time.Second

// send asks a server and returns its reply, which has been checked for all that is
// due to any question.
func (q question) send(port uint16) (*reply, error) {
	query, err := q.pack()
	if err != nil {
		return nil, fmt.Errorf("pack %v: %w", q, err)
	}
	exchange := exchangeUDP
	if q.tcp {
		exchange = exchangeTCP
	}
	wire, err := exchange(q.from, netip.AddrPortFrom(q.to, port), query)
	if err != nil {
		return nil, err
	}
	r, err := parseReply(wire)
	if err != nil {
		return nil, err
	}
	return r, r.check(&q, query)
}

// exchangeUDP sends a datagram and waits for one, which must come from the address
// and port that were asked (RFC 2181 section 4).
func exchangeUDP(from netip.Addr, to netip.AddrPort, query []byte) ([]byte, error) {
	network := "udp4"
	if to.Addr().Is6() {
		network = "udp6"
	}
	c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.WriteToUDPAddrPort(query, to); err != nil {
		return nil, err
	}
	buf := make([]byte, dns.MaxMsgSize)
	n, source, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		return nil, err
	}
	if source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port()); source != to {
		return nil, fmt.Errorf("asked %v, and the reply came from %v", to, source)
	}
	return buf[:n], nil
}

func exchangeTCP(from netip.Addr, to netip.AddrPort, query []byte) ([]byte, error) {
	d := net.Dialer{Timeout: patience}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(prefixed(query)); err != nil {
		return nil, err
	}
	return readMessage(c)
}

// prefixed puts the length before a message (RFC 1035 section 4.2.2).
func prefixed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}

func readMessage(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

// reply is a reply taken apart.
type reply struct {
	dns.MsgHdr
	wire     []byte
	question dns.Question
	sections [3][]dns.RR // answer, authority, additional without the OPT
	opt      *dns.OPT
	rcode    int      // with its upper bits, which are in the OPT
	srv      [][]byte // rdata of each SRV record, as on the wire
}

const (
	answers = iota
	authorities
	additionals
)

var sectionNames = [...]string{"answer", "authority", "additional"}

// parseReply takes a message apart record by record, so that the counts of the
// header and the length of the message are held against what is there.
func parseReply(wire []byte) (*reply, error) {
	r := &reply{wire: wire}
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		return nil, fmt.Errorf("reply %x: %w", wire, err)
	}
	r.MsgHdr, r.rcode = m.MsgHdr, m.Rcode
	if n := binary.BigEndian.Uint16(wire[4:]); n != 1 {
		return nil, fmt.Errorf("%d questions in the reply", n)
	}
	r.question = m.Question[0]
	_, at, err := dns.UnpackDomainName(wire, 12)
	if err != nil {
		return nil, err
	}
	at += 4
	for s := range r.sections {
		for range binary.BigEndian.Uint16(wire[6+2*s:]) {
			rr, end, err := dns.UnpackRR(wire, at)
			if err != nil || end == at { // at the end of the message the library finds an empty record
				return nil, fmt.Errorf("fewer records in the %s section than the header says: %v", sectionNames[s], err)
			}
			if rr.Header().Rrtype == dns.TypeSRV {
				r.srv = append(r.srv, wire[end-int(rr.Header().Rdlength):end])
			}
			at = end
			opt, isOPT := rr.(*dns.OPT)
			switch {
			case !isOPT:
				r.sections[s] = append(r.sections[s], rr)
			case s != additionals || r.opt != nil || opt.Hdr.Name != ".":
				return nil, errors.New("an OPT record out of place")
			default:
				r.opt = opt
			}
		}
	}
	if at != len(wire) {
		return nil, fmt.Errorf("%d octets behind the last record", len(wire)-at)
	}
	return r, nil
}

// rdata is a record without owner, TTL and class, names in lower case.
func rdata(rr dns.RR) string {
	return strings.ToLower(strings.Join(strings.Fields(strings.TrimPrefix(rr.String(), rr.Header().String())), " "))
}

// text is a record without TTL and class.
func text(rr dns.RR) string {
	return strings.ToLower(rr.Header().Name) + " " + typeText(rr.Header().Rrtype) + " " + rdata(rr)
}

// asked are the answer records of the type asked for.
func (r *reply) asked() (out []dns.RR) {
	for _, rr := range r.sections[answers] {
		if t := r.question.Qtype; t == dns.TypeANY || rr.Header().Rrtype == t {
			out = append(out, rr)
		}
	}
	return out
}

// flags are the flags of the header by the names that people give them.
func (r *reply) flags() map[string]bool {
	return map[string]bool{"qr": r.Response, "aa": r.Authoritative, "tc": r.Truncated,
		"rd": r.RecursionDesired, "ra": r.RecursionAvailable, "ad": r.AuthenticatedData, "cd": r.CheckingDisabled}
}

// option is the data of an EDNS option in the reply.
func (r *reply) option(code uint16) (data []byte, ok bool) {
	if r.opt == nil {
		return nil, false
	}
	var o *dns.EDNS0_LOCAL
	for _, any := range r.opt.Option {
		if any.Option() != code {
			continue
		}
		if o, ok = any.(*dns.EDNS0_LOCAL); ok {
			return o.Data, true
		}
		// An option that the library knows: to bytes again, by way of an OPT alone.
		buf := make([]byte, 1024)
		end, err := dns.PackRR(&dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}, Option: []dns.EDNS0{any}}, buf, 0, nil, false)
		if err != nil {
			return nil, true
		}
		return buf[11+4 : end], true
	}
	return nil, false
}

// ede are the extended errors (RFC 8914) of the reply.
func (r *reply) ede() (codes []uint16) {
	if r.opt == nil {
		return nil
	}
	for _, o := range r.opt.Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			codes = append(codes, e.InfoCode)
		}
	}
	return codes
}

// check holds a reply to what is due to every question.
func (r *reply) check(q *question, query []byte) error {
	var faults []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	must(r.Id == binary.BigEndian.Uint16(query), "ID %d, asked with %d", r.Id, binary.BigEndian.Uint16(query))
	must(r.Response, "QR is not set")
	must(r.Opcode == dns.OpcodeQuery, "opcode %d", r.Opcode)
	must(!r.RecursionAvailable, "RA is set")
	must(r.RecursionDesired, "RD is not as in the query")
	must(strings.EqualFold(r.question.Name, q.name) && r.question.Qtype == q.qtype && r.question.Qclass == dns.ClassINET,
		"question %v", &r.question)
	must(len(r.wire) <= q.size(), "%d octets, at most %d may be sent", len(r.wire), q.size())

	// RFC 6891 sections 6.1.1 and 7.
	must((r.opt != nil) == !q.noedns, "OPT in the query: %t, in the reply: %t", !q.noedns, r.opt != nil)
	must(r.opt == nil || r.opt.Version() == 0, "EDNS version of the reply is not 0")

	ttls := map[string]uint32{}
	for s, section := range r.sections {
		seen := map[string]bool{}
		for _, rr := range section {
			h := rr.Header()
			must(!seen[text(rr)], "twice in the %s section: %v", sectionNames[s], rr)
			seen[text(rr)] = true
			// RFC 2181 section 5.2.
			set := strings.ToLower(h.Name) + typeText(h.Rrtype)
			ttl, known := ttls[set]
			must(!known || ttl == h.Ttl, "two TTLs in one set: %v", rr)
			ttls[set] = h.Ttl
		}
	}

	if r.rcode == dns.RcodeSuccess || r.rcode == dns.RcodeNameError {
		must(r.Authoritative, "AA is not set")
		faults = append(faults, r.checkSOA()...)
	}
	return errors.Join(faults...)
}

// checkSOA checks that negative answers, and they alone, carry the SOA that says
// how long they hold (RFC 2308 section 3). Beside TC it would read as NODATA.
func (r *reply) checkSOA() (faults []error) {
	var soas []string
	for _, rr := range r.sections[authorities] {
		if rr.Header().Rrtype == dns.TypeSOA {
			soas = append(soas, strings.ToLower(rr.Header().Name))
		}
	}
	negative := r.rcode == dns.RcodeNameError || len(r.sections[answers]) == 0
	if n := len(r.sections[answers]); n > 0 && r.question.Qtype != dns.TypeCNAME {
		// An alias to one of our names that has no such record.
		if c, ok := r.sections[answers][n-1].(*dns.CNAME); ok && dns.IsSubDomain(zone, c.Target) {
			negative = true
		}
	}
	if r.Truncated || !negative {
		if len(soas) > 0 {
			faults = append(faults, fmt.Errorf("SOA of %s in an answer that is not negative", soas))
		}
		return faults
	}
	if len(soas) != 1 {
		return append(faults, fmt.Errorf("%d SOA records in a negative answer", len(soas)))
	}
	// In reverse zones the server chooses the cut.
	name := strings.ToLower(r.question.Name)
	if soas[0] != zone && (dns.IsSubDomain(zone, name) || !dns.IsSubDomain(soas[0], name)) {
		faults = append(faults, fmt.Errorf("SOA of %s in the answer for %s", soas[0], name))
	}
	return faults
}

// matches says whether a record's data is as given, where * is any number.
func matches(pattern string, rr dns.RR) bool {
	want, got := strings.Fields(pattern), strings.Fields(rdata(rr))
	return slices.EqualFunc(want, got, func(w, g string) bool {
		if w == "*" {
			return strings.Trim(g, "0123456789") == ""
		}
		if a, err := netip.ParseAddr(w); err == nil {
			b, err := netip.ParseAddr(g)
			return err == nil && a == b
		}
		return strings.EqualFold(w, g)
	})
}

// sameSet says what keeps records and patterns from matching one to one.
func sameSet(patterns []string, rrs []dns.RR) error {
	var missing []string
	of := map[int]string{} // record → pattern it stands for
	for _, p := range patterns {
		if !assign(p, rrs, of, map[int]bool{}) {
			missing = append(missing, p)
		}
	}
	var extra []string
	for i, rr := range rrs {
		if _, ok := of[i]; !ok {
			extra = append(extra, rdata(rr))
		}
	}
	if len(missing)+len(extra) > 0 {
		return fmt.Errorf("missing: %q, not expected: %q", missing, extra)
	}
	return nil
}

// assign finds a record for a pattern. A record that another pattern has taken is
// free if that one finds another.
func assign(pattern string, rrs []dns.RR, of map[int]string, tried map[int]bool) bool {
	for i, rr := range rrs {
		if tried[i] || !matches(pattern, rr) {
			continue
		}
		tried[i] = true
		other, taken := of[i]
		if !taken || assign(other, rrs, of, tried) {
			of[i] = pattern
			return true
		}
	}
	return false
}
