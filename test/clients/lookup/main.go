// Command lookup looks up with Go's resolver and prints what it found: "lookup host NAME", or
// ip6, srv or addr; and with a number after the name, so many times. It is built by old releases
// of Go, too: nothing newer than 1.20 is used.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
)

func main() {
	times := 1
	if len(os.Args) == 4 {
		times, _ = strconv.Atoi(os.Args[3])
	}
	if len(os.Args) < 3 || len(os.Args) > 4 || times < 1 {
		log.Fatal("usage: lookup host|ip6|srv|addr NAME [TIMES]")
	}
	net.DefaultResolver.PreferGo = true
	for ; times > 0; times-- {
		lookup(os.Args[1], os.Args[2])
	}
}

func lookup(kind, name string) {
	ctx := context.Background()
	var got struct {
		Go                  string // its release
		Found               []string
		Targets             []*net.SRV
		Failure             string
		NotFound, Temporary bool
		Took                time.Duration
	}
	var err error
	begin := time.Now()
	switch kind {
	case "host":
		got.Found, err = net.LookupHost(name)
	case "ip6":
		var found []net.IP
		found, err = net.DefaultResolver.LookupIP(ctx, "ip6", name)
		for _, ip := range found {
			got.Found = append(got.Found, ip.String())
		}
	case "srv":
		_, got.Targets, err = net.LookupSRV("http", "tcp", name)
	case "addr":
		got.Found, err = net.LookupAddr(name)
	default:
		log.Fatalf("look up what: %q", kind)
	}
	got.Took = time.Since(begin)
	got.Go = runtime.Version()
	if err != nil {
		got.Failure = err.Error()
	}
	var failure *net.DNSError
	if errors.As(err, &failure) {
		got.NotFound, got.Temporary = failure.IsNotFound, failure.IsTemporary
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		log.Fatal(err)
	}
}
