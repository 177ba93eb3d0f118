// Package proxy stands between a client and a Kubernetes API server, and does to the client what
// networks, load balancers and API servers on a bad day do: nothing moves any more, connections are
// reset or slow, events of a watch are lost, lists come in pages that expire, and answers are errors.
//
// It speaks HTTP/2 over TLS with a certificate of its own, and passes on requests as they are, the
// token included. Without a fault it changes nothing:
//
//	p, err := proxy.New(cluster.Server, caPEM)
//	os.WriteFile(path, p.Kubeconfig(token), 0o600)
//	p.Events(func(e *proxy.Event) (times int) { return 0 }) // all events are lost from now on
//
// [UDP] is the same for the datagrams of DNS clients.
package proxy
