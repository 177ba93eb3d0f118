//go:build linux

// Package load asks DNS servers faster than they can answer, or at a steady rate, and counts. It
// is one thread that never sleeps while it measures, so it should have a processor to itself: the
// server then pays for its own work, and not for waking whoever asked.
//
// A [Generator] has up to 512 queries outstanding. Over UDP it moves them in batches (sendmmsg,
// recvmmsg) through one socket; over TCP it pipelines them on a few connections. Each reply is
// matched by its ID and looked at as far as it costs nothing: RCODE, TC and size. Whether the
// records are right is for the caller to see before and after.
//
// [EchoUDP] and [EchoTCP] are the least that a server can do: the floor under all of them.
package load
