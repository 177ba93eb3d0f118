//go:build !linux || !(amd64 || arm64)

package batch

import "syscall"

func newEngine(s *Socket, _ syscall.RawConn, o Options) engine { return newPlain(s, o) }
