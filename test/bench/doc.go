//go:build linux

// Package bench measures DNS servers side by side, for the command of that name.
//
//	World    the Services, what is asked of them, and what is right to answer
//	servers  epdns; Knot, NSD and BIND with its zones; CoreDNS on its cluster; an echo
//	Compare  asks all of them the same, in rounds: what a query costs, how many a second, how late
//	Scale    epdns and CoreDNS as the cluster grows and changes
//	verdicts what of it is as it should be
//
// Each server has one processor and the one that asks has another, so a machine with two is
// needed, and else idle. Package load asks; package plot draws.
package bench
