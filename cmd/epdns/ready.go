package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"epdns/dnsserver"
)

// This file says whether questions should come here.
//
//	GET /readyz            "ok", or with status 503 the list of all checks
//	GET /readyz?verbose    the list in any case
//
// The list is as that of Kubernetes' own programs:
//
//	[+]dns ok
//	[-]sync failed: cluster https://… has not been read yet
//	readyz check failed
//
// A kind that may not be listed has a line, too, and is no reason not to be ready:
//
//	[+]nodes off: there are no regions, …; grant list and watch nodes in all namespaces (ClusterRole)

// readyCheck is one of the things that have to be so.
type readyCheck struct {
	name string
	why  string // it is not so; empty where it is
}

// readyChecks are all of them. The age of what is known is among them only where there is a
// limit to it: without, all replicas would stop being ready together when the API does.
func readyChecks(p *pipeline, dns *dnsserver.Server, now time.Time) []readyCheck {
	all := []readyCheck{{name: "dns"}, {name: "sync"}, {name: "shutdown"}}
	if !dns.Serving() {
		all[0].why = "questions are not answered yet"
	}
	if !p.synced.Load() {
		all[1].why = p.source.String() + " has not been read yet"
	}
	if p.stopping.Load() {
		all[2].why = "it is stopping"
	}
	if most := time.Duration(p.readyMaxAge.Load()); most > 0 {
		c := readyCheck{name: "age"}
		if age := p.age(now); age > most {
			c.why = fmt.Sprintf("what is known is %v old, more than readyMaxAge, %v", age.Round(time.Second), most)
		}
		all = append(all, c)
	}
	return all
}

// offLines are the kinds that may not be listed, what is missed by that, and the way out.
func offLines(p *pipeline) string {
	source, ok := p.source.(feedSource)
	if !ok {
		return ""
	}
	var lines strings.Builder
	for _, f := range source.Status() {
		if f.Off {
			fmt.Fprintf(&lines, "[+]%ss off: %s; grant %s\n", strings.ToLower(f.Kind), f.Missed, f.Grant)
		}
	}
	return lines.String()
}

func serveReady(p *pipeline, dns *dnsserver.Server) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var list strings.Builder
		ready := true
		for _, c := range readyChecks(p, dns, time.Now()) {
			if c.why == "" {
				fmt.Fprintf(&list, "[+]%s ok\n", c.name)
				continue
			}
			ready = false
			fmt.Fprintf(&list, "[-]%s failed: %s\n", c.name, c.why)
		}
		list.WriteString(offLines(p))
		_, verbose := r.URL.Query()["verbose"]
		switch {
		case !ready:
			http.Error(w, list.String()+"readyz check failed", http.StatusServiceUnavailable)
		case verbose:
			fmt.Fprint(w, list.String()+"readyz check passed\n")
		default:
			fmt.Fprintln(w, "ok")
		}
	}
}
