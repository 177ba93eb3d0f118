//go:build !unix

package main

import (
	"context"
	"io"
)

// whileRead is a context of its own: whether somebody reads a pipe is not to be seen here.
func whileRead(ctx context.Context, _ io.Writer) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
