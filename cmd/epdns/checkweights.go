package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/miekg/dns"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/zones"
)

// This file finds weights that HAProxy cannot tell apart. It has weights up to 256 and makes
// them of those of SRV records, which go up to 65535.

// haproxyWeight is what HAProxy (2.6.12) makes of a weight: a 256th, rounded up.
func haproxyWeight(srv uint16) int { return (int(srv) + 255) / 256 }

// sameWeights says whether endpoints of a Service with different weights have the same for
// HAProxy, in the first zone where that is so.
func sameWeights(svc *registry.Service, store *zones.Store, in []zones.Zone) string {
	endpoints := 0
	for _, slice := range svc.Slices {
		endpoints += slice.Endpoints.Len()
	}
	if endpoints < 2 || svc.Object != nil && svc.Object.IsExternalName {
		return ""
	}
	responder := dnsserver.NewResponder(dnsserver.Config{}, store)
	for _, z := range in {
		q := lookupQuestion{name: nameIn(svc.Key, z), qtype: dns.TypeSRV, from: nowhere}
		wire, err := q.answer(responder)
		if err != nil {
			continue
		}
		reply, err := unpackReply(wire)
		if err != nil {
			continue
		}
		weights := map[uint16]bool{}
		for _, rr := range reply.Answer {
			if srv, ok := rr.(*dns.SRV); ok {
				weights[srv.Weight] = true
			}
		}
		if text := sameWeightsText(slices.Sorted(maps.Keys(weights))); text != "" {
			return text
		}
	}
	return ""
}

// sameWeightsText tells of the first two of the weights, in order, that are one to HAProxy.
func sameWeightsText(weights []uint16) string {
	for i := 1; i < len(weights); i++ {
		if seen := haproxyWeight(weights[i]); seen == haproxyWeight(weights[i-1]) {
			return fmt.Sprintf("to HAProxy, which takes weight/256 rounded up, the weights %d and %d are both %d; multiples of 256 stay apart", weights[i-1], weights[i], seen)
		}
	}
	return ""
}
