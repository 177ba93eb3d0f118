package dnsserver

import (
	"testing"

	"golang.org/x/sys/unix"
)

// No router says how long our packets are (RFC 9715 section 3.1).
func TestIgnoreMTU(t *testing.T) {
	for addr, options := range map[string][][3]int{
		"127.0.0.1:0": {{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT}},
		":0":          {{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT}},
	} {
		s := start(t, Config{Listen: []string{addr}, Workers: 1})
		raw, err := s.udp[0].conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range options {
			var got int
			if e := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), o[0], o[1]) }); e != nil || err != nil {
				t.Fatal(e, err)
			}
			if got != o[2] {
				t.Errorf("%s: option %d of level %d is %d, want %d", addr, o[1], o[0], got, o[2])
			}
		}
	}
}
