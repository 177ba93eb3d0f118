package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"epdns/dnsserver"
)

// This file checks the addresses to listen on: each by itself, and beside each other.

// listened is an address to listen on.
type listened struct {
	key, text string
	flag      string // with what to say it, too
	http      bool
}

// checkAddresses checks all addresses to listen on.
func (c *config) checkAddresses(m *mistakes) {
	if len(c.Listen) == 0 {
		m.add("listen", errors.New("no address to listen on is given"))
	}
	var all []listened
	for i, text := range c.Listen {
		all = append(all, listened{key: fmt.Sprintf("listen[%d]", i), text: text, flag: " (--listen)"})
	}
	if c.HTTP != "" {
		all = append(all, listened{key: "http", text: c.HTTP, flag: " (--http)", http: true})
	}
	for i, text := range c.TLS.Listen {
		all = append(all, listened{key: fmt.Sprintf("tls.listen[%d]", i), text: text})
	}
	var good []listened
	for _, l := range all {
		err := dnsserver.CheckListen(l.text)
		for _, before := range good {
			if err == nil {
				err = l.beside(before)
			}
		}
		if err != nil {
			m.add(l.key, err)
			continue
		}
		good = append(good, l)
	}
}

// beside says why another address cannot be listened on as well.
func (l *listened) beside(other listened) error {
	if !collide(other.text, l.text, other.http, l.http) {
		return nil
	}
	if l.text == other.text {
		return fmt.Errorf("%s%s has %q, too, and they cannot have the same port", other.key, other.flag, l.text)
	}
	return fmt.Errorf("%q and %s%s, %q, cannot have the same port", l.text, other.key, other.flag, other.text)
}

// collide says whether TCP cannot listen on both addresses. No address is all of
// both families; for HTTP, the one that stands for all of a family is so too.
func collide(a, b string, aHTTP, bHTTP bool) bool {
	x, port := splitListen(a)
	y, other := splitListen(b)
	switch {
	case port != other || port == 0:
		return false
	case x == y || !x.IsValid() || !y.IsValid(), aHTTP && x.IsUnspecified(), bHTTP && y.IsUnspecified():
		return true
	}
	return (x.IsUnspecified() || y.IsUnspecified()) && x.Is4() == y.Is4()
}

// splitListen takes a checked address apart. No address at all is the zero Addr.
func splitListen(text string) (netip.Addr, uint16) {
	host, port, _ := net.SplitHostPort(text)
	addr, _ := netip.ParseAddr(host)
	n, _ := net.LookupPort("tcp", port)
	return addr, uint16(n)
}

// checkLoop says whether the last server to pass names on to is this one: it would
// ask itself.
func (c *config) checkLoop(upstream []netip.AddrPort) error {
	last := upstream[len(upstream)-1]
	for i, text := range c.Listen {
		if dnsserver.CheckListen(text) != nil {
			continue
		}
		addr, port := splitListen(text)
		all := !addr.IsValid() || addr.IsUnspecified() && addr.Is4() == last.Addr().Is4()
		if port == last.Port() && port != 0 && (addr == last.Addr() || all && isOurs(last.Addr())) {
			return fmt.Errorf("%v is this server itself, by listen[%d] (--listen), %q", last, i, text)
		}
	}
	return nil
}

// isOurs says whether an address is one of this machine.
func isOurs(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs() // without, only loopback is known
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.WithZone("").AsSlice()) {
			return true
		}
	}
	return false
}
