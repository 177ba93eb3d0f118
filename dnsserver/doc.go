// Package dnsserver is packets: sockets, the envelope of messages, transfers. It
// knows names only as what zones answers, and nothing of Kubernetes.
//
//	UDP worker ─┐
//	UDP worker ─┼─▶ Responder.Respond(dst, query, from, via) ──▶ reply
//	TCP worker ─┘    parse → Load → Lookup → ranked records → header, OPT
//
// One function answers under every transport. A Responder belongs to one
// goroutine and holds all the room that an answer needs, so the way from query to
// reply neither allocates nor locks.
//
// A UDP worker is a socket and a goroutine (package batch): it takes the queries that are
// there, up to a batch, has Respond write each reply where it is sent from, and sends
// them all.
//
// A Server owns sockets; what queries are answered by is another value, which never
// changes and is swapped for another one: Prepare makes settings ready and binds what is new,
// Commit puts them in force between two batches. A socket that is let go of is emptied before.
//
// The package is for Unix; batches, and replies from the address that was asked, on a
// socket for all addresses, need Linux.
//
// Zone transfers (RFC 5936) go over TCP, to loopback, to the addresses that were
// allowed and to who has a key (TSIG, RFC 8945), a message at a time from one Set. A
// signed query is rare, and with the names that explain answers the one kind whose
// reply allocates. Secondaries hear of changes by NOTIFY (RFC 1996).
//
// DNS over TLS (RFC 7858) is TCP with a handshake before the first query.
//
// What is owed to askers, and where it is tested: docs/obligations.md.
package dnsserver
