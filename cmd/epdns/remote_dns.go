package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/miekg/dns"
)

// This file is lookup with --server dns://HOST: it asks by DNS, as any client does, where there
// is no dig, such as in epdns's own image.

// byDNS says whether a server is asked by DNS, and not by HTTP.
func (r *remote) byDNS() bool { return r.base.Scheme == "dns" }

// needsHTTP is the error where a server is to be asked by DNS what only HTTP has.
func (r *remote) needsHTTP() error {
	if !r.byDNS() {
		return nil
	}
	return usagef("--server %v: lookup alone can ask by DNS; give the URL of its HTTP address, such as http://127.0.0.1:9153", r)
}

// lookupDNS asks each address once until one answers, over UDP and, if the reply says so, over
// TCP.
func (r *remote) lookupDNS(ctx context.Context, q lookupQuestion) (*dns.Msg, error) {
	if !q.from.IsLoopback() {
		return nil, usagef("--from: asked by DNS, the server sees from where; --subnet can say for whom")
	}
	all, err := r.resolve(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	query, err := q.query(dns.DefaultMsgSize)
	if err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if err := m.Unpack(query); err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	m.Id = dns.Id()
	for _, to := range all {
		var reply *dns.Msg
		var cut bool
		if reply, cut, err = (&asker{to: to}).exchange(ctx, m); err == nil {
			return reply, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w; is epdns running there? What is meant is the address of --listen", err)
		}
		if cut {
			err = fmt.Errorf("over TCP, since the reply over UDP is cut: %w", err)
		}
	}
	return nil, fmt.Errorf("ask %v: %w", r, err)
}

// resolve finds the addresses, of which not each need be listened at: of localhost, most have
// two. The port is 53 unless it is given.
func (r *remote) resolve(ctx context.Context) (all []netip.AddrPort, err error) {
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", cmp.Or(r.base.Port(), "53"))
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.base.Hostname())
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("it has no address")
	}
	for _, a := range addrs {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return all, nil
}
