package dnsserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// What a name server owes, one packet a case: octets in, over UDP and over TCP, and
// what must be true of the octets that come back. docs/obligations.md has the list.

// obligation is one case.
type obligation struct {
	rule    string // the RFC and what it asks for
	in      []byte
	want    []check // nil: silence
	only    string  // "udp" or "tcp", where the rule speaks of one
	cookies bool    // ask the server that has them
}

// check says what is wrong with a reply.
type check func(in, out []byte, m *dns.Msg) error

// The parts of packets.

// query1 is a message with one question and these records in the additional section.
func query1(flags uint16, q []byte, additional ...[]byte) []byte {
	return message(flags, [4]int{1, 0, 0, len(additional)}, append([][]byte{q}, additional...)...)
}

func message(flags uint16, counts [4]int, parts ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, flags)
	for _, n := range counts {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return append(b, bytes.Join(parts, nil)...)
}

func wireName(name string) []byte {
	b := make([]byte, 255)
	n, err := dns.PackDomainName(name, b, 0, nil, false)
	if err != nil {
		panic(err)
	}
	return b[:n]
}

func asked(name string, typ, class uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(wireName(name), typ), class)
}

// in is a question of class IN below shop.registry.local, or for a name with a dot at
// its end.
func in(name string, typ uint16) []byte {
	if !strings.HasSuffix(name, ".") {
		name += ".shop.registry.local."
	}
	return asked(name, typ, dns.ClassINET)
}

// opt is an OPT record. flags are its TTL: extended RCODE, version, DO and the rest.
func opt(size uint16, flags uint32, options ...[]byte) []byte {
	return record(".", dns.TypeOPT, size, flags, bytes.Join(options, nil))
}

func record(name string, typ, class uint16, ttl uint32, rdata []byte) []byte {
	b := binary.BigEndian.AppendUint32(asked(name, typ, class), ttl)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(rdata))), rdata...)
}

func option(code uint16, data ...byte) []byte {
	return append(appendOption(nil, code, len(data)), data...)
}

// The checks.

func rcode(want int) check {
	return func(_, _ []byte, m *dns.Msg) error {
		if m.Rcode != want {
			return fmt.Errorf("RCODE %d, want %d", m.Rcode, want)
		}
		return nil
	}
}

func sections(answer, authority, additional int) check {
	return func(_, _ []byte, m *dns.Msg) error {
		extra := len(m.Extra)
		if m.IsEdns0() != nil {
			extra--
		}
		if len(m.Answer) != answer || len(m.Ns) != authority || extra != additional {
			return fmt.Errorf("%d, %d, %d records, want %d, %d, %d", len(m.Answer), len(m.Ns), extra, answer, authority, additional)
		}
		return nil
	}
}

func is(what string, ok func(m *dns.Msg) bool) check {
	return func(_, _ []byte, m *dns.Msg) error {
		if !ok(m) {
			return errors.New("not so: " + what)
		}
		return nil
	}
}

var (
	noError  = rcode(dns.RcodeSuccess)
	nxdomain = rcode(dns.RcodeNameError)
	formerr  = rcode(dns.RcodeFormatError)
	notimp   = rcode(dns.RcodeNotImplemented)
	refused  = rcode(dns.RcodeRefused)
	badvers  = rcode(dns.RcodeBadVers)

	bare  = sections(0, 0, 0)
	aa    = is("AA", func(m *dns.Msg) bool { return m.Authoritative })
	notAA = is("no AA", func(m *dns.Msg) bool { return !m.Authoritative })
	tc    = is("TC", func(m *dns.Msg) bool { return m.Truncated })
	whole = is("no TC", func(m *dns.Msg) bool { return !m.Truncated })
	ten   = sections(10, 0, 0)

	// negative: the SOA alone, and its TTL the lesser of its own and its MINIMUM.
	negative = is("one SOA in authority, whose TTL is not above its MINIMUM", func(m *dns.Msg) bool {
		if len(m.Answer) != 0 || len(m.Ns) != 1 {
			return false
		}
		soa, ok := m.Ns[0].(*dns.SOA)
		return ok && soa.Hdr.Ttl <= soa.Minttl && dns.IsSubDomain(soa.Hdr.Name, m.Question[0].Name)
	})
	noOPT     = is("no OPT", func(m *dns.Msg) bool { return m.IsEdns0() == nil })
	noOptions = options()
	sameTTL   = is("one TTL for all", func(m *dns.Msg) bool {
		for _, rr := range m.Answer {
			if rr.Header().Ttl != m.Answer[0].Header().Ttl || rr.Header().Ttl > 3600 {
				return false
			}
		}
		return true
	})
)

// options: the OPT record has these and no others, each as what dig would print.
func options(want ...string) check {
	return func(_, _ []byte, m *dns.Msg) error {
		o := m.IsEdns0()
		if o == nil {
			return errors.New("no OPT")
		}
		var got []string
		for _, x := range o.Option {
			got = append(got, fmt.Sprintf("%d %s", x.Option(), x.String()))
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			return fmt.Errorf("options %q, want %q", got, want)
		}
		return nil
	}
}

func ede(code uint16) check {
	return is(fmt.Sprintf("extended error %d", code), func(m *dns.Msg) bool {
		for _, x := range m.IsEdns0().Option {
			if e, ok := x.(*dns.EDNS0_EDE); ok && e.InfoCode == code {
				return true
			}
		}
		return false
	})
}

func within(limit int) check {
	return func(_, out []byte, _ *dns.Msg) error {
		if len(out) > limit {
			return fmt.Errorf("%d octets, more than %d", len(out), limit)
		}
		return nil
	}
}

// notLonger: no more than was sent, and an OPT.
func notLonger(in, out []byte, _ *dns.Msg) error { return within(len(in)+optSize)(in, out, nil) }

// envelope is what is true of every reply.
func envelope(in, out []byte, m *dns.Msg) error {
	const copied, clear = 0xf<<11 | flagRD | flagCD, 1<<7 | 1<<6 | 1<<5 // RA, Z, AD
	asked, got := binary.BigEndian.Uint16(in[2:]), binary.BigEndian.Uint16(out[2:])
	switch {
	case out[0] != in[0] || out[1] != in[1]:
		return errors.New("another id")
	case got&flagQR == 0 || got&copied != asked&copied || got&clear != 0:
		return fmt.Errorf("flags %04x on a query with %04x", got, asked)
	case len(m.Question) > 0:
		n, _ := skipName(in[headerSize:])
		if question := in[headerSize : headerSize+n+4]; !bytes.HasPrefix(out[headerSize:], question) {
			return errors.New("another question")
		}
	}
	if o := m.IsEdns0(); o != nil && (o.Version() != 0 || o.UDPSize() != defaultUDPSize || o.Hdr.Ttl&0x7fff != 0) {
		return fmt.Errorf("OPT of version %d, size %d, flags %x", o.Version(), o.UDPSize(), o.Hdr.Ttl&0x7fff)
	}
	return nil
}

var obligations = map[string][]obligation{
	"header": headerObligations, "answers": answerObligations, "edns": ednsObligations, "size": sizeObligations,
	"cookies": cookieObligations, "identity": identityObligations, "others": otherObligations,
}

func TestObligations(t *testing.T) {
	servers := map[bool]*Server{
		false: start(t, Config{NSID: "epdns-7", Version: "epdns v1"}),
		true:  start(t, Config{NSID: "epdns-7", Cookies: []CookieSecret{{1}}}),
	}
	for theme, cases := range obligations {
		t.Run(theme, func(t *testing.T) {
			for _, c := range cases {
				for _, network := range []string{"udp", "tcp"} {
					if c.only != "" && c.only != network {
						continue
					}
					t.Run(c.rule+"/"+network, func(t *testing.T) {
						out := exchanged(t, servers[c.cookies], network, c.in)
						if (len(out) == 0) != (c.want == nil) {
							t.Fatalf("sent %x\ngot  %x", c.in, out)
						}
						if c.want == nil {
							return
						}
						m := new(dns.Msg)
						if err := m.Unpack(out); err != nil {
							t.Fatalf("reply %x: %v", out, err)
						}
						for _, check := range append([]check{envelope}, c.want...) {
							if err := check(c.in, out, m); err != nil {
								t.Errorf("%v\nsent %x\ngot  %x\n%v", err, c.in, out, m)
							}
						}
					})
				}
			}
		})
	}
}

// exchanged sends a packet and returns what comes back, which is nothing where a
// question that is sent behind it is answered first, or the connection is closed.
func exchanged(t *testing.T, s *Server, network string, msg []byte) []byte {
	t.Helper()
	c, err := net.Dial(network, s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if network == "tcp" {
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)); err != nil {
			t.Fatal(err)
		}
		all := make([]byte, 2)
		if _, err := io.ReadFull(c, all); err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset") {
				return nil
			}
			t.Fatal(err)
		}
		out := make([]byte, binary.BigEndian.Uint16(all))
		if _, err := io.ReadFull(c, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	last := query1(0, in("web", dns.TypeA))
	last[0], last[1] = 0xff, 0xff
	for _, b := range [][]byte{msg, last} {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]byte, maxTCPSize)
	n, err := c.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if out[0] == 0xff && out[1] == 0xff {
		return nil
	}
	return out[:n]
}
