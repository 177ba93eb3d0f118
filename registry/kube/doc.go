// Package kube is a [registry.Source] that watches a cluster. It is the only
// package that talks to the Kubernetes API.
//
//	API server ── reflector ──▶ sink ──▶ registry.Feed ──▶ Store
//	    ▲            │
//	    └── lister ◀─┘   sees every request and its outcome
//
// There is a feed for EndpointSlices and one for Services, in each of the
// configured namespaces or once for all of them, and one for Nodes. A feed has a client-go
// Reflector of its own, which lists, watches and lists again; what it reads goes
// straight to the Store. There is no informer and no second copy of the cluster.
//
// # Connection
//
// Nothing that happens on the way empties the Store: it keeps the last state
// until the API server has something newer to say. Attempts are repeated for
// ever, at most 5 s apart (and a little more, by chance). A stream that
// no longer moves is noticed in three ways: HTTP/2 pings and TCP keepalives find
// a dead connection within 15 s, and a watch that stays silent for longer than
// bookmarks take is ended. Either way the next one goes on where it was. Only after
// a 410, or an event that is an error or can't be decoded, the state is read again.
//
// The initial state comes as the answer to a LIST ("list") where the server is known to send
// that object by object, as it does from 1.33 on, else as a streaming list ("watchlist")
// if it has them. Either way an object is let go of as soon as what is kept has been taken
// from it, and of an EndpointSlice in protobuf only that is decoded at all. Some servers
// and proxies never send the bookmark that ends a streaming list; once no further object
// has come for [Source.SyncDeadline] the source goes over to LIST for good, provided that
// it is answered.
//
// # Doubt
//
// A watch may leave out what it should tell, and look well. From time to time ([Source.AuditEvery])
// each kind is read as it is in the cluster and compared with what is held; where they
// differ, and the watch has had its time, the state is read again. A list that is older than
// what is known is not taken, unless the API server insists on it, and so is an event that is
// older than its object. A list that lacks most endpoints of a large Service is believed when
// it is read again a little later ([Source.MassEmpty]).
//
// # Rights
//
// EndpointSlices are needed: without the right to list them from the start, Run
// returns an error that says what to grant. Services and Nodes are wanted: without
// the right to list them the feed is off, with one warning, and asked for again every
// minute. A right that is taken away later is trouble like any other: what is
// known stays. Tokens and certificates are read from their files again when the API server
// does not take ours, or its own is not to be trusted.
//
// # Logging
//
// One line when something goes wrong and one when it is right again, however
// many requests fail in between. A watch that brought an error is one line, too, but
// has no second one. client-go's own log lines are switched off for what runs here.
package kube
