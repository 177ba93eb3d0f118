package dnsserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

var (
	tsigSecret = []byte("a secret of thirty-two octets ...")
	tsigKeys   = []TSIGKey{
		{"Secondary.Key", "hmac-sha256", tsigSecret},
		{"old.key.", "hmac-sha1", tsigSecret},
		{"long.key", "hmac-sha512", tsigSecret},
		{"224.key", "hmac-sha224", tsigSecret},
		{"384.key", "hmac-sha384", tsigSecret},
	}
	tsigSecrets = map[string]string{}
)

func init() {
	for _, name := range []string{"secondary.key.", "old.key.", "long.key.", "nobody.key."} {
		tsigSecrets[name] = base64.StdEncoding.EncodeToString(tsigSecret)
	}
}

// from is a connection to s as it would come from that address.
func from(t *testing.T, s *Server, addr string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	c := &tcpConn{Conn: server, from: netip.AddrPortFrom(netip.MustParseAddr(addr), 4711)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer server.Close()
		in := bufio.NewReaderSize(server, 2+maxQuery)
		for s.tcp.answer(ctx, c, in, Via{TCP, local}) {
		}
	}()
	t.Cleanup(func() {
		cancel()
		client.Close()
		<-done
	})
	return client
}

// A key gives a right to transfers from everywhere, and every message of one is signed.
func TestTSIGTransfer(t *testing.T) {
	s := start(t, Config{TSIG: tsigKeys})
	for _, c := range []struct{ key, algorithm, says string }{
		{"secondary.key.", dns.HmacSHA256, ""},
		{"SECONDARY.key.", dns.HmacSHA256, ""},
		{"old.key.", dns.HmacSHA1, ""},
		{"long.key.", dns.HmacSHA512, ""},
		{"224.key.", dns.HmacSHA224, ""},
		{"384.key.", dns.HmacSHA384, ""},
		{"", "", "bad xfr rcode: 5"},
		{"secondary.key.", dns.HmacSHA512, dns.ErrAuth.Error()},
		{"nobody.key.", dns.HmacSHA256, dns.ErrAuth.Error()},
	} {
		t.Run(c.key+" "+c.algorithm, func(t *testing.T) {
			q := new(dns.Msg).SetAxfr("registry.local.")
			q.SetEdns0(1232, false)
			x := &dns.Transfer{Conn: &dns.Conn{Conn: from(t, s, "192.0.2.7")}}
			if c.key != "" {
				q.SetTsig(c.key, c.algorithm, 300, time.Now().Unix())
				x.TsigSecret = map[string]string{c.key: tsigSecrets["secondary.key."], strings.ToLower(c.key): tsigSecrets["secondary.key."]}
			}
			env, err := x.In(q, "")
			if err != nil {
				t.Fatal(err)
			}
			n, messages := 0, 0
			for e := range env {
				if e.Error != nil {
					err = e.Error
					break
				}
				n += len(e.RR)
				messages++
			}
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%v, want %q", err, c.says)
				}
				return
			}
			if err != nil || n < 500 || messages < 2 {
				t.Fatalf("%d records in %d messages, %v", n, messages, err)
			}
		})
	}
}

// The answer to a signed question is signed, and as long as the asker takes.
func TestTSIGQuestions(t *testing.T) {
	s := start(t, Config{TSIG: tsigKeys, Upstream: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}})
	for _, c := range []struct {
		name  string
		typ   uint16
		rcode int
	}{
		{"registry.local.", dns.TypeSOA, dns.RcodeSuccess},
		{"big.shop.registry.local.", dns.TypeA, dns.RcodeSuccess},
		{"_http._tcp.big.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess},
		{"nope.shop.registry.local.", dns.TypeA, dns.RcodeNameError},
		{"example.com.", dns.TypeA, dns.RcodeRefused}, // it is for us, and not for an upstream
		{"shop.registry.local.", dns.TypeAXFR, dns.RcodeNotAuth},
	} {
		for _, network := range []string{"udp", "tcp"} {
			for _, size := range []uint16{0, 512, 1232} {
				q := question(c.name, c.typ)
				if size > 0 {
					q.SetEdns0(size, false)
				}
				q.SetTsig("secondary.key.", dns.HmacSHA256, 300, time.Now().Unix())
				wire, mac, err := dns.TsigGenerate(q, tsigSecrets["secondary.key."], "", false)
				if err != nil {
					t.Fatal(err)
				}
				out := exchanged(t, s, network, wire)
				if !signed(t, out, mac) {
					t.Errorf("%s over %s: the MAC is wrong", c.name, network)
				}
				var m dns.Msg
				if err := m.Unpack(out); err != nil {
					t.Fatal(err)
				}
				want := c.rcode
				if network == "udp" && c.typ == dns.TypeAXFR {
					want = dns.RcodeNotImplemented
				}
				if m.Rcode != want || network == "udp" && len(out) > max(512, int(size)) || (m.IsEdns0() != nil) != (size > 0) {
					t.Errorf("%d octets over %s with size %d:\n%v", len(out), network, size, &m)
				}
			}
		}
	}
}

// What is wrong with a signature is said, and signed where that can be (RFC 8945
// section 5.2).
func TestTSIGErrors(t *testing.T) {
	s := start(t, Config{TSIG: tsigKeys})
	secret, now := tsigSecrets["secondary.key."], time.Now().Unix()
	for _, c := range []struct {
		what, key, secret string
		time              int64
		change            func(m *dns.Msg, wire []byte) []byte
		rcode             int
		err               uint16
		signed            bool
	}{
		{"well", "secondary.key.", secret, now, nil, dns.RcodeSuccess, 0, true},
		{"an unknown key", "nobody.key.", secret, now, nil, dns.RcodeNotAuth, dns.RcodeBadKey, false},
		{"another secret", "secondary.key.", "b3RoZXI=", now, nil, dns.RcodeNotAuth, dns.RcodeBadSig, false},
		{"another question", "secondary.key.", secret, now, func(_ *dns.Msg, wire []byte) []byte {
			wire[13] ^= 1
			return wire
		}, dns.RcodeNotAuth, dns.RcodeBadSig, false},
		{"early", "secondary.key.", secret, now + 400, nil, dns.RcodeNotAuth, dns.RcodeBadTime, true},
		{"late", "secondary.key.", secret, now - 400, nil, dns.RcodeNotAuth, dns.RcodeBadTime, true},
		{"within the fudge", "secondary.key.", secret, now - 200, nil, dns.RcodeSuccess, 0, true},
		{"a shorter MAC", "secondary.key.", secret, now, shorten(20), dns.RcodeNotAuth, dns.RcodeBadTrunc, true},
		{"a MAC that is too short", "secondary.key.", secret, now, shorten(15), dns.RcodeFormatError, 0, false},
		{"a MAC that is too long", "secondary.key.", secret, now, shorten(40), dns.RcodeFormatError, 0, false},
		{"forwarded under another id", "secondary.key.", secret, now, func(_ *dns.Msg, wire []byte) []byte {
			wire[0] ^= 1
			return wire
		}, dns.RcodeSuccess, 0, true},
	} {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(c.what+"/"+network, func(t *testing.T) {
				q := question("registry.local.", dns.TypeSOA)
				q.SetTsig(c.key, dns.HmacSHA256, 300, c.time)
				wire, mac, err := dns.TsigGenerate(q, c.secret, "", false)
				if err != nil {
					t.Fatal(err)
				}
				if c.change != nil {
					wire = c.change(q, wire)
				}
				out := exchanged(t, s, network, wire)
				var m dns.Msg
				if err := m.Unpack(out); err != nil {
					t.Fatal(err)
				}
				ts := m.IsTsig()
				if m.Rcode != c.rcode {
					t.Fatalf("want RCODE %d:\n%v", c.rcode, &m)
				}
				if c.rcode == dns.RcodeFormatError {
					if ts != nil {
						t.Errorf("%v", ts)
					}
					return
				}
				if ts == nil || ts.Error != c.err || (ts.MACSize > 0) != c.signed || ts.OrigId != m.Id {
					t.Fatalf("want error %d, signed %t:\n%v", c.err, c.signed, &m)
				}
				if c.rcode == dns.RcodeNotAuth && len(m.Answer)+len(m.Ns) > 0 {
					t.Errorf("it answers:\n%v", &m)
				}
				if !c.signed {
					return
				}
				if c.what == "a shorter MAC" {
					mac = mac[:2*20]
				}
				if !signed(t, out, mac) {
					t.Error("the MAC is wrong")
				}
				if c.err == dns.RcodeBadTime && (ts.TimeSigned != uint64(c.time) || ts.OtherLen != 6) {
					t.Errorf("the asker's time, and ours beside it: %v", ts)
				}
			})
		}
	}
}

// signed says whether a reply is signed in answer to that MAC. The library looks at no
// reply with NOTAUTH; where it looks, it has to agree.
func signed(t *testing.T, out []byte, requestMAC string) bool {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(out); err != nil {
		t.Fatal(err)
	}
	ts := m.IsTsig()
	record := make([]byte, 1024)
	n, err := dns.PackRR(ts, record, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	before := unhex(t, requestMAC)
	bare := bytes.Clone(out[:len(out)-n])
	bare[11]--
	// RFC 8945 section 4.3: key, class ANY, TTL 0, algorithm, times, error, other data.
	h := hmac.New(sha256.New, tsigSecret)
	h.Write(append([]byte{0, byte(len(before))}, before...))
	h.Write(bare)
	h.Write(append(wireName(ts.Hdr.Name), 0, 255, 0, 0, 0, 0))
	h.Write(append(wireName("hmac-sha256."), unhex(t, fmt.Sprintf("%012x%04x%04x%04x%s", ts.TimeSigned, ts.Fudge, ts.Error, ts.OtherLen, ts.OtherData))...))
	ok := hex.EncodeToString(h.Sum(nil)) == strings.ToLower(ts.MAC)
	if err := dns.TsigVerify(out, tsigSecrets["secondary.key."], requestMAC, false); m.Rcode != dns.RcodeNotAuth && (err == nil) != ok {
		t.Errorf("the library says: %v", err)
	}
	return ok
}

// shorten cuts the MAC, or makes it longer.
func shorten(n int) func(m *dns.Msg, wire []byte) []byte {
	return func(m *dns.Msg, wire []byte) []byte {
		var signed dns.Msg
		if err := signed.Unpack(wire); err != nil {
			panic(err)
		}
		ts := signed.IsTsig()
		ts.MAC = (ts.MAC + strings.Repeat("00", 64))[:2*n]
		ts.MACSize = uint16(n)
		wire, err := signed.Pack()
		if err != nil {
			panic(err)
		}
		return wire
	}
}

// Some write the key's name as a pointer to the question's.
func TestReadName(t *testing.T) {
	msg := []byte("\x03Key\x05local\x00\x01a\xc0\x00\xc0\x0b\xc0\x10\xff\xc0\xc3\x3f")
	for _, c := range []struct {
		at, next int
		name     string
	}{{0, 11, "\x03key\x05local\x00"}, {11, 15, "\x01a\x03key\x05local\x00"}, {4, 11, "\x05local\x00"}, {15, 17, "\x01a\x03key\x05local\x00"}} {
		name, next, ok := readName(msg, c.at)
		if !ok || string(name) != c.name || next != c.next {
			t.Errorf("at %d: %q, %d, %t", c.at, name, next, ok)
		}
	}
	for _, at := range []int{17, 19, 20, 22, 99} { // forward, no label type, past the end
		if name, _, ok := readName(msg, at); ok {
			t.Errorf("at %d: %q", at, name)
		}
	}
	if _, _, ok := readName([]byte("\xc0\x00"), 0); ok {
		t.Error("a pointer to itself has an end")
	}
}

func TestParseTSIGSecret(t *testing.T) {
	if b, err := ParseTSIGSecret([]byte(" c2l4dGVlbiBvY3RldHMu\n")); err == nil || err.Error() != "the secret has 15 octets, fewer than 16" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := ParseTSIGSecret([]byte(" c2l4dGVlbiBvY3RldHMuLg==\n")); err != nil || string(b) != "sixteen octets.." {
		t.Errorf("%q, %v", b, err)
	}
	for _, text := range []string{"", "\n", "se-cret", "c2VjcmV0 c2VjcmV0", `"c2VjcmV0"`} {
		if b, err := ParseTSIGSecret([]byte(text)); err == nil || strings.Contains(err.Error(), "c2V") {
			t.Errorf("%q: %q, %v", text, b, err)
		}
	}
}
