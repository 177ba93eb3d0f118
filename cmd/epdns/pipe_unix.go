//go:build unix

package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// whileRead is a context that ends when the other end of the pipe that w is has gone, as in
// "epdns watch --all | head -3": a command that waits for changes would notice with the next
// one only.
func whileRead(ctx context.Context, w io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	f, ok := w.(*os.File)
	if !ok {
		return ctx, stop
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ctx, stop
	}
	fd := int32(f.Fd())
	go func() {
		const often = 200 // ms, to see that ctx has ended
		for ctx.Err() == nil {
			fds := []unix.PollFd{{Fd: fd}}
			if n, err := unix.Poll(fds, often); n > 0 && err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
				cancel(errReaderGone)
			}
		}
	}()
	return ctx, stop
}
