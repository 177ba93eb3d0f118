// Command grpc is a client of gRPC that finds its servers by DNS, or by package registry, and those
// servers: one at each address, at one port. It reads lines of standard input. "call 100" makes that
// many calls and prints which servers had how many, as JSON. "stop ADDRESS" ends that server, and the
// connections that it has, and prints the same of no calls.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"epdns/registry"
	"epdns/registry/manifest"
	"epdns/test/clients/grpc/follow"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver/dns"
)

func main() {
	maxAge := flag.Duration("max-age", 30*time.Second, "how long the servers keep a connection")
	minInterval := flag.Duration("min-interval", 30*time.Second, "how often the resolver for DNS asks at most")
	manifests := flag.String("manifests", "", "directory in which targets such as epdns:///lamp.dock:http are found")
	flag.Parse()
	if flag.NArg() < 2 {
		log.Fatal("usage: grpc [FLAGS] TARGET ADDRESS...")
	}
	dns.SetMinResolutionInterval(*minInterval)

	servers := map[string]*grpc.Server{}
	for _, address := range flag.Args()[1:] {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: *maxAge}))
		healthpb.RegisterHealthServer(server, health.NewServer())
		go server.Serve(listener)
		servers[address] = server
	}

	options := []grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	if *manifests != "" {
		options = append(options, grpc.WithResolvers(follow.NewBuilder(read(*manifests))))
	}
	conn, err := grpc.NewClient(flag.Arg(0), options...)
	if err != nil {
		log.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		calls := map[string]int{}
		what, of, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "call":
			n, err := strconv.Atoi(of)
			if err != nil {
				log.Fatal(err)
			}
			for range n {
				calls[call(client)]++
			}
		case "stop":
			servers[of].Stop()
		default:
			log.Fatalf("what to do: %q", lines.Text())
		}
		if err := json.NewEncoder(os.Stdout).Encode(calls); err != nil {
			log.Fatal(err)
		}
	}
}

// read keeps a store as manifests say, until the program ends.
func read(dir string) *registry.Store {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := registry.NewStore(logger)
	source := manifest.New(os.DirFS(dir), dir, logger)
	source.Interval = 20 * time.Millisecond // as a cluster tells of a change at once
	go func() {
		if err := source.Run(context.Background(), store); err != nil {
			log.Fatal(err)
		}
	}()
	return store
}

// call makes one and says which server had it, or the error.
func call(client healthpb.HealthClient) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var p peer.Peer
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
		return fmt.Sprintf("error: %v", err)
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		log.Fatal(err)
	}
	return host
}
