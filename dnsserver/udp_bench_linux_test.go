//go:build amd64 || arm64

package dnsserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"epdns/dnsserver/batch"
)

// benchServer is set for the process that BenchmarkUDP starts for a server: the size of
// its batches, "plain" for none, or "floor" for one that sends octets of the same number
// without a look at what comes.
const benchServer = "EPDNS_BENCH_SERVER"

// BenchmarkUDP asks a server of one worker, a process of its own on one processor, from
// another processor: for ten addresses, with EDNS, 512 questions under way. It reports
// answers a second and, from the scheduler, the server's processor time for each.
//
//	go test ./dnsserver -run '^$' -bench '^BenchmarkUDP$' -benchtime 500000x -count 5
//
// Other work on the machine shows in the first of them more than in the second.
func BenchmarkUDP(b *testing.B) {
	if how := os.Getenv(benchServer); how != "" {
		serveBench(b, how)
		return
	}
	q := question("web.shop.registry.local.", dns.TypeA)
	q.SetEdns0(1232, false)
	query, err := q.Pack()
	if err != nil {
		b.Fatal(err)
	}
	for _, how := range []string{"plain", "1", "8", "16", "32", "64", "floor"} {
		b.Run(how, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var mine unix.CPUSet
			if err := unix.SchedGetaffinity(0, &mine); err != nil {
				b.Fatal(err)
			}
			defer unix.SchedSetaffinity(0, &mine)
			pin(b, 0)
			pid, addr := startBenchServer(b, how)
			pin(b, runtime.NumCPU()-1)
			f := newFlood(b, addr, query)
			f.run(b, 10_000) // warm
			used := cpuTime(b, pid)
			b.ResetTimer()
			f.run(b, b.N)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
			b.ReportMetric(float64(cpuTime(b, pid)-used)/float64(b.N), "cpu-ns/answer")
		})
	}
}

// pin keeps this thread, and the processes that it starts, on one processor.
func pin(b *testing.B, cpu int) {
	b.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		b.Fatal(err)
	}
}

// startBenchServer starts this program as a server.
func startBenchServer(b *testing.B, how string) (pid int, addr string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkUDP$", "-test.benchtime=1x", "-test.count=1")
	cmd.Env = append(os.Environ(), benchServer+"="+how, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatalf("the server does not start: %v", err)
		}
		if _, after, ok := strings.Cut(line, "serving on "); ok {
			go io.Copy(io.Discard, lines)
			return cmd.Process.Pid, strings.TrimSpace(after)
		}
	}
}

// serveBench serves until standard input ends.
func serveBench(b *testing.B, how string) {
	if how == "floor" {
		serveFloor(b)
		return
	}
	cfg := Config{Listen: []string{"127.0.0.1:0"}, Workers: 1}
	if size, err := strconv.Atoi(how); err == nil {
		cfg.udp.Size = size
	} else {
		cfg.udp = batch.Options{Plain: true}
	}
	s, err := Listen(cfg, cluster(b), quiet)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	fmt.Printf("\nserving on %v\n", s.Addrs()[0])
	s.Serve(ctx)
}

func serveFloor(b *testing.B) {
	s, err := batch.Listen("udp4", "127.0.0.1:0", batch.Options{})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		s.Close()
	}()
	fmt.Printf("\nserving on %v\n", s.LocalAddr())
	reply := make([]byte, benchReply)
	for {
		messages, err := s.Receive()
		if err != nil {
			return
		}
		for i := range messages {
			messages[i].Reply = append(messages[i].Reply, reply...)
		}
		s.Send(len(messages))
	}
}

// cpuTime is the processor time that all threads of a process have had, in nanoseconds.
func cpuTime(b *testing.B, pid int) (sum uint64) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		b.Fatalf("process %d has no schedstat: %v", pid, err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		var ns uint64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			b.Fatal(err)
		}
		sum += ns
	}
	return sum
}

const (
	floodWindow = 512
	floodBatch  = 64

	// benchReply is the length of the reply: header, question, ten addresses, OPT.
	benchReply = headerSize + 25 + 4 + 10*16 + optSize
)

// flood is a socket that asks one question over and over.
type flood struct {
	conn    *net.UDPConn
	fd      int
	in, out [floodBatch]unix.Mmsghdr
}

func newFlood(b *testing.B, addr string, query []byte) *flood {
	b.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		b.Fatal(err)
	}
	f := &flood{conn: conn.(*net.UDPConn)}
	b.Cleanup(func() { f.conn.Close() })
	file, err := f.conn.File() // a descriptor of its own, which blocks
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	f.fd = int(file.Fd())
	patience := unix.NsecToTimeval((50 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		b.Fatal(err)
	}
	_ = unix.SetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	for i := range floodBatch {
		reply := make([]byte, 1500)
		f.out[i].Hdr.Iov, f.out[i].Hdr.Iovlen = &unix.Iovec{Base: &query[0], Len: uint64(len(query))}, 1
		f.in[i].Hdr.Iov, f.in[i].Hdr.Iovlen = &unix.Iovec{Base: &reply[0], Len: uint64(len(reply))}, 1
	}
	return f
}

// run returns when n answers have come. What gets lost is asked again.
func (f *flood) run(b *testing.B, n int) {
	for underway := 0; n > 0; {
		for free := min(floodWindow, n) - underway; free > 0; {
			sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.out[0])), uintptr(min(free, floodBatch)), 0, 0, 0)
			if errno != 0 {
				b.Fatalf("sendmmsg: %v", errno)
			}
			free -= int(sent)
			underway += int(sent)
		}
		got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.in[0])), floodBatch, unix.MSG_WAITFORONE, 0, 0)
		switch errno {
		case 0:
			for i := range f.in[:got] {
				if f.in[i].Len != benchReply {
					b.Fatalf("a reply of %d octets", f.in[i].Len)
				}
			}
			n -= int(got)
			underway -= int(got)
		case unix.EAGAIN, unix.EINTR:
			underway = 0
		default:
			b.Fatalf("recvmmsg: %v", errno)
		}
	}
}
