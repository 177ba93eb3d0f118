// Package faults breaks what epdns depends on, one thing after the other, and watches what its
// clients get meanwhile.
//
// A [Lab] has a real control plane and some Services, which change all the time. For each [Fault]
// there is a trial: an epdns of its own, clients that never stop asking, and an oracle. The oracle
// knows nothing of epdns: it lists the EndpointSlices itself, consistently, and says of each answer
// whether it was right when it was given, whether it once was and is late, or whether it never was.
//
// All of it has to be in a network namespace of its own, see package netns: some faults are rules
// of the kernel's packet filter.
package faults
