package main

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"epdns/dnsserver"
)

// This file explains answers by HTTP:
//
//	/explain?name=N&type=T&from=ADDR&subnet=PREFIX   as for /lookup
//	        &tcp=true       over TCP and not over UDP
//	        &format=text    for people, as Accept: text/plain does; else JSON
const (
	applicationJSON = "application/json"
	textPlain       = "text/plain"
)

// serveExplain answers questions and explains the answers.
func serveExplain(newResponder func() *dnsserver.Responder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked, p, err := readQuestion(r.URL, "tcp", "format")
		if err != nil {
			badRequest(w, err)
			return
		}
		q := explainQuestion{lookupQuestion: asked}
		if text, ok := p["tcp"]; ok {
			if q.tcp, err = strconv.ParseBool(text); err != nil {
				badRequest(w, fmt.Errorf("parameter %q: %q is not true or false", "tcp", text))
				return
			}
		}
		asText := wantsText(r.Header.Values("Accept"))
		if format, ok := p["format"]; ok {
			if asText = format == "text"; !asText && format != "json" {
				badRequest(w, fmt.Errorf("parameter %q: %q is not text or json", "format", format))
				return
			}
		}
		x, err := q.explain(newResponder())
		if err != nil {
			badRequest(w, fmt.Errorf(`parameter "name": %w`, err))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Vary", "Accept")
		// An error here is one of the connection, whose reader knows.
		if asText {
			w.Header().Set("Content-Type", textPlain+"; charset=utf-8")
			x.print(w)
			return
		}
		w.Header().Set("Content-Type", applicationJSON)
		x.printJSON(w)
	}
}

// wantsText says whether what a client accepts names plain text before JSON.
func wantsText(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case textPlain:
			return true
		case applicationJSON:
			return false
		}
	}
	return false
}
