package zones

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"epdns/registry"
)

// Weights say how much each endpoint of a Service gets. The zero value gives all
// the same. They never change.
type Weights struct {
	named map[weighed]uint16
	addrs map[netip.Addr]uint16
}

// weighed is who has a weight by a name, which is in lower case.
type weighed struct {
	kind weighedKind
	name string
}

type weighedKind uint8

const (
	weighedEndpoint weighedKind = iota // host name or pod name
	weighedNode
	weighedZone
)

// defaultWeight is the weight of an endpoint that nothing names.
const defaultWeight = 1

// none says whether all have the default weight.
func (w *Weights) none() bool { return len(w.named)+len(w.addrs) == 0 }

// of is the weight of an endpoint, of which what is empty is not known: that of its
// host name, else of its pod, its address, its node, its zone, else 1. Names match in
// any case.
func (w *Weights) of(host, pod string, addr netip.Addr, node, zone string) uint16 {
	n, _ := w.find(host, pod, addr, node, zone)
	return n
}

// find is of, and whether an entry names the endpoint.
func (w *Weights) find(host, pod string, addr netip.Addr, node, zone string) (n uint16, named bool) {
	if w.none() {
		return defaultWeight, false
	}
	// An empty name is in no list.
	if n, ok := w.named[weighed{weighedEndpoint, strings.ToLower(host)}]; ok {
		return n, true
	}
	if n, ok := w.named[weighed{weighedEndpoint, strings.ToLower(pod)}]; ok {
		return n, true
	}
	if n, ok := w.addrs[addr]; ok {
		return n, true
	}
	if n, ok := w.named[weighed{weighedNode, strings.ToLower(node)}]; ok {
		return n, true
	}
	if n, ok := w.named[weighed{weighedZone, strings.ToLower(zone)}]; ok {
		return n, true
	}
	return defaultWeight, false
}

// unused are the entries, of all that there are, that name nothing among the endpoints of
// a Service. They are in order.
func (w *Weights) unused(svc *registry.Service) (entries []string, all int) {
	named, addrs := maps.Clone(w.named), maps.Clone(w.addrs)
	for _, sl := range svc.Slices {
		for _, e := range sl.Endpoints.All() {
			delete(named, weighed{weighedEndpoint, strings.ToLower(e.Hostname)})
			delete(named, weighed{weighedEndpoint, strings.ToLower(e.Pod)})
			delete(named, weighed{weighedNode, strings.ToLower(e.Node)})
			delete(named, weighed{weighedZone, strings.ToLower(e.Zone)})
			delete(addrs, e.Addr)
		}
	}
	all = len(w.named)
	for key := range named {
		switch addr, isAddr := parseDashed([]byte(key.name)); {
		case key.kind == weighedNode:
			entries = append(entries, "node:"+key.name)
		case key.kind == weighedZone:
			entries = append(entries, "zone:"+key.name)
		case isAddr: // an entry for both
			if _, ok := addrs[addr]; ok {
				entries = append(entries, key.name)
			}
		default:
			entries = append(entries, key.name)
		}
	}
	for addr := range w.addrs {
		if _, both := w.named[weighed{weighedEndpoint, dashed(addr)}]; both {
			continue
		}
		all++
		if _, ok := addrs[addr]; ok {
			entries = append(entries, addr.String())
		}
	}
	slices.Sort(entries)
	return entries, all
}

// parseWeights reads a list such as "web-0=10, 10-1-2-3=2, node:n7=5, zone:b=0". One
// bad entry makes all of it bad. Nothing but blanks is a list without entries.
func parseWeights(text string) (w Weights, err error) {
	switch {
	case strings.TrimSpace(text) == "":
		return w, nil
	case len(text) > maxWeights:
		return w, fmt.Errorf("longer than %d octets", maxWeights)
	}
	w = Weights{named: map[weighed]uint16{}, addrs: map[netip.Addr]uint16{}}
	for entry := range strings.SplitSeq(text, ",") {
		if err := w.add(strings.TrimSpace(entry)); err != nil {
			return Weights{}, fmt.Errorf("no list of weights such as web-0=10, zone:a=0: %w", err)
		}
	}
	return w, nil
}

// maxWeights bounds what a change of the Service, or the question why, may cost.
const maxWeights = 8 << 10

func namedTwice(name string) error { return fmt.Errorf("%s is named twice", quoted(name)) }

func (w *Weights) add(entry string) error {
	if entry == "" {
		return errors.New("an entry is empty")
	}
	name, number, ok := strings.Cut(entry, "=")
	name, number = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(number)
	if !ok || name == "" {
		return fmt.Errorf("entry %s is not NAME=WEIGHT", quoted(entry))
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return fmt.Errorf("entry %s has no weight from 0 to 65535", quoted(entry))
	}
	addr, isAddr := parseDashed([]byte(name))
	if a, err := netip.ParseAddr(name); err == nil && a.Zone() == "" {
		addr, isAddr = a.Unmap(), true
	}
	if isAddr {
		if _, ok := w.addrs[addr]; ok {
			return namedTwice(name)
		}
		w.addrs[addr] = uint16(n)
		if strings.ContainsAny(name, ".:") {
			return nil
		}
		// Whoever has a host name or pod name that looks like an address is meant, too.
	}
	key := weighed{weighedEndpoint, name}
	if kind, rest, ok := strings.Cut(name, ":"); ok {
		key.name = strings.TrimSpace(rest)
		switch kind {
		case "node":
			key.kind = weighedNode
		case "zone":
			key.kind = weighedZone
		default:
			return fmt.Errorf("%s is neither an endpoint nor node:NAME nor zone:NAME", quoted(name))
		}
	}
	if !nameLike(key.name) {
		return fmt.Errorf("%s can be no name", quoted(key.name))
	}
	if _, ok := w.named[key]; ok {
		return namedTwice(name)
	}
	w.named[key] = uint16(n)
	return nil
}

// nameLike says whether text, in lower case, has the characters that names of pods
// and nodes and values of labels are made of.
func nameLike(text string) bool {
	for _, c := range []byte(text) {
		if c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return text != ""
}
