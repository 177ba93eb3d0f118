//go:build linux

package clients_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// message is one between a client and epdns, as it went over the wire.
type message struct {
	*dns.Msg
	network  string
	src, dst netip.AddrPort
	size     int
}

func (m message) String() string {
	return fmt.Sprintf("%s, %d octets from %v to %v:\n%v", m.network, m.size, m.src, m.dst, m.Msg)
}

// wire captures what goes over the loopback interface to and from epdns.
type wire struct {
	fd      int
	mu      sync.Mutex
	seen    []message
	err     error
	limit   map[string]int // of a reply over UDP, by client and ID
	streams map[[2]netip.AddrPort]*stream
	opened  int // connections
	mark    string
	marks   int
}

// stream is one direction of a connection.
type stream struct {
	next uint32
	data []byte
}

// self is where this test's own questions come from, which are not captured.
var self = netip.MustParseAddr("127.0.0.9")

const markPort = 9 // discard

// capture begins to. It checks all replies for what holds of each.
func capture(t *testing.T) *wire {
	t.Helper()
	const all = syscall.ETH_P_ALL<<8 | syscall.ETH_P_ALL>>8 // in network order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 32<<20) // root may
	// So that the reader sees that it is to end.
	syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 50_000})
	if err := syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: lo.Index}); err != nil {
		t.Fatal(err)
	}
	w := &wire{fd: fd, limit: map[string]int{}, streams: map[[2]netip.AddrPort]*stream{}}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.read(end)
	}()
	t.Cleanup(func() {
		w.sync(t)
		close(end)
		<-ended
		syscall.Close(fd)
		if w.err != nil {
			t.Errorf("on the wire: %v", w.err)
		}
	})
	return w
}

func (w *wire) read(end <-chan struct{}) {
	buf := make([]byte, 1<<17)
	for {
		select {
		case <-end:
			return
		default:
		}
		n, from, err := syscall.Recvfrom(w.fd, buf, 0)
		if err != nil {
			if err == syscall.EAGAIN || err == syscall.EINTR {
				continue
			}
			w.mu.Lock()
			w.err = errors.Join(w.err, err)
			w.mu.Unlock()
			return
		}
		// On this interface each packet is sent and received; the first is before anybody has it.
		if link, ok := from.(*syscall.SockaddrLinklayer); ok && link.Pkttype == syscall.PACKET_OUTGOING {
			w.mu.Lock()
			w.packet(buf[:n])
			w.mu.Unlock()
		}
	}
}

func (w *wire) packet(p []byte) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return
	}
	header := int(p[0]&15) * 4
	if total := int(binary.BigEndian.Uint16(p[2:])); total >= header && total <= len(p) {
		p = p[:total]
	}
	src, _ := netip.AddrFromSlice(p[12:16])
	dst, _ := netip.AddrFromSlice(p[16:20])
	protocol, p := p[9], p[header:]
	if len(p) < 8 || src == self || dst == self {
		return
	}
	from := netip.AddrPortFrom(src, binary.BigEndian.Uint16(p))
	to := netip.AddrPortFrom(dst, binary.BigEndian.Uint16(p[2:]))
	if protocol == syscall.IPPROTO_UDP && to.Port() == markPort {
		w.mark = string(p[8:])
		return
	}
	server := netip.MustParseAddrPort(epdnsIP + ":53")
	if from != server && to != server {
		return
	}
	if protocol == syscall.IPPROTO_UDP {
		w.message("udp", from, to, p[8:])
		return
	}
	if protocol != syscall.IPPROTO_TCP || len(p) < 20 {
		return
	}
	seq, data := binary.BigEndian.Uint32(p[4:]), p[p[12]>>4*4:]
	key := [2]netip.AddrPort{from, to}
	const syn = 2
	if p[13]&syn != 0 {
		w.streams[key] = &stream{next: seq + 1}
		if to == server {
			w.opened++
		}
		return
	}
	s := w.streams[key]
	if s == nil || seq != s.next {
		return // of before the capture, or sent again
	}
	s.next += uint32(len(data))
	s.data = append(s.data, data...)
	for len(s.data) >= 2 {
		n := int(binary.BigEndian.Uint16(s.data))
		if len(s.data) < 2+n {
			break
		}
		w.message("tcp", from, to, s.data[2:2+n])
		s.data = s.data[2+n:]
	}
}

func (w *wire) message(network string, src, dst netip.AddrPort, data []byte) {
	m := message{new(dns.Msg), network, src, dst, len(data)}
	if err := m.Unpack(data); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("%v to %v: %w: %x", src, dst, err, data))
		return
	}
	w.seen = append(w.seen, m)
	if !m.Response {
		limit := 512
		if opt := m.IsEdns0(); opt != nil {
			limit = max(limit, min(1232, int(opt.UDPSize())))
		}
		w.limit[fmt.Sprint(src, m.Id)] = limit
		return
	}
	limit := w.limit[fmt.Sprint(dst, m.Id)]
	if err := m.check(limit); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("%w: %v", err, m))
	}
}

// check returns what no reply of epdns may be.
func (m message) check(limit int) error {
	switch {
	case m.network == "udp" && limit > 0 && m.size > limit:
		return fmt.Errorf("more than %d octets", limit)
	case m.network == "tcp" && m.Truncated:
		return errors.New("TC over TCP")
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError || !inZone(m.Question[0].Name):
		return nil
	case m.RecursionAvailable:
		return errors.New("RA is set")
	case !m.Authoritative:
		return errors.New("AA is not set")
	case len(m.Answer) > 0 || m.Truncated:
		if len(m.Ns) > 0 {
			return errors.New("authority section in a positive answer")
		}
	case len(m.Ns) != 1 || m.Ns[0].Header().Rrtype != dns.TypeSOA:
		return errors.New("no SOA in a negative answer")
	}
	return nil
}

func inZone(name string) bool {
	return dns.IsSubDomain("registry.local.", name) || dns.IsSubDomain("in-addr.arpa.", name)
}

// sync waits until all that has been sent until now is in seen.
func (w *wire) sync(t *testing.T) {
	t.Helper()
	w.marks++
	mark := fmt.Sprintf("mark %d", w.marks)
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(otherIP), markPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(grace); ; <-tick.C {
		conn.Write([]byte(mark)) // again, if it had been lost; an ICMP error means nothing
		w.mu.Lock()
		there := w.mark == mark
		w.mu.Unlock()
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the capture does not capture")
		}
	}
}

// reset forgets what was seen.
func (w *wire) reset(t *testing.T) {
	t.Helper()
	w.sync(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.opened = nil, 0
}

// replies are those that were seen.
func (w *wire) replies(t *testing.T) (replies []message) {
	t.Helper()
	w.sync(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.seen {
		if m.Response {
			replies = append(replies, m)
		}
	}
	return replies
}

// connections is how many were opened.
func (w *wire) connections(t *testing.T) int {
	t.Helper()
	w.sync(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// wantRcodes fails unless these names were asked for, in both families, and had such replies:
// "NXDOMAIN", "NODATA", "REFUSED", or "NOERROR" for addresses of the one and NODATA for the other.
func (w *wire) wantRcodes(t *testing.T, want map[string]string) {
	t.Helper()
	replies := w.replies(t)
	for name, rcode := range want {
		asked := map[uint16]bool{}
		for _, m := range replies {
			q := m.Question[0]
			if !strings.EqualFold(q.Name, name) {
				continue
			}
			asked[q.Qtype] = true
			want := rcode
			if want == "NOERROR" && q.Qtype == dns.TypeAAAA {
				want = "NODATA"
			}
			if got := kind(m.Msg); got != want {
				t.Errorf("%s %s: %s, want %s: %v", name, dns.TypeToString[q.Qtype], got, want, m)
			}
		}
		if !asked[dns.TypeA] || !asked[dns.TypeAAAA] {
			t.Errorf("%s was not asked for in both families", name)
		}
	}
	for _, m := range replies {
		if name := strings.ToLower(m.Question[0].Name); want[name] == "" {
			t.Errorf("%s was asked for", name)
		}
	}
}

// kind is the rcode, or NODATA.
func kind(m *dns.Msg) string {
	if m.Rcode == dns.RcodeSuccess && len(m.Answer) == 0 && !m.Truncated {
		return "NODATA"
	}
	return dns.RcodeToString[m.Rcode]
}
