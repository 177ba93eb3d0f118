//go:build linux

package faults

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// outcome is what came of a question.
type outcome string

const (
	answered outcome = "answered" // NOERROR
	nxdomain outcome = "NXDOMAIN"
	servfail outcome = "SERVFAIL"
	other    outcome = "another rcode"
	silence  outcome = "no reply"
)

// answer is what a client got.
type answer struct {
	service   string
	ipv4      bool // A was asked for, not AAAA
	at        time.Time
	took      time.Duration
	outcome   outcome
	addresses []netip.Addr // sorted
	ede       []uint16     // extended errors
}

const (
	zone = "registry.local."

	// askEvery is how often each question is asked.
	askEvery = 100 * time.Millisecond

	// askWithin is how long a client waits.
	askWithin = 2 * time.Second

	// askers is how many clients share the questions, so that one that waits does not keep the
	// others from asking.
	askers = 4
)

// asking is a set of clients that ask one server, and all that they got.
type asking struct {
	server string

	mu  sync.Mutex
	all []answer
}

// run asks for the addresses of these Services until ctx ends.
func (k *asking) run(ctx context.Context, services []string) {
	var wg sync.WaitGroup
	for i := range askers {
		wg.Go(func() {
			for tick := time.NewTicker(askEvery); ; {
				for s := i; s < len(services); s += askers {
					for _, ipv4 := range []bool{true, false} {
						a := ask(ctx, k.server, services[s], ipv4)
						if ctx.Err() != nil {
							return
						}
						k.mu.Lock()
						k.all = append(k.all, a)
						k.mu.Unlock()
					}
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	wg.Wait()
}

// answers are those so far.
func (k *asking) answers() []answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// add puts answers of before to these.
func (k *asking) add(before []answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(before, k.all...)
}

// ask asks once, over UDP, and over TCP if that is cut off.
func ask(ctx context.Context, server, service string, ipv4 bool) answer {
	qtype := dns.TypeAAAA
	if ipv4 {
		qtype = dns.TypeA
	}
	m := new(dns.Msg).SetQuestion(service+"."+namespace+"."+zone, qtype)
	m.SetEdns0(1232, false)
	a := answer{service: service, ipv4: ipv4, at: time.Now(), outcome: silence}
	reply, err := exchange(ctx, "udp", server, m)
	if err == nil && reply.Truncated {
		reply, err = exchange(ctx, "tcp", server, m)
	}
	a.took = time.Since(a.at)
	if err != nil {
		return a
	}
	switch reply.Rcode {
	case dns.RcodeSuccess:
		a.outcome = answered
	case dns.RcodeNameError:
		a.outcome = nxdomain
	case dns.RcodeServerFailure:
		a.outcome = servfail
	default:
		a.outcome = other
	}
	for _, rr := range reply.Answer {
		var ip net.IP
		switch rr := rr.(type) {
		case *dns.A:
			ip = rr.A
		case *dns.AAAA:
			ip = rr.AAAA
		}
		if addr, ok := netip.AddrFromSlice(ip); ok {
			a.addresses = append(a.addresses, addr.Unmap())
		}
	}
	slices.SortFunc(a.addresses, netip.Addr.Compare)
	if opt := reply.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				a.ede = append(a.ede, e.InfoCode)
			}
		}
	}
	return a
}

// exchange waits for the reply to this question, whatever else comes.
func exchange(ctx context.Context, network, server string, m *dns.Msg) (*dns.Msg, error) {
	dialer := net.Dialer{Timeout: askWithin}
	c, err := dialer.DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: c, UDPSize: 1232}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(askWithin))
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		reply, err := conn.ReadMsg()
		if err != nil {
			return nil, err
		}
		if reply.Id == m.Id {
			return reply, nil
		}
		if network == "tcp" {
			return nil, errors.New("a reply to another question")
		}
	}
}
