//go:build linux

package faults

import (
	"fmt"
	"os/exec"
	"strings"
)

// table is ours in the kernel's packet filter.
const table = "epdns_faults"

// filter adds rules, as nft has them, for packets that come in. All faults of the network are made
// there, loopback's too.
func filter(rules ...string) error {
	var script strings.Builder
	fmt.Fprintf(&script, "add table inet %s\nadd chain inet %s in { type filter hook input priority 0; }\n", table, table)
	for _, rule := range rules {
		fmt.Fprintf(&script, "add rule inet %s in %s\n", table, rule)
	}
	return nft(script.String())
}

// unfilter takes all rules away.
func unfilter() error {
	return nft(fmt.Sprintf("add table inet %s\ndelete table inet %s\n", table, table))
}

func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// lose drops all packets of a TCP port, in either direction.
func lose(port int) error {
	return filter(fmt.Sprintf("tcp dport %d drop", port), fmt.Sprintf("tcp sport %d drop", port))
}
