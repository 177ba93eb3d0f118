// Package zones says what names mean. It turns the Services of a registry into
// records ready to be copied into a message, and finds those that answer a
// question. It opens no socket, reads no clock and logs nothing.
//
//	registry.Service ──▶ Builder.Build ──▶ Set ──▶ Store.Publish
//	                     one writer        immutable, one pointer
//
//	Store.Load ──▶ Set.Lookup ──▶ Answer.AppendTo ──▶ bytes
//	any goroutine                 ranked, cut to fit
//
// A name is read from the right: zone, namespace, Service, the rest. The table
// holds Services, not names: a host name or a pod name is found within the
// Service, an address written with dashes is parsed.
//
//	<svc>.<ns>.<zone>                      A, AAAA, SRV; or CNAME (ExternalName)
//	_<port>._<proto>.<svc>.<ns>.<zone>     SRV
//	<hostname>.<svc>.<ns>.<zone>           A, AAAA, SRV of one endpoint; also by
//	                                       pod name and by address (10-1-2-3)
//	<zone>, ns.dns.<zone>, dns-version.<zone>
//	4.3.2.10.in-addr.arpa                  PTR, one per Service
//
// A Set is served as a whole and never changes: who loads it sees one moment.
// Publishing the next one costs what the changed Services cost, however many
// others there are; and a Service of many endpoints costs what its changed slices
// cost, as it is compiled in parts.
package zones
