package dnsserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// makeCertificate writes a certificate that signs itself and its key.
func makeCertificate(t *testing.T, dir string, serial int64, until time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "epdns.test"},
		DNSNames:     []string{"epdns.test"},
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     until,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return certFile, keyFile
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// startTLS starts a server with TLS.
func startTLS(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.TLS.Listen = []string{"127.0.0.1:0"}
	cfg.TLS.Cert, cfg.TLS.Key = makeCertificate(t, t.TempDir(), 1, tomorrow())
	return start(t, cfg)
}

// anyCertificate is a client that takes whatever certificate there is.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}}
}

// dialTLS connects, with a handshake.
func dialTLS(t *testing.T, s *Server, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	tc := tls.Client(c, cfg)
	return tc, tc.Handshake()
}

func secured(t *testing.T, s *Server) *tls.Conn {
	t.Helper()
	c, err := dialTLS(t, s, anyCertificate())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RFC 7858 section 3.2, RFC 8996 section 5: who is let in.
func TestTLSHandshake(t *testing.T) {
	s := startTLS(t, Config{})
	failures := uint64(0)
	for _, c := range []struct {
		what     string
		min, max uint16
		protos   []string
		proto    string
		err      string
	}{
		{"TLS 1.3, dot", tls.VersionTLS13, 0, []string{"dot"}, "dot", ""},
		{"TLS 1.2, dot", tls.VersionTLS12, tls.VersionTLS12, []string{"dot"}, "dot", ""},
		{"dot among others", 0, 0, []string{"h2", "dot"}, "dot", ""},
		{"no protocol named", 0, 0, nil, "", ""},
		{"another protocol", 0, 0, []string{"h2"}, "", "no application protocol"},
		{"TLS 1.1", tls.VersionTLS10, tls.VersionTLS11, []string{"dot"}, "", "protocol version not supported"},
	} {
		t.Run(c.what, func(t *testing.T) {
			conn, err := dialTLS(t, s, &tls.Config{InsecureSkipVerify: true, MinVersion: c.min, MaxVersion: c.max, NextProtos: c.protos})
			if c.err != "" {
				failures++
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.ConnectionState().NegotiatedProtocol; got != c.proto {
				t.Errorf("protocol %q, want %q", got, c.proto)
			}
			if _, err := conn.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
				t.Fatal(err)
			}
			if m := read(t, conn); len(m.Answer) != 10 {
				t.Errorf("%v", m)
			}
		})
	}
	// Questions in clear text are no handshake, and get nothing.
	c, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	failures++
	if _, err := c.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	until(t, "failed handshakes are not counted", func() bool { return s.Stats().TLSFailed == failures })
	if st := s.Stats(); st.Requests[RequestKind{TLS, 1, "A"}] != 4 || st.Responses[ResponseKind{TLS, "NOERROR"}] != 4 || len(st.Requests) != 1 {
		t.Errorf("counted %v, %v", st.Requests, st.Responses)
	}
	// And TLS is for its own addresses.
	if c, err := tls.Dial("tcp", s.Addrs()[0].String(), anyCertificate()); err == nil {
		c.Close()
		t.Error("there is TLS on the address of TCP")
	}
}

// What holds for TCP: several questions in a segment, octet by octet, half-closed;
// rubbish ends the connection.
func TestTLSFraming(t *testing.T) {
	s := startTLS(t, Config{})
	c := secured(t, s)
	a, aaaa := question("web.shop.registry.local.", dns.TypeA), question("web.shop.registry.local.", dns.TypeAAAA)
	if _, err := c.Write(append(framed(t, a), framed(t, aaaa)...)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Id != a.Id || len(m.Answer) != 10 {
		t.Fatalf("the first question:\n%v", m)
	}
	if m := read(t, c); m.Id != aaaa.Id || len(m.Ns) != 1 {
		t.Fatalf("the second question:\n%v", m)
	}
	for _, b := range framed(t, a) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if m := read(t, c); len(m.Answer) != 10 {
		t.Fatalf("octet by octet:\n%v", m)
	}
	srv := question("_http._tcp.big.shop.registry.local.", dns.TypeSRV)
	if _, err := c.Write(framed(t, srv)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); len(m.Answer) != 200 || len(m.Extra) != 200 {
		t.Fatalf("%d and %d records of a long answer", len(m.Answer), len(m.Extra))
	}
	if _, err := c.Write(framed(t, a)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); len(m.Answer) != 10 {
		t.Fatalf("after a half-close:\n%v", m)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("it does not end with a goodbye: %v", err)
	}
	for _, in := range []string{"\x00\x00", "\x00\x05hello", "\x10\x01 longer than any query"} {
		c := secured(t, s)
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		closed(t, c)
	}
	until(t, "connections are left", func() bool { return s.Stats().TCPConnections == 0 })
}

// pipedTCP is one end of a pipe that has the address of a TCP connection.
type pipedTCP struct{ net.Conn }

func (pipedTCP) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(client) }

// TLS has the times of TCP, before the handshake too.
func TestTLSTimes(t *testing.T) {
	certFile, keyFile := makeCertificate(t, t.TempDir(), 1, tomorrow())
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		do   func(t *testing.T, raw net.Conn, c *tls.Conn)
		ends time.Duration
	}{
		{"silent from the start", func(*testing.T, net.Conn, *tls.Conn) {}, 12 * time.Second},
		{"a handshake that drips", func(t *testing.T, raw net.Conn, _ *tls.Conn) {
			for _, b := range []byte{22, 3, 1, 1} {
				if _, err := raw.Write([]byte{b}); err != nil {
					t.Error(err)
				}
				time.Sleep(3500 * time.Millisecond)
			}
		}, 12 * time.Second},
		{"silent after the handshake", func(t *testing.T, _ net.Conn, c *tls.Conn) {
			if err := c.Handshake(); err != nil {
				t.Error(err)
			}
			go io.Copy(io.Discard, c)
		}, 12 * time.Second},
		{"half a length", func(t *testing.T, _ net.Conn, c *tls.Conn) {
			if _, err := c.Write([]byte{0}); err != nil {
				t.Error(err)
			}
			go io.Copy(io.Discard, c)
		}, 12 * time.Second},
		{"a question, and never reads", func(t *testing.T, _ net.Conn, c *tls.Conn) {
			if _, err := c.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
				t.Error(err)
			}
		}, 2 * time.Second},
		{"goes on asking", func(t *testing.T, _ net.Conn, c *tls.Conn) {
			go io.Copy(io.Discard, c)
			for range 5 {
				if _, err := c.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
			}
		}, 52 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(cluster(t), quiet)
				ours, theirs := net.Pipe()
				// No tickets, which the server would write after the handshake.
				server := tls.Server(pipedTCP{ours}, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"dot"}, SessionTicketsDisabled: true})
				conn := &tcpConn{Conn: server, from: client, source: sourceOf(client.Addr())}
				if !s.tcp.add(conn) {
					t.Fatal("no room")
				}
				began := time.Now()
				ended := make(chan time.Duration)
				go func() {
					s.tcp.serve(t.Context(), conn)
					ended <- time.Since(began)
				}()
				go c.do(t, theirs, tls.Client(theirs, anyCertificate()))
				if got := <-ended; got != c.ends {
					t.Errorf("it ends after %v, want %v", got, c.ends)
				}
				if n := s.tcp.open.Load(); n != 0 {
					t.Errorf("%d connections are counted", n)
				}
				theirs.Close()
				time.Sleep(time.Minute) // for what is left to end
			})
		})
	}
}

// The connection that has been idle longest makes room, of TLS and TCP together, and
// keepalive says how long one may be idle.
func TestTLSLimits(t *testing.T) {
	s := startTLS(t, Config{TCP: TCPConfig{PerSource: 2}})
	first, second := secured(t, s), secured(t, s)
	q := question("web.shop.registry.local.", dns.TypeA)
	q.SetEdns0(1232, false)
	q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE})
	answered := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write(framed(t, q)); err != nil {
			t.Fatal(err)
		}
		m := read(t, c)
		if len(m.Answer) != 10 || len(m.IsEdns0().Option) != 1 || m.IsEdns0().Option[0].(*dns.EDNS0_TCP_KEEPALIVE).Timeout != 120 {
			t.Fatalf("%v", m)
		}
	}
	answered(second)
	answered(first)
	answered(dial(t, s)) // TCP is counted with them
	closed(t, second)
	answered(first)
	if n := s.Stats().TCPRejected; n != 1 {
		t.Errorf("%d connections were turned away", n)
	}
}

// Who never reads is cut off, and to make room for others waits for nobody.
func TestTLSNeverReads(t *testing.T) {
	s := startTLS(t, Config{TCP: TCPConfig{Write: 100 * time.Millisecond}})
	c := secured(t, s)
	c.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	srv := framed(t, question("_http._tcp.big.shop.registry.local.", dns.TypeSRV))
	c.SetWriteDeadline(time.Now().Add(patience))
	for {
		if _, err := c.Write(srv); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatal("the server goes on reading from who never reads")
			}
			break
		}
	}
	until(t, "the connection is still counted", func() bool { return s.Stats().TCPConnections == 0 })

	// One that is to say goodbye to who does not read.
	ours, theirs := net.Pipe()
	defer theirs.Close()
	client := tls.Client(theirs, anyCertificate())
	cert := *s.certificate.Load().current.Load()
	conn := &tcpConn{Conn: tls.Server(ours, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"dot"}, SessionTicketsDisabled: true})}
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if err := conn.Conn.(*tls.Conn).Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	conn.cut()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it takes %v to cut a connection", took)
	}
}

// padded is how long a message of a connection is, and how long its padding; -1: none.
func padded(t *testing.T, c net.Conn) (size, padding int, m *dns.Msg) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	b, err := (&dns.Conn{Conn: c}).ReadMsgHeader(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, padding = new(dns.Msg), -1
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	if o := m.IsEdns0(); o != nil {
		for _, x := range o.Option {
			if p, ok := x.(*dns.EDNS0_PADDING); ok {
				padding = len(p.Padding)
				if strings.Trim(string(p.Padding), "\x00") != "" {
					t.Errorf("padding of %x", p.Padding)
				}
			}
		}
	}
	return len(b), padding, m
}

// RFC 8467 section 4.1: what asks for padding over TLS has replies of whole blocks.
func TestTLSPadding(t *testing.T) {
	upstream := start(t, Config{})
	s := startTLS(t, Config{TSIG: tsigKeys, NSID: "epdns-7", Cookies: []CookieSecret{{1}}, Upstream: []netip.AddrPort{upstream.Addrs()[0]}})
	pad := func(o *dns.OPT) { o.Option = append(o.Option, &dns.EDNS0_PADDING{Padding: make([]byte, 40)}) }
	for _, c := range []struct {
		what   string
		name   string
		typ    uint16
		opt    func(o *dns.OPT) // nil: no OPT
		blocks int              // 0: not padded
		rcode  int
	}{
		{"an answer", "web.shop.registry.local.", dns.TypeA, pad, 1, 0},
		{"a long answer", "big.shop.registry.local.", dns.TypeA, pad, 7, 0},
		{"an error", "nope.shop.registry.local.", dns.TypeA, pad, 1, dns.RcodeNameError},
		{"with other options", "web.shop.registry.local.", dns.TypeA, func(o *dns.OPT) {
			o.Option = append(o.Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_PADDING{}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"})
		}, 1, 0},
		{"a cookie that is none", "web.shop.registry.local.", dns.TypeA, func(o *dns.OPT) {
			pad(o)
			o.Option = append(o.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102"})
		}, 1, dns.RcodeFormatError},
		{"an answer from elsewhere", "example.com.", dns.TypeA, pad, 1, dns.RcodeRefused},
		{"not asked for", "web.shop.registry.local.", dns.TypeA, func(*dns.OPT) {}, 0, 0},
		{"no EDNS", "web.shop.registry.local.", dns.TypeA, nil, 0, 0},
		{"another version", "web.shop.registry.local.", dns.TypeA, func(o *dns.OPT) { pad(o); o.SetVersion(1) }, 0, dns.RcodeBadVers},
	} {
		t.Run(c.what, func(t *testing.T) {
			q := question(c.name, c.typ)
			if c.opt != nil {
				q.SetEdns0(1232, false)
				c.opt(q.IsEdns0())
			}
			conn := secured(t, s)
			if _, err := conn.Write(framed(t, q)); err != nil {
				t.Fatal(err)
			}
			size, padding, m := padded(t, conn)
			if (padding >= 0) != (c.blocks > 0) || c.blocks > 0 && size != c.blocks*paddingBlock || m.Rcode != c.rcode {
				t.Errorf("%d octets, %d of them padding, want %d blocks\n%v", size, padding, c.blocks, m)
			}
			clear := dial(t, s)
			if _, err := clear.Write(framed(t, q)); err != nil {
				t.Fatal(err)
			}
			if size, padding, m := padded(t, clear); padding >= 0 {
				t.Errorf("in clear text: %d octets, %d of them padding\n%v", size, padding, m)
			}
		})
	}

	t.Run("signed", func(t *testing.T) {
		q := question("web.shop.registry.local.", dns.TypeA)
		q.SetEdns0(1232, false)
		pad(q.IsEdns0())
		q.SetTsig("secondary.key.", dns.HmacSHA256, 300, time.Now().Unix())
		secret := base64.StdEncoding.EncodeToString(tsigSecret)
		b, mac, err := dns.TsigGenerate(q, secret, "", false)
		if err != nil {
			t.Fatal(err)
		}
		conn := &dns.Conn{Conn: secured(t, s)}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		reply, err := conn.ReadMsgHeader(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := dns.TsigVerify(reply, secret, mac, false); err != nil || len(reply) != paddingBlock {
			t.Errorf("%d octets, signed: %v", len(reply), err)
		}
	})

	t.Run("a transfer", func(t *testing.T) {
		q := new(dns.Msg).SetAxfr("registry.local.")
		q.SetEdns0(1232, false)
		pad(q.IsEdns0())
		conn := secured(t, s)
		if _, err := conn.Write(framed(t, q)); err != nil {
			t.Fatal(err)
		}
		records, messages, soas := 0, 0, 0
		for soas < 2 {
			size, padding, m := padded(t, conn)
			if size%paddingBlock != 0 || padding < 0 || m.Rcode != 0 {
				t.Fatalf("%d octets, %d of them padding\n%v", size, padding, m)
			}
			for _, rr := range m.Answer {
				if rr.Header().Rrtype == dns.TypeSOA {
					soas++
				}
			}
			records += len(m.Answer)
			messages++
		}
		if records < 500 || messages < 2 {
			t.Errorf("%d records in %d messages", records, messages)
		}
	})
}

// No message is longer than a length can say.
func TestPadSizes(t *testing.T) {
	for length, want := range map[int]int{
		400: 468, 464: 468, 465: 936, 468: 936, 65516: 65520, 65517: 65535, 65531: 65535, 65532: 65532, 65535: 65535,
	} {
		msg := message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, option(65001, make([]byte, length-headerSize-optSize-optionSize)...)))
		if len(msg) != length {
			t.Fatalf("%d octets, not %d", len(msg), length)
		}
		for _, base := range []int{0, 2} {
			r := &Responder{pads: true}
			out := r.pad(append(make([]byte, base), msg...), base)
			var m dns.Msg
			if err := m.Unpack(out[base:]); err != nil || len(out)-base != want {
				t.Errorf("%d octets become %d, want %d: %v", length, len(out)-base, want, err)
			}
		}
	}
}

// Transfers over TLS, to who may have them.
func TestTLSTransfer(t *testing.T) {
	s := startTLS(t, Config{})
	x := &dns.Transfer{Conn: &dns.Conn{Conn: secured(t, s)}}
	env, err := x.In(new(dns.Msg).SetAxfr("registry.local."), "")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e := range env {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		n += len(e.RR)
	}
	if n < 500 {
		t.Errorf("%d records", n)
	}
	if got := s.Stats().Responses[ResponseKind{TLS, "NOERROR"}]; got != 1 {
		t.Errorf("%d replies are counted", got)
	}
}

// lines is a log in memory.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// A certificate that changes is used for the connections that come then; one that
// cannot be used is not, and said once.
func TestTLSReload(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	cert, key := makeCertificate(t, dir, 1, tomorrow())
	otherCert, otherKey := makeCertificate(t, other, 2, tomorrow())
	var log lines
	c := &certificate{cert: cert, key: key, log: slog.New(slog.NewTextHandler(&log, nil))}
	c.version = c.versions()
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.checked = now
	put := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, to, string(text))
	}
	after := func(d time.Duration) int64 {
		now = now.Add(d)
		c.check(now)
		return c.current.Load().Leaf.SerialNumber.Int64()
	}
	const stays = "the one before stays"

	put(otherCert, cert)
	if n := after(time.Second / 2); n != 1 || log.count(stays) != 0 {
		t.Errorf("it looks more than once a second: certificate %d", n)
	}
	for range 3 { // the key is still the old one's
		if n := after(time.Second); n != 1 {
			t.Errorf("certificate %d is used without its key", n)
		}
	}
	if log.count(stays) != 1 || log.count(key) != 1 || log.count("private key does not match") != 1 {
		t.Errorf("logged:\n%s", &log.buf)
	}
	put(otherKey, key)
	if n := after(time.Second); n != 2 {
		t.Errorf("certificate %d is used, not the new one", n)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n := after(time.Second); n != 2 {
			t.Errorf("certificate %d is used without a file", n)
		}
	}
	if log.count(stays) != 2 || log.count("TLS certificate "+cert+": no such file or directory") != 1 {
		t.Errorf("logged:\n%s", &log.buf)
	}
	writeFile(t, cert, "no certificate")
	if n := after(time.Second); n != 2 || log.count(stays) != 3 || log.count("TLS certificate "+cert+": there is no certificate") != 1 {
		t.Errorf("certificate %d; logged:\n%s", n, &log.buf)
	}
	makeCertificate(t, dir, 3, now.Add(-time.Hour))
	if n := after(time.Second); n != 3 || log.count("has expired") != 1 || log.count(stays) != 3 {
		t.Errorf("certificate %d; logged:\n%s", n, &log.buf)
	}
}

// A connection lives through a change of the certificate.
func TestTLSReloadKeepsConnections(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, TLS: TLSConfig{Listen: []string{"127.0.0.1:0"}}}
	dir := t.TempDir()
	cfg.TLS.Cert, cfg.TLS.Key = makeCertificate(t, dir, 1, tomorrow())
	s := start(t, cfg)
	first := secured(t, s)
	makeCertificate(t, dir, 2, tomorrow())
	until(t, "the new certificate is not used", func() bool {
		c := secured(t, s)
		defer c.Close() // or they are too many
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() == 2
	})
	if _, err := first.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	if m := read(t, first); len(m.Answer) != 10 {
		t.Errorf("%v", m)
	}
}

// What is said of files that cannot be used, and of addresses.
func TestTLSErrors(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	cert, key := makeCertificate(t, dir, 1, tomorrow())
	_, otherKey := makeCertificate(t, other, 2, tomorrow())
	bad := filepath.Join(dir, "bad")
	writeFile(t, bad, "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct{ cert, key, says string }{
		{missing, key, "TLS certificate " + missing + ": no such file or directory"},
		{cert, missing, "TLS key " + missing + ": no such file or directory"},
		{dir, key, "TLS certificate " + dir + ": is a directory"},
		{key, key, "TLS certificate " + key + ": there is no certificate in PEM in it"},
		{bad, key, "TLS certificate " + bad + ": x509: malformed certificate"},
		{cert, cert, "TLS key " + cert + " of certificate " + cert + ": found a certificate rather than a key"},
		{cert, otherKey, "TLS key " + otherKey + " of certificate " + cert + ": private key does not match public key"},
	} {
		s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, TLS: TLSConfig{[]string{"127.0.0.1:0"}, c.cert, c.key}}, cluster(t), quiet)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	busy := start(t, Config{})
	for addr, want := range map[string]string{
		busy.Addrs()[0].String(): "taken by another program",
		"127.0.0.1":              "is not ADDR:PORT",
	} {
		_, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, TLS: TLSConfig{[]string{addr}, cert, key}}, cluster(t), quiet)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
	_, port, _ := net.SplitHostPort(busy.Addrs()[0].String())
	busy.Close()
	addr := "127.0.0.1:" + port
	if _, err := Listen(Config{Listen: []string{addr}, TLS: TLSConfig{[]string{addr}, cert, key}}, cluster(t), quiet); err == nil || !strings.Contains(err.Error(), "which is listened on as well") {
		t.Errorf("one's own port: %v", err)
	}
}

// A handshake under way when the server stops does not hold it up.
func TestTLSStop(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, TLS: TLSConfig{Listen: []string{"127.0.0.1:0"}}}
	cfg.TLS.Cert, cfg.TLS.Key = makeCertificate(t, t.TempDir(), 1, tomorrow())
	s, err := Listen(cfg, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { s.Serve(ctx); close(served) }()
	idle := secured(t, s)
	half, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	until(t, "no two connections", func() bool { return s.Stats().TCPConnections == 2 })
	stop()
	closed(t, idle)
	closed(t, half)
	select {
	case <-served:
	case <-time.After(patience):
		t.Fatal("Serve does not end")
	}
	if fmt.Sprint(s.TLSAddrs()) == fmt.Sprint(s.Addrs()) {
		t.Error("one port for both")
	}
}
