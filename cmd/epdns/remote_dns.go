package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// This file is lookup with --server dns://HOST: it asks by DNS, as any client does, where there
// is no dig, such as in epdns's own image.

// byDNS says whether a server is asked by DNS, and not by HTTP.
func (r *remote) byDNS() bool { return r.base.Scheme == "dns" }

// lookupDNS asks once, over UDP and, if the reply says so, over TCP.
func (r *remote) lookupDNS(ctx context.Context, q lookupQuestion) (*dns.Msg, error) {
	if !q.from.IsLoopback() {
		return nil, usagef("--from: asked by DNS, the server sees from where; --subnet can say for whom")
	}
	to, err := r.resolve(ctx)
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
	reply, cut, err := (&asker{to: to}).exchange(ctx, m)
	if cut && err != nil {
		err = fmt.Errorf("over TCP, since the reply over UDP is cut: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", r, err)
	}
	return reply, nil
}

// resolve finds the address. The port is 53 unless it is given.
func (r *remote) resolve(ctx context.Context) (netip.AddrPort, error) {
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", cmp.Or(r.base.Port(), "53"))
	if err != nil {
		return netip.AddrPort{}, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.base.Hostname())
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}, errors.New("it has no address")
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(port)), nil
}
