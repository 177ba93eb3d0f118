package registry

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What is packed comes out as it was put in.
func TestEndpointsPack(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	long := strings.Repeat("p", longestName)
	list := []Endpoint{
		{},
		{Addr: v4, Ready: true},
		{Addr: v6, Pod: "web-0", Serving: true},
		{Addr: v4, Pod: "web-0", Hostname: "web-0", Terminating: true, Node: "n1", Zone: "a", Region: "r"},
		{Addr: v6, Pod: "web-7d4b9c-x", Hostname: "first", Ready: true, Serving: true, Terminating: true, Node: "n1"},
		{Addr: v4, Hostname: "only", Hints: NewHints([]string{"a", "b"}, []string{"n1"})},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Pod: long, Hostname: long[1:]},
	}
	all := NewEndpoints(list...)
	if got := all.List(); !slices.Equal(got, list) {
		t.Errorf("got %+v\nwant %+v", got, list)
	}
	for i, e := range all.All() {
		if e != list[i] || all.Addr(i) != e.Addr || all.Ready(i) != e.Ready {
			t.Errorf("endpoint %d is %+v, want %+v", i, e, list[i])
		}
	}
	if again := NewEndpoints(list...); !again.equal(all) || again.equal(NewEndpoints(list[1:]...)) || !NewEndpoints().equal(Endpoints{}) {
		t.Error("the same are not equal, or others are")
	}
	if n := reflect.TypeFor[packed]().Size(); n != 16 {
		t.Errorf("an endpoint takes %d octets", n)
	}
}

// What cannot be kept is left out.
func TestEndpointsThatCannotBe(t *testing.T) {
	long := strings.Repeat("p", longestName+1)
	got := NewEndpoints(
		Endpoint{Addr: netip.MustParseAddr("fe80::1%eth0"), Pod: long, Hostname: "a"},
		Endpoint{Addr: netip.MustParseAddr("fe80::2"), Pod: "b", Hostname: long},
		Endpoint{Addr: netip.MustParseAddr("fe80::3"), Pod: long, Hostname: long},
	).List()
	want := []Endpoint{
		{Addr: netip.MustParseAddr("fe80::1"), Hostname: "a"},
		{Addr: netip.MustParseAddr("fe80::2"), Pod: "b"},
		{Addr: netip.MustParseAddr("fe80::3")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
