// Command grpc is a client of gRPC that finds its servers by DNS, and those servers: one at
// each address, at one port. It reads lines of standard input. "call 100" makes that many calls
// and prints which servers had how many, as JSON. "stop ADDRESS" ends that server, and the
// connections that it has, and prints the same of no calls.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: grpc TARGET ADDRESS...")
	}
	servers := map[string]*grpc.Server{}
	for _, address := range os.Args[2:] {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 30 * time.Second}))
		healthpb.RegisterHealthServer(server, health.NewServer())
		go server.Serve(listener)
		servers[address] = server
	}

	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
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
