package main

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
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

// serveExplain answers questions and explains the answers, as many at a time as begin lets in:
// to explain a large Service takes tenths of a second of a processor.
func serveExplain(newResponder func() *dnsserver.Responder, begin func(context.Context) (done func(), err error)) http.HandlerFunc {
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
		form, err := wantedForm(r, p, applicationJSON, textPlain)
		if err != nil {
			badRequest(w, err)
			return
		}
		done, err := begin(r.Context())
		if err != nil {
			w.Header().Set("Retry-After", "5")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		x, err := q.explain(newResponder())
		done()
		if err != nil {
			badRequest(w, fmt.Errorf(`parameter "name": %w`, err))
			return
		}
		setForm(w, form)
		// An error here is one of the connection, whose reader knows.
		if form == textPlain {
			x.print(w)
			return
		}
		x.printJSON(w)
	}
}

// wantedForm is the media type to answer with, one of those given: that of the parameter
// format, else the one that the client names first as what it accepts, else the first.
func wantedForm(r *http.Request, p map[string]string, forms ...string) (string, error) {
	if format, ok := p["format"]; ok {
		switch format {
		case "text":
			return textPlain, nil
		case "json":
			return applicationJSON, nil
		}
		return "", fmt.Errorf("parameter %q: %q is not text or json", "format", format)
	}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if media, _, _ := mime.ParseMediaType(part); slices.Contains(forms, media) {
			return media, nil
		}
	}
	return forms[0], nil
}

// setForm sets the header of a page that has several forms.
func setForm(w http.ResponseWriter, form string) {
	if form == textPlain {
		form += "; charset=utf-8"
	}
	w.Header().Set("Content-Type", form)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
}
