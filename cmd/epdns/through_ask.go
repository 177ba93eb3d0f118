package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// This file asks a server that may be anything.

// How long to wait for a reply: longer than a forwarder waits for another server before it
// tries the next.
const (
	udpWait  = 2500 * time.Millisecond
	tcpWait  = 5 * time.Second
	udpTries = 2
)

// asker puts questions to one server.
type asker struct {
	to    netip.AddrPort
	asked int // questions so far
}

// flawedError is what came instead of a reply.
type flawedError struct{ error }

// exchange asks over UDP, and over TCP if the reply says that it is not all. Then cut is set,
// and if TCP fails there is the cut reply and an error.
func (a *asker) exchange(ctx context.Context, m *dns.Msg) (reply *dns.Msg, cut bool, err error) {
	a.asked++
	query, err := m.Pack()
	if err != nil {
		return nil, false, fmt.Errorf("ask for %s: %w", m.Question[0].Name, err)
	}
	for range udpTries {
		if reply, err = a.udp(ctx, query); err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	if err != nil || !reply.Truncated {
		return reply, false, err
	}
	whole, err := a.tcp(ctx, query)
	if err != nil {
		return reply, true, err
	}
	return whole, true, nil
}

// deadline is the earlier of a wait from now and the end of ctx.
func deadline(ctx context.Context, wait time.Duration) time.Time {
	at := time.Now().Add(wait)
	if end, ok := ctx.Deadline(); ok && end.Before(at) {
		return end
	}
	return at
}

// udp asks once. What is no reply to this question does not end the wait for one, but is told
// where none comes.
func (a *asker) udp(ctx context.Context, query []byte) (*dns.Msg, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(a.to))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(0, 0)) })
	defer stop()
	if err := conn.SetDeadline(deadline(ctx, udpWait)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	return firstReply(query, conn.Read)
}

// firstReply reads datagrams until one is the reply.
func firstReply(query []byte, read func([]byte) (int, error)) (*dns.Msg, error) {
	buf := make([]byte, dns.MaxMsgSize)
	var flaw error
	for {
		n, err := read(buf)
		if err != nil && flaw != nil {
			return nil, flawedError{flaw}
		}
		if err != nil {
			return nil, err
		}
		m, err := readReply(query, buf[:n])
		if err == nil {
			return m, nil
		}
		flaw = err
	}
}

// tcp asks on a connection of its own.
func (a *asker) tcp(ctx context.Context, query []byte) (*dns.Msg, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline(ctx, tcpWait))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.to.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(0, 0)) })
	defer stop()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	return readStream(query, conn)
}

// speaksTLS says whether the server takes a TLS connection, with whatever certificate.
func (a *asker) speaksTLS(ctx context.Context) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline(ctx, tcpWait))
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", a.to.String())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

const plainPort = "it speaks TLS there; give the address and port at which it takes plain DNS, which is 53 as a rule"

// readStream reads the reply of a connection.
func readStream(query []byte, r io.Reader) (*dns.Msg, error) {
	var head [2]byte
	if n, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, flawedError{fmt.Errorf("it closes the connection after %d octets", n)}
	} else if err != nil {
		return nil, err
	}
	wire := make([]byte, binary.BigEndian.Uint16(head[:]))
	if n, err := io.ReadFull(r, wire); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, flawedError{fmt.Errorf("it closes the connection after %d octets", len(head)+n)}
	} else if err != nil {
		return nil, err
	}
	m, err := readReply(query, wire)
	if err != nil {
		return nil, flawedError{err}
	}
	return m, nil
}

// readReply reads a reply to a query; the error says why it is none (RFC 5452 section 9.1).
func readReply(query, wire []byte) (*dns.Msg, error) {
	if len(wire) < 12 {
		return nil, fmt.Errorf("what comes is no DNS: %d octets", len(wire))
	}
	if wire[0] != query[0] || wire[1] != query[1] {
		return nil, errors.New("what comes has another ID than the question")
	}
	var q, m dns.Msg
	if err := m.Unpack(wire); err != nil {
		return nil, fmt.Errorf("what comes cannot be read: %w", err)
	}
	if err := q.Unpack(query); err != nil {
		return nil, err
	}
	switch {
	case !m.Response:
		return nil, errors.New("what comes is a question and no reply")
	case len(m.Question) == 0 && m.Rcode != dns.RcodeSuccess:
		m.Question = q.Question // as some refuse what they do not want to read
	case len(m.Question) != 1 || m.Question[0].Qtype != q.Question[0].Qtype || m.Question[0].Qclass != q.Question[0].Qclass ||
		!strings.EqualFold(m.Question[0].Name, q.Question[0].Name):
		return nil, errors.New("what comes is the reply to another question")
	}
	return &m, nil
}

// newQuery is a question as a stub resolver has it.
func newQuery(name string, qtype uint16, options ...dns.EDNS0) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = options
	return m
}

// unanswered says why there is no reply to a question, and what to do.
func (a *asker) unanswered(ctx context.Context, m *dns.Msg, err error) string {
	query, packErr := m.Pack()
	if packErr != nil {
		return packErr.Error()
	}
	port := a.to.Port()
	switch {
	case errors.As(err, new(flawedError)):
		return err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		switch _, tcp := a.tcp(ctx, query); {
		case tcp != nil && a.speaksTLS(ctx):
			return plainPort
		case errors.As(tcp, new(flawedError)):
			return fmt.Sprintf("nothing listens on UDP port %d, and who listens on TCP speaks no DNS: %v", port, tcp)
		case tcp == nil:
			return fmt.Sprintf("it answers over TCP alone, and nothing listens on UDP port %d, where clients ask first", port)
		}
		return fmt.Sprintf("nothing listens on port %d there: is the address right, and does the resolver run?", port)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Sprintf("this machine has no way to it (%v): addresses of Services and Pods are reached from the cluster's nodes and Pods alone", errors.Unwrap(err))
	case errors.Is(err, os.ErrDeadlineExceeded):
		if other, ok := a.strayReply(ctx, query); ok {
			return fmt.Sprintf("the reply comes from %v, and no client takes it: let the resolver listen on the address itself (dnsmasq: listen-address with bind-interfaces; unbound: interface-automatic)", other)
		}
		switch _, tcp := a.tcp(ctx, query); {
		case tcp == nil:
			return fmt.Sprintf("it answers over TCP alone: is UDP port %d open between here and there?", port)
		case a.speaksTLS(ctx):
			return plainPort
		}
		return "no answer: does the resolver run, may this machine ask it (its access rules, a firewall, a NetworkPolicy), and does it reach epdns?"
	}
	return err.Error()
}

// strayReply says who answers if not the one who was asked.
func (a *asker) strayReply(ctx context.Context, query []byte) (from netip.AddrPort, ok bool) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return from, false
	}
	defer conn.Close()
	conn.SetDeadline(deadline(ctx, time.Second))
	if _, err := conn.WriteToUDPAddrPort(query, a.to); err != nil {
		return from, false
	}
	_, err = firstReply(query, func(b []byte) (n int, err error) {
		n, from, err = conn.ReadFromUDPAddrPort(b)
		return n, err
	})
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	return from, err == nil && from != a.to
}

// unknownName is a name that nobody has asked for before, as a label.
func unknownName() string { return "epdns-check-" + strings.ToLower(rand.Text()[:8]) }
