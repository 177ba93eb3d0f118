package dnsserver

import (
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// scarce is a listener that has a connection a second, and lacks descriptors before each.
type scarce struct {
	net.Listener
	lack bool
	left int
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.lack = !s.lack; s.lack {
		if s.left--; s.left < 0 {
			return nil, net.ErrClosed
		}
		return nil, syscall.EMFILE
	}
	time.Sleep(time.Second)
	ours, theirs := net.Pipe()
	theirs.Close()
	return addressed{ours}, nil
}

// addressed is a connection of a client.
type addressed struct{ net.Conn }

func (addressed) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53} }
func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 4711} }

// Where there are too few descriptors, many connections that fail are few lines of the log,
// also if others succeed in between.
func TestScarceDescriptorsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		s := New(cluster(t), slog.New(slog.NewTextHandler(&log, nil)))
		s.tcp.accept(t.Context(), &listening{accept: &scarce{left: 60}})
		s.tcp.wg.Wait()
		if all, counted := log.count("accept a TCP connection"), log.count("unsaid=9"); all != 6 || counted != 5 {
			t.Errorf("%d lines, of which %d count 9 that are unsaid; want 6 and 5", all, counted)
		}
	})
}
