//go:build linux

package load

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Await asks a server until a reply is what done wants, and returns when that came. It asks
// again this long after each reply, or where none comes within patience.
//
// The thread that asks goes before others of its processor, as far as it may, and sleeps by
// itself: Go's own timers are rounded up to a millisecond where nothing else happens.
func Await(ctx context.Context, conn *net.UDPConn, query []byte, every, patience time.Duration, done func(reply []byte) bool) (time.Time, error) {
	fd, err := socket(conn)
	if err != nil {
		return time.Time{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer favourThread()()
	reply := make([]byte, 1<<16)
	for ctx.Err() == nil {
		if _, err := unix.Write(fd, query); err != nil {
			return time.Time{}, fmt.Errorf("ask: %w", err)
		}
		timeout := unix.NsecToTimespec(int64(patience))
		if _, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil); err != nil && err != unix.EINTR {
			return time.Time{}, fmt.Errorf("wait for a reply: %w", err)
		}
		for { // several where some were late
			n, err := unix.Read(fd, reply)
			if err == unix.EAGAIN {
				break
			}
			if err != nil {
				return time.Time{}, fmt.Errorf("receive: %w", err)
			}
			if done(reply[:n]) {
				return time.Now(), nil
			}
		}
		timeout = unix.NsecToTimespec(int64(every))
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &timeout, nil) // where it fails, nobody sleeps
	}
	return time.Time{}, context.Cause(ctx)
}

// favourThread has the calling thread wait less for its processor than others, if that is
// allowed, until back is called. Unlike hurryThread it leaves them some of it: Go's scheduler
// and collector may have to wait for one of them on this thread, and do not sleep meanwhile.
func favourThread() (back func()) {
	set := func(a unix.SchedAttr) error {
		a.Size, a.Policy = unix.SizeofSchedAttr, unix.SCHED_NORMAL
		return unix.SchedSetAttr(0, &a, 0)
	}
	// Who asks for little time at once has it sooner (since Linux 6.12).
	if set(unix.SchedAttr{Nice: -20, Runtime: uint64(100 * time.Microsecond)}) != nil {
		return func() {}
	}
	return func() { set(unix.SchedAttr{}) }
}
