// Command grpc is a client of gRPC that finds its servers by DNS, and those servers: all
// addresses of the machine, at one port. For each line on standard input, the number of calls
// to make, it prints which servers were called how often.
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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver/dns"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: grpc TARGET")
	}
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Second}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)

	// The default is 30 s, which is long to wait.
	dns.SetMinResolutionInterval(time.Second)
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		calls := map[string]int{}
		for range n {
			var p peer.Peer
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p))
			cancel()
			if err != nil {
				calls[fmt.Sprintf("error: %v", err)]++
				continue
			}
			host, _, err := net.SplitHostPort(p.Addr.String())
			if err != nil {
				log.Fatal(err)
			}
			calls[host]++
		}
		if err := json.NewEncoder(os.Stdout).Encode(calls); err != nil {
			log.Fatal(err)
		}
	}
}
