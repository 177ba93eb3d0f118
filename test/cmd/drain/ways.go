package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/miekg/dns"
)

// server is who knows the pods.
type server string

const (
	byEpdns   server = "epdns"
	byCoreDNS server = "CoreDNS"
	byProxy   server = "kube-proxy"
)

// way is how a client comes to the address that it connects to.
type way struct {
	name   string
	server server

	// ttl is what the answers say when they are new; 0 for what does not ask.
	ttl time.Duration

	// life is how old something may get that lies between the API and the client.
	life time.Duration

	// open begins with empty caches. age is how old what is between shall be at the change, as
	// a part of life.
	open func(s *service, change time.Time, age float64) (client, error)
}

// client is one client of one Service.
type client interface {
	// addresses are those among which the next request chooses.
	addresses() ([]string, error)
	close()
}

// after is how long clients are looked at after everything old must be gone.
const after = 10 * time.Second

// window is how long after the change clients are looked at.
func (w *way) window() time.Duration { return w.life + after }

// longest is the life of the oldest thing on any way.
func longest(ways []*way) (life time.Duration) {
	for _, w := range ways {
		life = max(life, w.life)
	}
	return life
}

// ways are all that are compared.
func (l *lab) ways() []*way {
	zones := map[server]string{byEpdns: "registry.local.", byCoreDNS: "svc.cluster.local."}
	asked := func(name string, by server, ttl, life time.Duration, address string) *way {
		return &way{name, by, ttl, life, func(s *service, _ time.Time, _ float64) (client, error) {
			return newAsker(address, s.name+"."+namespace+"."+zones[by], ttl)
		}}
	}
	kept := func(name string, by server, ttl time.Duration, address string) *way {
		w := asked(name, by, ttl, ttl, address)
		open := w.open
		w.open = func(s *service, change time.Time, age float64) (client, error) {
			c, err := open(s, change, age)
			if err != nil {
				return nil, err
			}
			return &keeper{asker: c.(*asker)}, nil
		}
		return w
	}
	return []*way{
		asked("epdns, asked for every request", byEpdns, 5*time.Second, 0, l.epdns),
		kept("epdns, kept by the client for 5 s", byEpdns, 5*time.Second, l.epdns),
		asked("epdns behind CoreDNS with the shipped snippet", byEpdns, 5*time.Second, 5*time.Second, l.ports.addr(snippet)),
		asked("kubeadm's CoreDNS, asked for every request", byCoreDNS, 30*time.Second, 0, l.ports.addr(kubeadm)),
		kept("kubeadm's CoreDNS, kept by the client for 30 s", byCoreDNS, 30*time.Second, l.ports.addr(kubeadm)),
		asked("kubeadm's CoreDNS behind NodeLocal DNSCache", byCoreDNS, 30*time.Second, 30*time.Second, l.ports.addr(nodeLocal)),
		asked("CoreDNS with a plain cache 30", byCoreDNS, 30*time.Second, 30*time.Second, l.ports.addr(plainCache)),
		asked("CoreDNS with ttl 1, asked for every request", byCoreDNS, time.Second, 0, l.ports.addr(lowTTL)),
		kept("CoreDNS with ttl 1, kept by the client for 1 s", byCoreDNS, time.Second, l.ports.addr(lowTTL)),
		{"kube-proxy on two busy nodes (a model)", byProxy, 0, syncPeriod, func(s *service, change time.Time, age float64) (client, error) {
			return newProxied(l.nodes, s.name, change.Add(-time.Duration(age*float64(syncPeriod)))), nil
		}},
	}
}

// asker asks a DNS server for every request.
type asker struct {
	conn   *dns.Conn
	client dns.Client
	name   string
	ttl    time.Duration // none is higher
}

func newAsker(server, name string, ttl time.Duration) (*asker, error) {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return nil, err
	}
	// On loopback nothing gets lost, so what takes longer is a failure of the experiment.
	return &asker{conn: &dns.Conn{Conn: conn}, client: dns.Client{Timeout: 2 * time.Second}, name: name, ttl: ttl}, nil
}

// ask returns the addresses and the lowest TTL.
func (a *asker) ask() (addresses []string, ttl time.Duration, err error) {
	reply, _, err := a.client.ExchangeWithConn(new(dns.Msg).SetQuestion(a.name, dns.TypeA), a.conn)
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s for %s: %w", a.conn.RemoteAddr(), a.name, err)
	}
	ttl = a.ttl
	for _, rr := range reply.Answer {
		if record, ok := rr.(*dns.A); ok {
			addresses = append(addresses, record.A.String())
			says := time.Duration(record.Hdr.Ttl) * time.Second
			if says > a.ttl {
				return nil, 0, fmt.Errorf("ask %s for %s: a TTL of %v, more than %v", a.conn.RemoteAddr(), a.name, says, a.ttl)
			}
			ttl = min(ttl, says)
		}
	}
	if len(addresses) == 0 {
		return nil, 0, fmt.Errorf("ask %s for %s: %s without an address", a.conn.RemoteAddr(), a.name, dns.RcodeToString[reply.Rcode])
	}
	return addresses, ttl, nil
}

func (a *asker) addresses() ([]string, error) {
	addresses, _, err := a.ask()
	return addresses, err
}

func (a *asker) close() { a.conn.Close() }

// keeper asks again when the TTL of what it has is over.
type keeper struct {
	*asker
	have  []string
	until time.Time
}

func (k *keeper) addresses() ([]string, error) {
	if time.Now().Before(k.until) {
		return k.have, nil
	}
	have, ttl, err := k.ask()
	if err != nil {
		return nil, err
	}
	k.have, k.until = have, time.Now().Add(ttl)
	return have, nil
}

// choose is what a client does that has no reason to prefer one.
func choose(addresses []string) string { return addresses[rand.IntN(len(addresses))] }
