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
		e.raw = patient{e.raw}
		s.Send(5)
		if !slices.Equal(given, c.want) || s.Unsent() != c.unsent {
			t.Errorf("%s: the kernel was given %q, want %q; %d unsent, want %d", c.what, given, c.want, s.Unsent(), c.unsent)
		}
	}
}

// patient is a socket that has room as soon as one waits for it.
type patient struct{ syscall.RawConn }

func (patient) Write(f func(uintptr) bool) error {
	for !f(0) {
	}
	return nil
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
