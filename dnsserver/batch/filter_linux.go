package batch

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// thin is thinning for a descriptor: the kernel runs a program for each datagram before it gets
// room in the socket (socket(7), SO_ATTACH_FILTER, which takes no privilege).
func thin(fd int, from []netip.Prefix, share uint) error {
	if len(from) == 0 || share == 0 {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if err == unix.ENOENT { // there is none
			return nil
		}
		return err
	}
	program, err := bpf.Assemble(thinning(from, share))
	if err != nil {
		return fmt.Errorf("assemble a filter: %w", err)
	}
	raw := make([]unix.SockFilter, len(program))
	for i, in := range program {
		raw[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	attach := func() error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]})
	}
	err = attach()
	if err == unix.ENOMEM { // net.core.optmem_max has no room for both, the one before and this one
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		err = attach()
	}
	return err
}

// ipHeader is where the IP header stands for a filter of a UDP socket, to which all else is
// counted from the UDP header: SKF_NET_OFF in linux/filter.h.
const ipHeader = -0x100000 & 0xffffffff

// Where the source stands in a header (RFC 791 section 3.1, RFC 8200 section 3).
const (
	source4 = 12
	source6 = 8
)

// thinning is the program: it looks for the source among the prefixes of its family, and lets by
// chance one in 1<<share of these pass, and all others.
func thinning(from []netip.Prefix, share uint) (p []bpf.Instruction) {
	var four, six []bpf.Instruction
	for _, f := range from {
		if f.Addr().Is4() {
			four = append(four, isFrom(f, source4)...)
		} else {
			six = append(six, isFrom(f, source6)...)
		}
	}
	pass, drop := bpf.RetConstant{Val: 0xffffffff}, bpf.RetConstant{}
	p = []bpf.Instruction{
		bpf.LoadAbsolute{Off: ipHeader, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the version
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 6, SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(four)) + 1},
	}
	p = append(append(append(p, four...), pass), six...)
	p = append(p, pass)
	found := len(p)
	for i, in := range p {
		if in == (bpf.Jump{}) { // of isFrom
			p[i] = bpf.Jump{Skip: uint32(found - i - 1)}
		}
	}
	return append(p,
		bpf.LoadExtension{Num: bpf.ExtRand},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1<<share - 1, SkipTrue: 1},
		pass, drop)
}

// isFrom jumps away if the address at an offset is in a prefix, and else goes on behind itself.
// The jump has to be given its end.
func isFrom(f netip.Prefix, at uint32) (p []bpf.Instruction) {
	addr, bits := f.Masked().Addr().AsSlice(), f.Bits()
	words := (bits + 31) / 32
	for i := range words {
		mask := uint32(0xffffffff)
		if left := bits - 32*i; left < 32 {
			mask <<= 32 - left
		}
		p = append(p,
			bpf.LoadAbsolute{Off: ipHeader + at + uint32(4*i), Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(addr[4*i:]), SkipTrue: uint8(3*(words-1-i) + 1)})
	}
	return append(p, bpf.Jump{})
}
