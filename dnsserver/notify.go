package dnsserver

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"epdns/zones"
)

const (
	// notifyTries are made to tell one serial, and a try waits for its answer twice as
	// long as the one before: 31 seconds in all. RFC 1996 section 3.6 has five, too; who
	// is down for longer asks for the SOA when it comes up.
	notifyTries = 5
	notifyWait  = time.Second
	// notifyInterval is how often one secondary hears of one zone while no message is
	// lost. The serial can move every second, and each NOTIFY may be a whole transfer.
	notifyInterval = 5 * time.Second
)

// notifier tells one secondary of one zone (RFC 1996). It belongs to the goroutine of
// run, which waits for one answer at a time.
type notifier struct {
	notified
	authority Authority
	apex      []byte
	dial      func(context.Context) (net.Conn, error)
	log       *slog.Logger

	changed chan struct{} // holds one if there may be another Set

	state string // what the log said last

	counts *notifyCounts
	cancel context.CancelFunc // set by start
	ended  chan struct{}      // closed when run has ended; nil before start
}

// notified is who is told of what.
type notified struct {
	zone string     // as text
	from netip.Addr // not valid where it is the kernel's to choose
	to   netip.AddrPort
}

// notifyCounts are those of all notifiers there have been.
type notifyCounts struct{ sent, acknowledged, failed atomic.Uint64 }

// newNotifiers returns one for each secondary and zone of a server that listens on these
// addresses. Those that it has already go on. It needs s.mu.
func newNotifiers(s *Server, secondaries []netip.AddrPort, listened []netip.AddrPort) (out []*notifier) {
	have := map[notified]*notifier{}
	for _, n := range *s.notifiers.Load() {
		have[n.notified] = n
	}
	for _, to := range secondaries {
		d := &net.Dialer{}
		from := notifySource(listened, to.Addr())
		if from.IsValid() {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		for zone, apex := range s.authority.Load().Apexes() {
			of := notified{zone, from, to}
			if n := have[of]; n != nil {
				out = append(out, n)
				continue
			}
			out = append(out, &notifier{
				authority: s.authority,
				notified:  of,
				apex:      apex,
				dial:      func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "udp", to.String()) },
				log:       s.log,
				changed:   make(chan struct{}, 1),
				counts:    &s.told,
			})
		}
	}
	return out
}

// start has a goroutine run it, if none does.
func (n *notifier) start(ctx context.Context) {
	if n.ended != nil {
		return
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.ended = make(chan struct{})
	go func() {
		defer close(n.ended)
		n.run(ctx)
	}()
}

// stop ends that.
func (n *notifier) stop() {
	if n.cancel != nil {
		n.cancel()
	}
}

// notifySource is the address to send from: a secondary heeds only the addresses that
// it knows as its primary's. It is the first that is listened on and can reach the
// secondary; not valid where that is the kernel's to choose.
func notifySource(listened []netip.AddrPort, to netip.Addr) netip.Addr {
	for _, a := range listened {
		if from := a.Addr(); !from.IsUnspecified() && from.Is4() == to.Is4() && from.IsLoopback() == to.IsLoopback() {
			return from
		}
	}
	return netip.Addr{}
}

// Changed says that the Authority may have another Set, of which secondaries are then
// told. It never waits.
func (s *Server) Changed() {
	for _, n := range *s.notifiers.Load() {
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
}

// run tells of the first serial that is served, and then, until ctx ends, of the newest
// one whenever it is another and notifyInterval has passed. So the last one is always
// told.
func (n *notifier) run(ctx context.Context) {
	told, before := uint32(0), false
	for {
		set := n.authority.Load()
		if !set.Synced() || before && set.TransferSerial() == told {
			select {
			case <-ctx.Done():
				return
			case <-n.changed:
			}
			continue
		}
		interval, stop := context.WithTimeout(ctx, notifyInterval)
		told, before = n.tell(ctx), true
		<-interval.Done()
		stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// tell tells of the newest serial until it is acknowledged, refused, or there is no
// hope, and returns the one that it told of last. A serial that comes while it tries
// takes the place of the one before.
func (n *notifier) tell(ctx context.Context) (serial uint32) {
	for try := range notifyTries {
		wait, stop := context.WithTimeout(ctx, notifyWait<<try)
		var msg []byte
		msg, serial = n.message()
		rcode, err := n.ask(wait, msg)
		if err == nil {
			stop()
			n.heard(rcode)
			return serial
		}
		<-wait.Done()
		stop()
		if ctx.Err() != nil {
			return serial
		}
		if try == notifyTries-1 {
			n.counts.failed.Add(1)
			n.turn("silent", slog.LevelWarn, "a secondary does not answer NOTIFY", "error", err)
		}
	}
	return serial
}

// message is a NOTIFY: the question for the SOA, and that of now for an answer, where
// it fits (RFC 1996 section 3.7).
func (n *notifier) message() (msg []byte, serial uint32) {
	set := n.authority.Load()
	msg = binary.BigEndian.AppendUint16(nil, uint16(rand.Uint32()))
	msg = binary.BigEndian.AppendUint16(msg, opcodeNotify<<11|flagAA)
	msg = append(msg, 0, 1, 0, 0, 0, 0, 0, 0)
	msg = append(append(msg, n.apex...), 0, zones.TypeSOA, 0, classIN)
	records, ok := set.Transfer(n.apex, netip.Addr{})
	if !ok { // no such zone any more
		return msg, set.TransferSerial()
	}
	for soa := range records {
		if with := append(append(msg, 0xc0, headerSize), soa[len(n.apex):]...); len(with) <= minUDPSize {
			msg = with
			msg[7] = 1
		}
		break
	}
	return msg, set.TransferSerial()
}

// ask sends a NOTIFY from a port of its own and waits for the answer to it. All else
// that comes is ignored; the kernel drops what comes from elsewhere.
func (n *notifier) ask(ctx context.Context, msg []byte) (rcode int, err error) {
	conn, err := n.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	n.counts.sent.Add(1)
	if _, err := conn.Write(msg); err != nil {
		return 0, err
	}
	in := make([]byte, maxUDPSize)
	for {
		size, err := conn.Read(in)
		if err != nil {
			return 0, err
		}
		if reply := in[:size]; answers(reply, msg, binary.BigEndian.Uint16(msg)) && reply[2]>>3&0xf == opcodeNotify {
			return int(reply[3] & 0xf), nil
		}
	}
}

// heard notes an answer. Whatever it says, the secondary knows (RFC 1996 section 4.8).
func (n *notifier) heard(rcode int) {
	if rcode == zones.NoError {
		n.counts.acknowledged.Add(1)
		n.turn("acknowledges", slog.LevelInfo, "a secondary acknowledges NOTIFY")
		return
	}
	n.counts.failed.Add(1)
	name := strconv.Itoa(rcode)
	if rcode < len(rcodeNames) && rcodeNames[rcode] != "" {
		name = rcodeNames[rcode]
	}
	n.turn(name, slog.LevelWarn, "a secondary does not accept NOTIFY", "rcode", name)
}

// turn logs a state that is another than before.
func (n *notifier) turn(state string, level slog.Level, what string, args ...any) {
	if state != n.state {
		n.log.Log(context.Background(), level, what, append([]any{"secondary", n.to, "zone", n.zone}, args...)...)
	}
	n.state = state
}
