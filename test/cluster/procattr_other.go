//go:build unix && !linux

package cluster

import "syscall"

// procAttr keeps a terminal's Ctrl-C from the components, which Stop ends in order.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
