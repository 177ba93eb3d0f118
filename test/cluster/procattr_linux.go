package cluster

import "syscall"

// procAttr keeps a terminal's Ctrl-C from the components, which Stop ends in order, and ends
// them with this process.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
