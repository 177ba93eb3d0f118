//go:build amd64 || arm64

package batch

import (
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel may take some of a batch, and none for a while, and refuse one: what it
// took is not sent again, what it refused is left out, all else is sent.
func TestSendMoves(t *testing.T) {
	type result struct {
		n     int
		errno syscall.Errno
	}
	for _, c := range []struct {
		what    string
		results []result
		want    []string // what each call is given
		unsent  uint64
	}{
		{"at once", []result{{4, 0}}, []string{"abcd"}, 0},
		{"in parts", []result{{1, 0}, {2, 0}, {1, 0}}, []string{"abcd", "bcd", "d"}, 0},
		{"interrupted", []result{{-1, unix.EINTR}, {2, 0}, {-1, unix.EINTR}, {2, 0}}, []string{"abcd", "abcd", "cd", "cd"}, 0},
		{"no room", []result{{-1, unix.EAGAIN}, {4, 0}}, []string{"abcd", "abcd"}, 0},
		{"no room for some", []result{{3, 0}, {-1, unix.EAGAIN}, {-1, unix.EAGAIN}, {1, 0}}, []string{"abcd", "d", "d", "d"}, 0},
		{"one refused", []result{{2, 0}, {-1, unix.EPERM}, {1, 0}}, []string{"abcd", "cd", "d"}, 1},
		{"several refused", []result{{-1, unix.ENOBUFS}, {-1, unix.EPERM}, {1, 0}, {-1, unix.ENETUNREACH}}, []string{"abcd", "bcd", "cd", "d"}, 3},
	} {
		s := listen(t, "udp4", "127.0.0.1:0", Options{Size: 5})
		e := s.engine.(*mmsg)
		for i, text := range []string{"a", "b", "", "c", "d"} {
			s.messages[i].Reply = append(s.messages[i].Reply, text...)
		}
		var given []string
		e.call = func(trap, _ uintptr, table []unix.Mmsghdr) (int, syscall.Errno) {
			text := ""
			for _, h := range table {
				text += string(*h.Hdr.Iov.Base)
			}
			given = append(given, text)
			if trap != unix.SYS_SENDMMSG || len(given) > len(c.results) {
				return -1, unix.ENOSYS
			}
			r := c.results[len(given)-1]
			return r.n, r.errno
		}
		s.Send(5)
		if !slices.Equal(given, c.want) || s.Unsent() != c.unsent {
			t.Errorf("%s: the kernel was given %q, want %q; %d unsent, want %d", c.what, given, c.want, s.Unsent(), c.unsent)
		}
	}
}

// An error of the socket comes to who receives, and does not stay.
func TestReceiveFails(t *testing.T) {
	s := listen(t, "udp4", "127.0.0.1:0", Options{})
	e := s.engine.(*mmsg)
	kernel, calls := e.call, 0
	e.call = func(trap, fd uintptr, table []unix.Mmsghdr) (int, syscall.Errno) {
		switch calls++; calls {
		case 1:
			return -1, unix.EINTR
		case 2:
			return -1, unix.ENOMEM
		}
		return kernel(trap, fd, table)
	}
	if _, err := s.Receive(); err == nil || calls != 2 {
		t.Fatalf("after %d calls: %v", calls, err)
	}
	send(t, dial(t, s, "127.0.0.1"), "a")
	if m := receive(t, s, 1); string(m[0].Data) != "a" {
		t.Errorf("%q came", m[0].Data)
	}
}

// A socket is in the poller while it is waited for, and out of it once a whole batch has
// come at once. What comes before it is back wakes who waits.
func TestLeavesThePoller(t *testing.T) {
	s := listen(t, "udp4", "127.0.0.1:0", Options{Size: 2})
	e := s.engine.(*mmsg)
	c := dial(t, s, "127.0.0.1")
	for range 3 {
		if e.recvmmsg(0) || !e.inside {
			t.Fatal("not in the poller while nothing comes")
		}
		for e.inside { // the kernel may be late with the second one
			send(t, c, "a")
			send(t, c, "b")
			receive(t, s, 2)
		}
	}
	send(t, c, "c")
	looks := 0
	err := e.raw.Read(func(uintptr) bool {
		looks++
		return looks > 1 || e.enter() != nil
	})
	if err != nil || looks != 2 {
		t.Errorf("%d looks, %v", looks, err)
	}
}

// Replies are given up if there is no room for long, and not before.
func TestNoRoom(t *testing.T) {
	s := listen(t, "udp4", "127.0.0.1:0", Options{})
	e := s.engine.(*mmsg)
	full, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full[1])
	for err == nil {
		_, err = unix.Write(full[0], []byte("x"))
	}
	udp := e.fd
	e.fd = full[0]
	defer func() {
		e.fd = udp
		unix.Close(full[0])
	}()
	calls := 0
	e.call = func(uintptr, uintptr, []unix.Mmsghdr) (int, syscall.Errno) {
		calls++
		return -1, unix.EAGAIN
	}
	s.messages[0].Reply = append(s.messages[0].Reply, "a"...)
	s.Send(1)
	if calls != 1 || s.Unsent() != 1 {
		t.Errorf("%d calls, %d unsent", calls, s.Unsent())
	}
}
