package zones

import (
	"net/netip"
	"slices"
)

// room is what compiles work in, one after the other.
type room struct {
	sizes sizes

	eps       []endpoint
	mixed     []endpoint // not yet in order of their places
	reports   []report
	byAddress []uint32              // endpoints in order of address, host name and pod
	places    []place               // where endpoints are
	inPlace   []uint32              // of each of mixed: the index of its place
	called    []labelled            // endpoints by host name and by pod name, in order
	leading   []group               // of each label: the endpoints that it leads to
	members   []uint32              // of groups, one after the other
	taken     map[netip.Addr]uint32 // labels, by the address that they look like
	ofEps     map[string]uint32     // several endpoints, as a string of their numbers → node
	portsOf   []endpointPort        // of all endpoints, one after the other
	srvOf     []uint32              // likewise: their SRV records
	group     []uint32              // endpoints of one address, in order
	few       []uint32              // records of an endpoint,
	many      []uint32              // and of a set
	target    []uint32              // of each SRV record: the first endpoint that its target is
	wire      []byte                // of SRV records
	made      []node
	picked    []uint32
	text      []byte
	was, now  []input // of slices that changed
	drafted   []input // of portions that are to be made anew, one after the other

	gone, come []filed // names or addresses of portions

	portRoom  []portName
	lastPorts []portName // those of the Service before, which has them

	placeAt        map[where]uint32
	known          map[placeNames]where
	zoneOf, inside united
}

// unique sorts and removes what stands twice.
func unique(v []uint32) []uint32 {
	if !slices.IsSorted(v) {
		slices.Sort(v)
	}
	return slices.Compact(v)
}

// resize makes room of that length, whatever is in it.
func resize[T any](room *[]T, n int) []T {
	*room = slices.Grow((*room)[:0], n)[:n]
	return *room
}

// newRoom returns room to compile in.
func newRoom() *room {
	return &room{
		sizes: usualSizes,
		taken: map[netip.Addr]uint32{}, ofEps: map[string]uint32{},
		placeAt: map[where]uint32{}, known: map[placeNames]where{},
		zoneOf: united{}, inside: united{},
	}
}

// anew is room that holds nothing yet.
func (r *room) anew() *room {
	next := newRoom()
	next.sizes = r.sizes
	return next
}

// isLarge says whether it keeps more than the next compiles will need, most likely.
func (r *room) isLarge() bool {
	return max(cap(r.eps), cap(r.was), cap(r.now), cap(r.drafted), cap(r.gone), cap(r.come)) > 8*r.sizes.whole || len(r.known) > 1<<16
}
