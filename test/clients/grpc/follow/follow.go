// Package follow lets gRPC find the pods behind a Service by package registry instead of DNS:
// who comes has calls at once, and who goes has no more of them.
package follow

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"epdns/registry"

	"google.golang.org/grpc/resolver"
)

// Scheme begins the targets: epdns:///web.shop:grpc is port grpc of Service web in namespace shop.
const Scheme = "epdns"

// NewBuilder returns what finds such targets in a store. It is meant for [grpc.WithResolvers].
func NewBuilder(store *registry.Store) resolver.Builder { return builder{store} }

type builder struct{ store *registry.Store }

func (builder) Scheme() string { return Scheme }

// Build follows a Service until Close.
func (b builder) Build(target resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	service, port, _ := strings.Cut(target.Endpoint(), ":")
	name, namespace, _ := strings.Cut(service, ".")
	if name == "" || namespace == "" || port == "" {
		return nil, fmt.Errorf("the target %s is not of the form %s:///SERVICE.NAMESPACE:PORT, with the name of a port", target, Scheme)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for svc := range b.store.Watch(ctx, namespace, name) {
			// To try again would change nothing, whatever is wrong with it; what is new comes by itself.
			_ = conn.UpdateState(resolver.State{Addresses: ready(svc, port)})
		}
	}()
	return following(stop), nil
}

// ready are the addresses of those that are, and have the port.
func ready(svc *registry.Service, port string) (list []resolver.Address) {
	for _, m := range svc.Members() {
		if number, ok := m.Port(port); ok && m.Ready {
			list = append(list, resolver.Address{Addr: netip.AddrPortFrom(m.Addr, number).String()})
		}
	}
	return list
}

// following ends what Build has begun.
type following context.CancelFunc

// ResolveNow has nothing to do.
func (following) ResolveNow(resolver.ResolveNowOptions) {}

// Close ends it.
func (f following) Close() { f() }
