package kube

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
)

// API servers before 1.33 make the whole answer to a LIST before they send any of it: what a
// streaming list costs them less. Later ones send either object by object, and of the two
// the LIST takes a third of their processor time, and less of ours.
const listsItemByItem = 33

// API servers from 1.34 on keep what was at the versions of the last minutes, and compare it
// with etcd: a LIST of one of them need not go there, and need not have pages.
const listsVersions = 34

// streams says whether an initial state is read as a streaming list: unless the API server
// is known to be better at LIST, or such a stream did not end in time.
func (s *Source) streams(ctx context.Context) bool {
	if s.streaming.Load() == streamingOn && !s.versionAsked.Load() {
		s.askVersion(ctx)
	}
	return s.streaming.Load() == streamingOn
}

// askVersion asks the API server for its version, which everybody may. Where there is no
// answer the request that follows will say why, and the next one asks again.
func (s *Source) askVersion(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.SyncDeadline)
	defer cancel()
	body, err := s.api.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	var v version.Info
	if err == nil {
		err = json.Unmarshal(body, &v)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return
	}
	if err == nil {
		s.versionLists.Store(isFrom(v, listsVersions))
		if isFrom(v, listsItemByItem) {
			s.streaming.CompareAndSwap(streamingOn, streamingOff)
		}
	}
	s.versionAsked.Store(true)
}

// isFrom says whether a version is 1 and some second number, or later. Some providers put a
// plus after the number.
func isFrom(v version.Info, least int) bool {
	major, err := strconv.Atoi(v.Major)
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	return err == nil && (major > 1 || major == 1 && minor >= least)
}
