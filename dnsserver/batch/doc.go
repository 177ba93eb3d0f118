// Package batch is a UDP socket that moves many datagrams with one system call.
//
//	Receive ──▶ []Message ──▶ Reply = append(Reply, ...) ──▶ Send
//	recvmmsg    Data, From, Local                            sendmmsg
//
// A Socket and its Messages belong to one goroutine, the worker: it receives, writes a
// reply into each Message that is to have one, and sends them all. All room is made by
// Listen, so that the way from a datagram to its reply neither allocates nor copies.
// Receive waits for the first datagram alone and takes with it what is there already:
// a single question is answered at once, and the more come, the less each one costs.
//
// Several sockets may be bound to one address, among which the kernel spreads the
// askers: one for each worker. A reply leaves from the address that was asked (RFC 2181
// section 4.1), also where the socket is bound to all of them.
//
// Linux on amd64 and arm64 has the system calls; elsewhere a batch is one datagram. Both
// do the same in the end and pass the same tests. The address that was asked is known on
// Linux alone: elsewhere, bind to the addresses one by one.
package batch
