package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// pager hands out lists in pages.
type pager struct {
	size, expired int

	mu      sync.Mutex
	lists   map[string]*list // by the path
	expires int              // how often a token is still to be refused
}

// list is one of which pages are handed out.
type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// Pages has lists that ask for a limit come in pages of so many objects. The token of page expired, from 2, is refused
// with 410 so often, then good. A size of 0 ends that.
func (p *Proxy) Pages(size, expired, times int) {
	if size == 0 {
		p.pages.Store(nil)
		return
	}
	p.pages.Store(&pager{size: size, expired: expired, expires: times, lists: map[string]*list{}})
}

func (pg *pager) serve(w http.ResponseWriter, r *http.Request, p *Proxy) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	page := 1
	if token := r.URL.Query().Get("continue"); token != "" {
		var err error
		if page, err = strconv.Atoi(token); err != nil || pg.lists[r.URL.Path] == nil {
			Fail(w, http.StatusBadRequest, "BadRequest", "no such token: "+token)
			return
		}
	}
	if page == 1 {
		all, err := p.fetch(r)
		if err != nil {
			Fail(w, http.StatusInternalServerError, "InternalError", err.Error())
			return
		}
		pg.lists[r.URL.Path] = all
	}
	if page == pg.expired && pg.expires > 0 {
		pg.expires--
		Fail(w, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result.")
		return
	}
	out := *pg.lists[r.URL.Path]
	out.Metadata = map[string]any{"resourceVersion": out.Metadata["resourceVersion"]}
	from := min((page-1)*pg.size, len(out.Items))
	to := min(from+pg.size, len(out.Items))
	if to < len(out.Items) {
		out.Metadata["continue"] = strconv.Itoa(page + 1)
		out.Metadata["remainingItemCount"] = len(out.Items) - to
	}
	out.Items = out.Items[from:to]
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(&out)
}

// fetch gets all of a list, as JSON.
func (p *Proxy) fetch(r *http.Request) (*list, error) {
	to := *p.target
	to.Path = r.URL.Path
	query := r.URL.Query()
	query.Del("limit")
	query.Del("continue")
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", r.Header.Get("Authorization"))
	req.Header.Set("Accept", "application/json")
	resp, err := p.client.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err != nil {
		return nil, err
	}
	out := &list{}
	return out, json.Unmarshal(body, out)
}
