package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"epdns/dnsserver"
	"epdns/zones"
)

// parseEach parses a list, but for what is wrong. Check, if there is one, is asked
// about what there is of it after each value.
func parseEach[T any](m *mistakes, key string, texts []string, parse func(string) (T, error), check func([]T) error) (out []T) {
	for i, text := range texts {
		v, err := parse(text)
		if err == nil {
			out = append(out, v)
			if check != nil {
				if err = check(out); err != nil {
					out = out[:len(out)-1]
				}
			}
		}
		m.add(fmt.Sprintf("%s[%d]", key, i), err)
	}
	return out
}

// parsePrefix reads a CIDR prefix; an address alone is the prefix of that address.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is no prefix such as 10.0.0.0/8", text)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s has bits beyond its length; write %v", text, p.Masked())
	}
	return p, nil
}

// parseNamespaces reads a glob of namespaces.
func parseNamespaces(glob string) (string, error) {
	if glob == "" {
		return "", errors.New("no namespace is empty; * is all of them")
	}
	return glob, zones.CheckGlob(glob)
}

func parseNameserver(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%q is no IP address", text)
	}
	return a, nil
}

// parseUpstream reads ADDR or ADDR:PORT.
func parseUpstream(text string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(text)
	if a, aerr := netip.ParseAddr(text); aerr == nil {
		ap, err = netip.AddrPortFrom(a, 53), nil
	}
	if err != nil || dnsserver.CheckUpstream(ap) != nil {
		return ap, fmt.Errorf("%q is no server to ask, such as 192.0.2.53 or [2001:db8::53]:5353", text)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// parseSecondary reads ADDR or ADDR:PORT.
func parseSecondary(text string) (netip.AddrPort, error) {
	ap, err := parseUpstream(text)
	if err != nil {
		return ap, fmt.Errorf("%q is no secondary to tell, such as 192.0.2.54 or [2001:db8::54]:5353", text)
	}
	return ap, nil
}

// checkTwice says whether the last address is one of those before.
func checkTwice(addrs []netip.AddrPort) error {
	last := len(addrs) - 1
	if slices.Contains(addrs[:last], addrs[last]) {
		return fmt.Errorf("%v is given twice", addrs[last])
	}
	return nil
}

// parseDuration reads Go's form, or a bare number of seconds.
func parseDuration(text string, to *time.Duration) (err error) {
	unit := ""
	if strings.Trim(text, "0123456789.") == "" {
		unit = "s"
	}
	if *to, err = time.ParseDuration(text + unit); err != nil {
		return fmt.Errorf("%q is no duration such as 5s, 1m30s or 5 (seconds)", text)
	}
	return nil
}

// parseAge reads a duration that is not below 0.
func parseAge(text string, to *time.Duration) error {
	err := parseDuration(text, to)
	if err == nil && *to < 0 {
		err, *to = fmt.Errorf("%q is less than 0", text), 0
	}
	return err
}
