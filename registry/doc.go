// Package registry holds what exists: the Services of a cluster and the
// endpoints behind them, as plain values, ready to be read without a lock.
//
//	source ── Feed ──▶ Store ──▶ Snapshot of a Service
//	          Put      one       immutable, one atomic load
//	          Delete   writer
//	          Replace
//
// A [Source] (package registry/kube watches a cluster, package registry/manifest
// reads files) feeds API objects into a [Store], or for EndpointSlices the octets that
// they are in protobuf ([DecodeSlice]). The Store translates them once, keeps what each
// EndpointSlice contributes under that slice's own name, and folds a burst of events into
// one list of changed Services.
//
// Three rules keep the picture true:
//
//   - a changed slice replaces its own contribution and nothing else;
//   - a deleted slice takes away its own contribution and nothing else;
//   - a list replaces all that was known in its scope, so that a lost event
//     heals at the next list.
//
// What is known can outlive the process: [Store.Dump] writes it down, and [Store.Restore]
// shows it until all feeds have told the truth.
//
// The package knows nothing of DNS and opens no connection.
package registry
