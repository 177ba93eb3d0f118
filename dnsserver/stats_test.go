package dnsserver

import (
	"testing"

	"github.com/miekg/dns"

	"epdns/zones"
)

// What is tallied is in the counters after a flush, and once.
func TestTally(t *testing.T) {
	tl, c := newTally(), &counters{}
	q := query{nameLen: 1}
	for _, typ := range []uint16{dns.TypeA, dns.TypeA, dns.TypeSRV, dns.TypeMX, 300, 65535} {
		q.qtype = typ
		tl.request(UDP, client.Addr(), &q)
		tl.response(UDP, zones.NXDomain, typ == dns.TypeMX)
	}
	tl.place(zones.PlaceIdle)
	tl.place(zones.PlaceNodes)
	tl.drop(nil)
	for range 2 {
		tl.flush(c)
	}
	tl.drop(make([]byte, headerSize))
	tl.flush(c)
	want := map[int]uint64{
		requestsAt(UDP, 0, 0): 2, requestsAt(UDP, 0, 2): 1, requestsAt(UDP, 0, len(qtypes)): 3,
		responsesAt(UDP, zones.NXDomain): 6, countTruncated + int(UDP): 1,
		countPlaces + int(zones.PlaceNodes): 1, countDropped: 1, countDropped + 1: 1,
	}
	for at := range counted {
		if got := c.load(at); got != want[at] {
			t.Errorf("counter %d is %d, want %d", at, got, want[at])
		}
	}
}
